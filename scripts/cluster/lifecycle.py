"""A cluster's start and its end."""

import os
import pwd
import shutil
import sys
import time
from pathlib import Path

from cluster import accounting, cgroups, conf, daemons, nodes, processes, releases, settings
from cluster.errors import UsageError
from cluster.layout import Layout, check_fresh, check_reachable
from cluster.settings import Settings

PROGRAMS = {
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "munged": "munge",
    "sbatch": "slurm-client",
    "slurmdbd": "slurmdbd",
    "mariadbd": "mariadb-server",
}


def say(text: str) -> None:
    """Progress; standard output is for the one line that a shell evaluates."""
    print(f"slurm-cluster: {text}", file=sys.stderr, flush=True)


def check_machine(wanted: Settings) -> None:
    """Everything a start needs that the script cannot make."""
    own = releases.is_machines(wanted.release)
    needed = [name for name in PROGRAMS if own or name in ("munged", "mariadbd")]
    needed = [name for name in needed if wanted.accounting or name not in ("slurmdbd", "mariadbd")]
    missing = [PROGRAMS[name] for name in needed if shutil.which(name, path=daemons.PATH) is None]
    if missing:
        packages = " ".join(missing)
        raise UsageError(f"not installed: {packages}; apt-get install --no-install-recommends {packages}")
    check_users(wanted)
    if wanted.cgroups:
        cgroups.check(wanted.release or releases.of_machine())


def check_users(wanted: Settings) -> None:
    """An association for somebody whom the machine does not know is a misspelt name."""
    if wanted.users and not wanted.accounting:
        raise UsageError("--user needs --accounting")
    if wanted.limits and not wanted.accounting:
        raise UsageError("--limits needs --accounting")
    for user in wanted.users:
        try:
            pwd.getpwnam(user)
        except KeyError:
            raise UsageError(f"--user {user}: this machine has no such user") from None


def start(layout: Layout, wanted: Settings) -> None:
    """Make the folder and start every daemon; a start that fails leaves nothing behind."""
    check_machine(wanted)
    check_reachable(layout.folder)
    check_fresh(layout)
    if layout.marker.exists():
        raise UsageError(f"there is a cluster in {layout.folder} already: stop it first, or name another --folder")
    programs = releases.provide(wanted.release)
    began = time.time()
    try:
        _make(layout, wanted, programs)
        _boot(layout, wanted, began)
    except BaseException:
        stop(layout)
        raise
    say(f"{wanted.nodes} nodes serve after {time.time() - began:.1f} s")


def _make(layout: Layout, wanted: Settings, programs: Path | None) -> None:
    layout.folder.mkdir(exist_ok=True)
    layout.folder.chmod(0o755)
    parts = [layout.etc, layout.logs, layout.munge, layout.state, layout.spool, layout.devices]
    for part in [*parts, layout.folder / "scratch"]:
        part.mkdir()
        part.chmod(0o755)
    layout.state.chmod(0o700)  # every user's job scripts and environments
    settings.save(layout, wanted)
    if programs:
        layout.programs.symlink_to(programs)
    layout.conf.write_text(conf.slurm_conf(layout, wanted))
    (layout.etc / "gres.conf").write_text(conf.gres_conf(layout, wanted))
    if wanted.cgroups:
        (layout.etc / cgroups.FILE).write_text(conf.cgroup_conf(str(cgroups.ROOT), cgroups.is_v2()))
    for number in range(wanted.gpus):
        device = layout.devices / f"nvidia{number}"
        os.mknod(device, 0o020666, os.makedev(1, 3))  # the numbers of /dev/null: slurmd insists on a device file
        device.chmod(0o666)


def _boot(layout: Layout, wanted: Settings, began: float) -> None:
    say(f"starting munged, slurmctld and {wanted.nodes} slurmd in {layout.folder}")
    daemons.start_munged(layout)
    if wanted.accounting:
        say("starting MariaDB and slurmdbd")
        accounting.start(layout, wanted)
    daemons.start_controller(layout)
    for node in wanted.node_names:
        nodes.start(layout, node)
    if wanted.accounting:
        accounting.add_users(layout, wanted)
    for node in wanted.node_names:
        nodes.wait_until_serving(layout, node, began)


def stop(layout: Layout) -> None:
    """End every process of the cluster and remove its folder. Nothing happens where there is none."""
    # First, and with or without a folder: somebody may have removed it under running daemons.
    processes.kill(lambda: processes.owned(layout), "the cluster's processes")
    if not layout.marker.exists():
        return
    if settings.load(layout).cgroups:
        cgroups.remove(settings.load(layout).node_names)
    shutil.rmtree(layout.folder)


def alive(layout: Layout) -> dict[str, bool]:
    """Each daemon and whether it runs."""
    return {name: bool(daemons.find(layout, name)) for name in daemons.names(settings.load(layout))}
