"""How often attempts of the user's runs failed without notice, how long the restart took, and what a save blocked."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median

from slurmopt.errors import InputError, SlurmoptError
from slurmopt.estimates.past_runs import own_runs
from slurmopt.planning.cost import Failures
from slurmopt.restart.causes import HANG, INFRASTRUCTURE, KILLED, NODE_FAILURE
from slurmopt.run_folder import events
from slurmopt.run_folder.attempts import Attempt, attempts
from slurmopt.run_folder.heartbeat import read
from slurmopt.run_folder.json_values import as_int, number, text
from slurmopt.run_folder.layout import RunFolder
from slurmopt.slurm import hostlist

WITHOUT_NOTICE = frozenset({NODE_FAILURE, INFRASTRUCTURE, KILLED, HANG})
"""Causes that come without a signal in time to save."""
LEAST = 3
"""Fewer failures tell too little of a rate."""
_MOST_READ_WHOLE = 20
"""Runs whose events on checkpoints are read, of which a long run has a million."""
_LONGEST = 366 * 86400.0
"""Seconds of an attempt; a journal that tells of more is wrong."""
_BLOCKED = 10.0
"""Seconds that a save blocks where no run of the user has saved."""


@dataclass(frozen=True, kw_only=True)
class History:
    """What the user's runs tell of failures."""

    failures: int
    node_hours: float
    restarts: tuple[float, ...]
    """Seconds from a failure to the first new step, the queue included."""
    blocked: float | None
    """Median seconds that a save blocked; None where none was measured."""

    @property
    def mtbf_of_node(self) -> float | None:
        """The mean seconds between failures of a node; None for fewer failures than tell a rate."""
        return None if self.failures < LEAST else self.node_hours * 3600 / self.failures

    @property
    def rate(self) -> Failures | None:
        """What they come to; None for fewer failures than tell a rate."""
        if self.mtbf_of_node is None or not self.restarts:
            return None
        return Failures(
            mtbf_of_node=self.mtbf_of_node,
            restart=median(self.restarts),
            blocked=_BLOCKED if self.blocked is None else self.blocked,
        )


def history(folder: Path) -> History:
    """That of the runs in `folder`. What cannot be read is left out."""
    try:
        newest = own_runs(folder)
    except InputError:
        newest = []
    failures, hours, restarts, blocked = 0, 0.0, list[float](), list[float]()
    for number_of_run, run in enumerate(newest):
        try:
            found = attempts(run)
            saved = _blocked(run, found) if number_of_run < _MOST_READ_WHOLE else []
        except (OSError, SlurmoptError):
            continue
        times = [_node_hours(run, attempt) for attempt in found]
        failures += sum(
            attempt.cause in WITHOUT_NOTICE and took > 0 for attempt, took in zip(found, times, strict=True)
        )
        hours += sum(times)
        restarts += _restarts(run, found)
        blocked += saved
    return History(
        failures=failures, node_hours=hours, restarts=tuple(restarts), blocked=median(blocked) if blocked else None
    )


def _node_hours(run: RunFolder, attempt: Attempt) -> float:
    ended = _ended(run, attempt)
    if attempt.started is None or ended is None:
        return 0.0
    took = ended - attempt.started
    return _count(attempt) * took / 3600 if 0 < took < _LONGEST else 0.0


def _ended(run: RunFolder, attempt: Attempt) -> float | None:
    """An attempt whose node died does not say when: then the last sign of life counts."""
    if attempt.ended is not None:
        return attempt.ended
    beat = read(run.heartbeat(attempt.number, 0))
    return None if beat is None else number(beat.time)


def _count(attempt: Attempt) -> int:
    try:
        return max(1, len(hostlist.expand(attempt.nodes or "")))
    except ValueError:
        return 1


def _restarts(run: RunFolder, found: list[Attempt]) -> Iterable[float]:
    for failed, following in pairwise(found):
        beat = read(run.heartbeat(following.number, 0))
        stepped = None if beat is None else number(beat.first_step_time)
        ended = _ended(run, failed)
        if failed.cause in WITHOUT_NOTICE and ended is not None and stepped is not None:
            yield max(0.0, stepped - ended)


def _blocked(run: RunFolder, found: list[Attempt]) -> list[float]:
    """Of each attempt that saved, the mean."""
    means = []
    saves: dict[int | None, set[int | None]] = {}
    for event in events.read(run.events, "checkpoint"):
        if text(event.get("event")) == "checkpoint":
            saves.setdefault(as_int(event.get("attempt")), set()).add(as_int(event.get("step")))
    for attempt in found:
        beat = read(run.heartbeat(attempt.number, 0))
        spent = number(beat.spent.get("checkpoint")) if beat is not None and isinstance(beat.spent, dict) else None
        if spent is not None and (steps := saves.get(attempt.number)):
            means.append(spent / len(steps))
    return means
