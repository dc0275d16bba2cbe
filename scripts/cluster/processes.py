"""Which processes belong to a cluster, read from /proc."""

import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from cluster.layout import Layout
from cluster.polling import wait_until

# Daemons carry their name in their environment: unlike a pid file it cannot be stale.
DAEMON = "SLURM_CLUSTER_DAEMON"


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
    name, _, fields = (entry / "stat").read_text().partition("(")[2].rpartition(")")
    state, parent = fields.split()[:2]
    if state in "ZX":
        return None
    pairs = os.fsdecode((entry / "environ").read_bytes()).split("\0")
    environment = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
    return Process(int(entry.name), int(parent), name, environment)


def of_cluster(layout: Layout) -> list[Process]:
    """Every process that was started with this cluster's slurm.conf."""
    conf = str(layout.conf)
    return [one for one in everything() if one.environment.get("SLURM_CONF") == conf]


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
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass
