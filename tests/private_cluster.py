"""A real Slurm cluster for tests: scripts/slurm-cluster as a Python object, and waiting by polling."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import pytest

SCRIPT = Path(__file__).resolve().parents[1] / "scripts" / "slurm-cluster"
PROGRAMS = ("slurmctld", "slurmd", "munged", "sbatch")
ACCOUNTING_PROGRAMS = ("slurmdbd", "mariadbd")
TESTER = "slurmopt-tester"
INHERITED_PREFIXES = ("SLURM", "SBATCH", "SRUN", "PMI")
POLL_SECONDS = 0.1
MOST_POLL_SECONDS = 1.0
PATIENCE = 3
"""How many times the timeout of a wait may pass: it is that of a quiet machine, and a busy one is slower."""

release = ""
"""Which release of Slurm a cluster gets unless a test says otherwise; empty for the machine's own."""


def wait_until(predicate: Callable[[], object], timeout: float, what: str, seen: Callable[[], object] = str) -> None:
    """Poll until `predicate` is true; past the deadline fail, with what `seen` shows by then.

    The pause is four times what a look takes: one that runs a command must not keep a core from what it waits for.
    """
    began = time.monotonic()
    deadline = began + PATIENCE * timeout
    while not predicate():
        now = time.monotonic()
        if now > deadline:
            raise AssertionError(f"{what}: not within {PATIENCE * timeout:g} s\n{seen()}".rstrip())
        time.sleep(min(max(POLL_SECONDS, 4 * (now - began)), MOST_POLL_SECONDS))
        began = time.monotonic()


def require_slurm(accounting: bool = False) -> None:
    """Skip, loudly, where no private cluster can run; on CI that is a failure, for there it has to run."""
    reason = why_not(accounting)
    if reason and os.environ.get("CI") == "true":
        pytest.fail(f"CI must run the tests on a real Slurm, but {reason}")
    if reason:
        pytest.skip(f"NOT TESTED ON A REAL SLURM: {reason}")


def why_not(accounting: bool = False) -> str:
    """What a private cluster lacks here, or nothing."""
    if os.getuid() != 0:
        return "a private cluster needs root"
    needed = PROGRAMS + (ACCOUNTING_PROGRAMS if accounting else ())
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
    missing = [program for program in needed if shutil.which(program, path=path) is None]
    return f"these programs are missing: {', '.join(missing)}" if missing else ""


def unprivileged_user() -> str:
    """The name of a user who is not root, made on first use, with a home."""
    home = Path(tempfile.gettempdir()) / f"{TESTER}-home"
    # Of two useradd at once the second gives the user another uid: it looks for the name before it takes its lock.
    with open(Path(tempfile.gettempdir()) / f"{TESTER}-lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            entry = pwd.getpwnam(TESTER)
        except KeyError:
            options = ["--system", "--user-group", "--no-create-home", "--home-dir", str(home), "--shell", "/bin/bash"]
            subprocess.run(["useradd", *options, TESTER], check=True, capture_output=True)
            entry = pwd.getpwnam(TESTER)
    Path(entry.pw_dir).mkdir(mode=0o755, exist_ok=True)
    os.chown(entry.pw_dir, entry.pw_uid, entry.pw_gid)
    return TESTER


def use_release(name: str) -> None:
    """Have all clusters of this process run another release of Slurm, and its commands be found first."""
    global release
    release = name
    programs = script("programs", "--release", name, check=True, timeout=1800).stdout.strip()
    if programs:
        os.environ["PATH"] = os.pathsep.join([programs, os.environ["PATH"]])


def new_folder() -> Path:
    """A fresh folder for a cluster: pytest's own are too long for sockets, and closed to other users."""
    return Path(tempfile.mkdtemp(prefix="slurm-", dir="/tmp"))


@dataclass(frozen=True)
class PrivateCluster:
    """A running cluster."""

    folder: Path
    """Everything that it is made of."""
    conf: Path
    """What SLURM_CONF names."""

    @classmethod
    def start(cls, folder: Path, *args: str) -> PrivateCluster:
        """Start one in `folder`, with further options of the script."""
        script("start", "--folder", str(folder), *args, check=True)
        return cls(folder, folder / "etc" / "slurm.conf")

    @classmethod
    @contextlib.contextmanager
    def running(cls, *args: str) -> Iterator[PrivateCluster]:
        """One in a folder of its own during the block; where there is no Slurm the tests that need it are skipped."""
        require_slurm(accounting="--accounting" in args)
        made = cls.start(new_folder(), *args)
        try:
            yield made
        finally:
            made.stop()

    def stop(self) -> None:
        """End it; nothing is left behind."""
        self.command("stop")

    def kill_node(self, node: str) -> None:
        """Pull the node's plug."""
        self.command("kill-node", node)

    def give_up_node(self, node: str) -> None:
        """Pull the node's plug, and have an administrator say so: Slurm needs half a minute to find out by itself."""
        self.kill_node(node)
        self.run(["scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=no power"])

    def partition_node(self, node: str) -> None:
        """Cut the node off; its ranks live on."""
        self.command("partition-node", node)

    def restore_node(self, node: str) -> None:
        """Bring the node back."""
        self.command("restore-node", node)

    def restart_controller(self) -> None:
        """Stop and start slurmctld, its state kept."""
        self.command("restart-controller")

    def stop_controller(self) -> None:
        """Stop slurmctld."""
        self.command("stop-controller")

    def start_controller(self) -> None:
        """Start slurmctld again."""
        self.command("start-controller")

    @contextlib.contextmanager
    def without_controller(self) -> Iterator[None]:
        """No slurmctld during the block; Slurm's commands try to reach it for two seconds instead of nine."""
        text = self.conf.read_text()
        self.stop_controller()
        self.conf.write_text(text.replace("MessageTimeout=10\n", "MessageTimeout=3\n"))
        try:
            yield
        finally:
            self.conf.write_text(text)
            self.start_controller()

    def pause_controller(self) -> None:
        """Let slurmctld hear, but not answer."""
        self.command("pause-controller")

    def resume_controller(self) -> None:
        """Let slurmctld answer again."""
        self.command("resume-controller")

    def command(self, name: str, *args: str) -> str:
        """One of the script's commands, which has to succeed; its output."""
        return script(name, "--folder", str(self.folder), *args, check=True).stdout

    def run(
        self,
        argv: Sequence[str | Path],
        user: str | None = None,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        timeout: float = 60,
        check: bool = True,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command against this cluster, as another user when asked; `env` comes on top of the ordinary."""
        entry = pwd.getpwnam(user) if user else None
        done = subprocess.run(
            [str(word) for word in argv],
            env={**clean_environment(), **_identity(entry), "SLURM_CONF": str(self.conf), **(env or {})},
            cwd=cwd or (entry.pw_dir if entry else None),
            user=entry.pw_uid if entry else None,
            group=entry.pw_gid if entry else None,
            extra_groups=[] if entry else None,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        if check and done.returncode:
            _complain(done)
        return done


def script(*args: str, check: bool = False, timeout: float = 120) -> subprocess.CompletedProcess[str]:
    """Run scripts/slurm-cluster."""
    chosen = ["--release", release] if args[0] == "start" else []
    argv = [sys.executable, str(SCRIPT), args[0], *chosen, *args[1:]]
    done = subprocess.run(argv, env=clean_environment(), capture_output=True, text=True, timeout=timeout)
    if check and done.returncode:
        _complain(done)
    return done


def clean_environment() -> dict[str, str]:
    """The environment without traces of another cluster or job."""
    return {name: value for name, value in os.environ.items() if not name.startswith(INHERITED_PREFIXES)}


def _identity(entry: pwd.struct_passwd | None) -> dict[str, str]:
    return {"HOME": entry.pw_dir, "USER": entry.pw_name, "LOGNAME": entry.pw_name} if entry else {}


def _complain(done: subprocess.CompletedProcess[str]) -> NoReturn:
    command = " ".join(done.args)
    raise AssertionError(f"{command} ended with {done.returncode}\n{done.stdout}\n{done.stderr}".rstrip())
