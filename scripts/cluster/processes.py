"""Which processes belong to a cluster, read from /proc."""

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from cluster.layout import Layout
from cluster.polling import wait_until

# Daemons carry their name in their environment: unlike a pid file it cannot be stale. A job's processes do not.
DAEMON = "SLURM_CLUSTER_DAEMON"
STEP_DAEMON = "slurmstepd"
CLIENTS = frozenset({"srun", "salloc", "sbatch", "squeue", "sacct", "scontrol", "sinfo", "scancel", "sstat"})


@dataclass(frozen=True)
class Process:
    """One live process."""

    pid: int
    parent: int
    name: str
    environment: dict[str, str]

    @property
    def daemon(self) -> str:
        """The daemon's name if it is one that a cluster started, or nothing."""
        return self.environment.get(DAEMON, "")

    @property
    def node(self) -> str:
        """The node that a job's process believes to run on, or nothing."""
        return self.environment.get("SLURMD_NODENAME", "")


def everything() -> Iterator[Process]:
    """All processes that are alive now; those that end meanwhile are left out."""
    for entry in os.scandir("/proc"):
        if entry.name.isdecimal():
            try:
                process = _read(Path(entry.path))
            except OSError:
                continue
            if process:
                yield process


def _read(entry: Path) -> Process | None:
    name, _, fields = (entry / "stat").read_text(errors="replace").partition("(")[2].rpartition(")")
    state, parent = fields.split()[:2]
    if state in "ZX":
        return None
    pairs = os.fsdecode((entry / "environ").read_bytes()).split("\0")
    environment = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
    if name == STEP_DAEMON:
        environment |= _of_step_daemon(entry)
    return Process(int(entry.name), int(parent), name, environment)


def _of_step_daemon(entry: Path) -> dict[str, str]:
    """What its slurmd's environment says. slurmstepd writes its title over its own, but it has its node's log open."""
    for link in (entry / "fd").iterdir():
        target = Path(os.readlink(link))
        layout = Layout(target.parents[1]) if len(target.parents) > 1 else None
        if layout and target == layout.logs / f"{target.stem}.log":
            return {"SLURM_CONF": str(layout.conf), DAEMON: target.stem}
    return {}


def of_cluster(layout: Layout) -> list[Process]:
    """Every process that was started with this cluster's slurm.conf; a user's shell may be one of them."""
    return [one for one in everything() if _names(layout, one)]


def owned(layout: Layout) -> list[int]:
    """What ends with the cluster: daemons, jobs with all that they started, and commands that wait for it."""
    return _with_descendants(lambda one: _names(layout, one) and bool(one.daemon or one.node or one.name in CLIENTS))


def on_node(layout: Layout, node: str) -> list[int]:
    """What ends with a node: its slurmd, and the jobs there with all that they started."""
    return _with_descendants(lambda one: _names(layout, one) and node in (one.daemon, one.node))


def _names(layout: Layout, process: Process) -> bool:
    return process.environment.get("SLURM_CONF") == str(layout.conf)


def _with_descendants(wanted: Callable[[Process], bool]) -> list[int]:
    """A job's process may have cleared its environment, but not its parent."""
    alive = list(everything())
    found = {one.pid for one in alive if wanted(one)}
    # Never itself: the command may have been called from within a job of the cluster.
    spared = _ancestors(os.getpid(), {one.pid: one.parent for one in alive})
    size = -1
    while size != len(found):
        size = len(found)
        found |= {one.pid for one in alive if one.parent in found and one.pid not in spared}
    return sorted(found - spared)


def _ancestors(pid: int, parents: dict[int, int]) -> set[int]:
    chain = [pid]
    while chain[-1] in parents:
        chain.append(parents[chain[-1]])
    return set(chain)


def kill(find: Callable[[], list[int]], what: str) -> None:
    """Kill until no more are found, for a process may fork while it is being killed."""

    def none_left() -> bool:
        pids = find()
        for pid in pids:
            send(pid, signal.SIGKILL)
        return not pids

    wait_until(none_left, 10, f"end {what}")


def send(pid: int, number: signal.Signals) -> None:
    """Signal a process that may be gone already."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
