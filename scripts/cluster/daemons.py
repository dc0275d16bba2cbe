"""Starting daemons in the background, and telling whether they live."""

import os
import pwd
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

from cluster import processes
from cluster.errors import ClusterError
from cluster.layout import Layout
from cluster.polling import tail, wait_until
from cluster.processes import DAEMON, Process
from cluster.settings import Settings

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
START_SECONDS = 30.0


def environment(layout: Layout, **more: str) -> dict[str, str]:
    """A bare one: a cluster started from within a job must not see that job's variables."""
    return {"PATH": f"{layout.programs}:{PATH}", "HOME": "/root", "LC_ALL": "C", "SLURM_CONF": str(layout.conf), **more}


def spawn(layout: Layout, name: str, argv: list[str | Path], user: str | None = None) -> None:
    """Start a daemon in the foreground mode of its own, but detached from the caller. It can be found at once."""
    with (layout.logs / f"{name}.out").open("ab") as output:
        started = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd="/",
            env=environment(layout, **{DAEMON: name}),
            user=user,
            group=user,
            extra_groups=[] if user else None,
            start_new_session=True,
        )
    # The kernel has replaced the program a moment before it shows the environment, by which a daemon is found.
    wait_until(lambda: started.poll() is not None or _has_environment(started.pid), START_SECONDS, f"{name} starts")


def _has_environment(pid: int) -> bool:
    return bool(Path(f"/proc/{pid}/environ").read_bytes())


def find(layout: Layout, name: str) -> list[Process]:
    """The daemon's processes, or nothing when it is not running."""
    return [one for one in processes.of_cluster(layout) if one.daemon == name]


def names(settings: Settings) -> list[str]:
    """Every daemon that the cluster is made of."""
    accounting = ["mariadb", "slurmdbd"] if settings.accounting else []
    return ["munged", *accounting, "slurmctld", *settings.node_names]


def wait_for(layout: Layout, name: str, ready: Callable[[], bool], what: str) -> None:
    """Wait until a daemon serves; if it dies instead, say so at once with the end of its log."""

    def ready_or_dead() -> bool:
        return ready() or not find(layout, name)

    logs = layout.logs_of(name)
    wait_until(ready_or_dead, START_SECONDS, what, lambda: tail(logs))
    if not ready() and not find(layout, name):
        raise ClusterError(f"{name} ended while it was starting\n{tail(logs)}")


def run(layout: Layout, *argv: str, seconds: float = 30, **more: str) -> subprocess.CompletedProcess[str]:
    """Run a client command of this cluster; a command that never answers counts as failed."""
    try:
        return subprocess.run(
            argv,
            env=environment(layout, **more),
            capture_output=True,
            text=True,
            timeout=seconds,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(argv, 124, "", f"no answer within {seconds:g} s")


def check_run(layout: Layout, *argv: str) -> str:
    """Run a client command that has to work; its output."""
    result = run(layout, *argv)
    if result.returncode:
        raise ClusterError(f"{' '.join(argv)}: {(result.stderr or result.stdout).strip()}")
    return result.stdout


def answers(layout: Layout) -> bool:
    """Whether slurmctld serves requests."""
    return run(layout, "scontrol", "ping", seconds=5).returncode == 0


def start_controller(layout: Layout) -> None:
    """Start slurmctld and wait until it serves."""
    if find(layout, "slurmctld"):
        raise ClusterError("slurmctld is running already")
    spawn(layout, "slurmctld", ["slurmctld", "-D", "-f", layout.conf])
    wait_for(layout, "slurmctld", lambda: answers(layout), "slurmctld answers")


def stop_controller(layout: Layout) -> None:
    """Let slurmctld save its state and end."""
    signal_controller(layout, signal.SIGCONT)
    signal_controller(layout, signal.SIGTERM)
    gone = "slurmctld saves its state and ends"
    wait_until(lambda: not find(layout, "slurmctld"), START_SECONDS, gone)


def signal_controller(layout: Layout, number: signal.Signals) -> None:
    """Signal slurmctld, its helper process included."""
    found = find(layout, "slurmctld")
    if not found:
        raise ClusterError("slurmctld is not running")
    for process in found:
        processes.send(process.pid, number)


def start_munged(layout: Layout) -> None:
    """A munged with a key of its own: this cluster's credentials are worth nothing elsewhere."""
    key = layout.munge / "key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o400)
    for path in (layout.munge, key):
        os.chown(path, *_owner("munge"))
    options = ["--key-file=key", "--socket=socket", "--pid-file=pid", "--log-file=log"]
    paths = [option.replace("=", f"={layout.munge}/") for option in [*options, "--seed-file=seed"]]
    spawn(layout, "munged", ["munged", "--foreground", *paths], user="munge")
    wait_for(layout, "munged", layout.munge_socket.is_socket, "munged opens its socket")


def _owner(user: str) -> tuple[int, int]:
    entry = pwd.getpwnam(user)
    return entry.pw_uid, entry.pw_gid
