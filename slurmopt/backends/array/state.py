"""`runner.json` of a sweep on this machine: its runner, and what it has done with each array task."""

from __future__ import annotations

import os
import socket
from dataclasses import asdict, dataclass, field
from typing import Any

from slurmopt.grid.point_ranges import Ranges
from slurmopt.run_folder.access.files import read_json, replace_json
from slurmopt.run_folder.access.open_folders import held
from slurmopt.run_folder.json_values import as_int, number
from slurmopt.run_folder.process import lives, machine, started_at
from slurmopt.run_folder.sweep_layout import SweepFolder


@dataclass(frozen=True)
class Process:
    """The shell of a running array task, and the share of the machine that it has."""

    pid: int
    pid_started: int | None
    started: float
    """Seconds since the epoch."""
    cpus: tuple[int, ...] = ()
    gpus: tuple[str, ...] = ()
    memory: tuple[int, ...] = ()


@dataclass
class ArrayJob:
    """The array tasks of one submission. Those that are in none of these wait for their start."""

    ended: Ranges = field(default_factory=Ranges)
    failed: dict[int, int] = field(default_factory=dict)
    """The exit status of those among `ended` whose script failed."""
    running: dict[int, Process] = field(default_factory=dict)
    again: dict[int, float] = field(default_factory=dict)
    """Those that are to be started again: not before this time."""


@dataclass
class State:
    """All that the file has."""

    pid: int | None = None
    """The runner's process; None where it has ended its work."""
    pid_started: int | None = None
    host: str = ""
    machine: str = ""
    jobs: dict[str, ArrayJob] = field(default_factory=dict)

    def of_this_process(self) -> State:
        """The same, with this process as the runner."""
        pid = os.getpid()
        return State(pid, started_at(pid), socket.gethostname(), machine(), self.jobs)

    @property
    def runner_lives(self) -> bool | None:
        """None if that cannot be told from here."""
        if self.pid is None:  # it has ended its work, or there was none yet
            return False
        return self.lives(self.pid, self.pid_started)

    def lives(self, pid: int, started: int | None) -> bool | None:
        """Whether a process of the runner's machine is alive; None if that cannot be told from here."""
        alive = lives(pid, started, self.machine, self.host)
        if alive is None and self.host == socket.gethostname() and not self.host.startswith("localhost"):
            return False  # a container of the same name, started anew
        return alive


def is_local(sweep: SweepFolder) -> bool:
    """Whether the sweep runs on one machine without Slurm."""
    return held(sweep.runner).exists()


def read(sweep: SweepFolder) -> State:
    """The file's content; an empty state where it is missing or damaged."""
    value = read_json(held(sweep.runner)) or {}
    try:
        jobs = {str(job): _array_job(told) for job, told in dict(value.get("jobs") or {}).items()}
    except (TypeError, ValueError, KeyError, AttributeError):
        jobs = {}
    host, told_machine = value.get("host"), value.get("machine")
    return State(as_int(value.get("pid")), as_int(value.get("pid_started")), str(host or ""), str(told_machine), jobs)


def _array_job(value: dict[str, Any]) -> ArrayJob:
    running = {
        int(task): Process(
            int(told["pid"]),
            as_int(told.get("pid_started")),
            number(told.get("started")) or 0.0,
            *(tuple(told.get(name) or ()) for name in ("cpus", "gpus", "memory")),
        )
        for task, told in value["running"].items()
    }
    failed = {int(task): int(status) for task, status in value["failed"].items()}
    again = {int(task): float(at) for task, at in value["again"].items()}
    return ArrayJob(Ranges.parse(value["ended"]), failed, running, again)


def write(sweep: SweepFolder, state: State) -> None:
    """Replaces the file."""
    jobs = {job: {**asdict(told), "ended": str(told.ended)} for job, told in state.jobs.items()}
    runner = {"pid": state.pid, "pid_started": state.pid_started, "host": state.host, "machine": state.machine}
    replace_json(sweep.runner, {**runner, "jobs": jobs})
