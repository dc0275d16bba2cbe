"""Probe runs: short runs of one experiment on different numbers of nodes, whose steps are timed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from slurmopt.errors import RunError, SlurmError, one_line
from slurmopt.estimates.past_runs import step_of
from slurmopt.run_folder.layout import RunFolder
from slurmopt.runs import cancel
from slurmopt.runs.all_runs import all_runs, created
from slurmopt.runs.status.query import Status, gather
from slurmopt.runs.status.state import ENDED

_NAME = re.compile(r"(.+)-probe-(\d{1,6})")


@dataclass(frozen=True)
class ProbeRun:
    """One of them."""

    nodes: int
    run: RunFolder
    state: str
    seconds: float | None
    """Of a step; None before it has made enough."""
    detail: str | None
    """What is odd about its state."""

    @property
    def has_ended(self) -> bool:
        return self.state in ENDED


def name_of(experiment: str, nodes: int) -> str:
    """The name of the probe run on so many nodes."""
    return f"{experiment}-probe-{nodes}"


def newest(experiment: str, folder: Path) -> dict[int, RunFolder]:
    """The newest probe run of each number of nodes. Raises RunError where there is none."""
    found: dict[int, RunFolder] = {}
    for run in sorted(all_runs(folder), key=created):
        match = _NAME.fullmatch(run.name)
        if match is not None and match[1] == experiment:
            found[int(match[2])] = run
    if not found:
        raise RunError(f"{one_line(experiment)} has no probes; valid: slurmopt plan probe +experiment=NAME --nodes 1,2")
    return dict(sorted(found.items()))


def looked_at(runs: dict[int, RunFolder], least_steps: int) -> list[ProbeRun]:
    """Each with its state and, after `least_steps`, the seconds of a step."""
    statuses, _ = gather(list(runs.values()), details=True)
    return [_probe(nodes, status, least_steps) for nodes, status in zip(runs, statuses, strict=True)]


def _probe(nodes: int, status: Status, least_steps: int) -> ProbeRun:
    return ProbeRun(nodes, status.folder, status.state, step_of(status.folder, least_steps), status.detail)


def end(probe: ProbeRun) -> None:
    """Cancels it; one that has ended by itself meanwhile is left alone. Raises SlurmError."""
    try:
        cancel.cancel(probe.run)
    except RunError:
        (status,), problem = gather([probe.run], fresh=True)
        if status.state not in ENDED:
            raise SlurmError(f"{status.label} cannot be cancelled: {problem or status.state}") from None
