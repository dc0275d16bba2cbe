"""Reads the series of an attempt: which attempt, which nodes, which columns, from when on."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from slurmopt.errors import RunError, StorageError, one_line
from slurmopt.grid.point_ranges import Ranges
from slurmopt.grid.records import Records
from slurmopt.run_folder.archive import Archived
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.series import series
from slurmopt.run_folder.series.series import Series
from slurmopt.runs.find import Selection, find, select, started_point

_GPU = re.compile(r"gpu(\d{1,9})\.")


@dataclass
class AttemptSeries:
    """The series of the nodes of one attempt. They are read one after the other: all rows of a large job would not fit
    into memory."""

    run: RunFolder
    attempt: int
    names: list[str]
    """Of the nodes."""
    gpu: int | None = None
    """Only the columns of this GPU."""
    since: float | None = None
    """Only rows that ended after that time, in seconds since the epoch."""
    problems: list[str] = field(default_factory=list)
    """A line for each node whose series cannot be read."""

    def nodes(self, detail: bool) -> Iterator[Series]:
        """Each node; `detail`: with all rows that there are, not only the merged ones of the past. Raises the error of
        the first node if none can be read."""
        self.problems, read = [], 0
        for name in self.names:
            files = self.run.series(self.attempt, name), self.run.recent_series(self.attempt, name)
            try:
                one = series.read(*files, detail=detail, since=self.since, wanted=_wanted(self.gpu))
            except (OSError, StorageError) as error:
                self.problems.append(one_line(f"{name}: {error}"))
                continue
            if one is not None:
                read += 1
                yield replace(one, absent=_only(one.absent, self.gpu))
        if self.problems and not read:
            raise StorageError(self.problems[0])

    def columns(self) -> dict[str, list[str]]:
        """The columns of all nodes, with the reasons of those nodes that have no values of it."""
        found: dict[str, list[str]] = {}
        for name in self.names:
            files = self.run.series(self.attempt, name), self.run.recent_series(self.attempt, name)
            with contextlib.suppress(OSError, StorageError):  # `nodes` tells of it
                measured, absent = series.columns(*files)
                for column in filter(_wanted(self.gpu), (*measured, *absent)):
                    whys = found.setdefault(column, [])
                    if column in absent and absent[column] not in whys:
                        whys.append(absent[column])
        return found


def load(
    run: RunFolder,
    attempt: int | None = None,
    node: str | None = None,
    gpu: int | None = None,
    since: float | None = None,
) -> AttemptSeries:
    """The series of an attempt; of the latest that has some where `attempt` is None. `since`: only rows of so many
    seconds before the newest one. Raises RunError that says what would be valid."""
    attempt = _attempt(run, attempt)
    names = run.nodes_with_series(attempt)
    if node is not None and node not in names:
        raise RunError(f"attempt {attempt} has no series of {one_line(node)}; valid: {_few(names)}")
    found = AttemptSeries(run, attempt, names if node is None else [node], gpu)
    if since is not None:
        found.since = _newest(found) - since
    if gpu is not None and not found.columns():
        _refuse_gpu(found, gpu)
    return found


def _newest(found: AttemptSeries) -> float:
    """When the newest row of all nodes ended."""
    ends = []
    for name in found.names:
        with contextlib.suppress(OSError):  # `nodes` tells of it
            ends.append(
                series.newest(found.run.series(found.attempt, name), found.run.recent_series(found.attempt, name))
            )
    return max((end for end in ends if end is not None), default=0.0)


def find_measured(name: str | None, folder: Path) -> RunFolder:
    """The run that `name` names; of a packed point its array task. Raises RunError as `find` does."""
    selected = select(name, folder)
    if isinstance(selected, RunFolder) or selected.point is None:
        return find(name, folder)
    return of_point(selected)


def of_point(selected: Selection) -> RunFolder:
    """The run with the series of a point: its array task, where that ran several, for one sampler measures them all."""
    assert selected.point is not None
    records = Records(selected.sweep).latest(selected.point)
    if isinstance(records, Archived):
        return records.archive.task
    run = started_point(selected)
    return run if run.records is None else RunFolder(run.records.parents[1])


def _attempts(run: RunFolder) -> list[int]:
    return [number for number in run.attempts() if run.nodes_with_series(number)]


def _attempt(run: RunFolder, attempt: int | None) -> int:
    attempts = _attempts(run)
    if not attempts:
        why = "the sampler is off (monitor.sampler=false), or the run has not begun or is of an earlier version"
        raise RunError(f"{one_line(f'{run.name}/{run.id}')} has no series: {why}")
    if attempt is None:
        return attempts[-1]
    if attempt not in attempts:
        raise RunError(f"attempt {attempt} has no series; valid: {Ranges.of(attempts)}")
    return attempt


def _few(names: list[str]) -> str:
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return one_line(", ".join(names[:8]) + more)


def _wanted(gpu: int | None) -> Callable[[str], bool] | None:
    if gpu is None:
        return None
    start = f"gpu{gpu}."
    return lambda column: column.startswith(start)


def _only(absent: dict[str, str], gpu: int | None) -> dict[str, str]:
    wanted = _wanted(gpu)
    return absent if wanted is None else {column: why for column, why in absent.items() if wanted(column)}


def _refuse_gpu(found: AttemptSeries, gpu: int) -> None:
    known = sorted({int(match[1]) for column in replace(found, gpu=None).columns() if (match := _GPU.match(column))})
    valid = f"valid: {Ranges.of(known)}" if known else "nothing was measured of any GPU there"
    raise RunError(f"attempt {found.attempt} has no values of GPU {gpu}; {valid}")
