"""`slurmopt cancel`: stopping runs, sweeps and points, and making sure that they have stopped.

`--json` prints one object. Of a run: see `slurmopt.runs.cancel`. Of a sweep or points of one: `name`, `id`, `folder`,
`points` (those that were told, "3-9"), `jobs` (array jobs and tasks as scancel got them), `states` (how the points are
now: state -> how many) and `gone` (a bool).

A point that has not started never starts: the sweep's file `cancelled` names it, which array tasks look at before they
start one. The parent of points that share an array task looks there too, every few seconds, and ends the point alone.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator

from slurmopt.errors import RunError, SlurmError, SlurmRefused
from slurmopt.grid.point_ranges import Ranges
from slurmopt.grid.records import Records
from slurmopt.grid.submissions import Submission
from slurmopt.run_folder import events
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.sweep_layout import SweepFolder
from slurmopt.runs import cancel as of_runs
from slurmopt.runs.cancel import parser
from slurmopt.runs.find import Selection, pick
from slurmopt.runs.ownership import refuse_others
from slurmopt.runs.status.state import ALIVE
from slurmopt.runs.submit import arrays
from slurmopt.sweeps.status.point_states import SweepStates
from slurmopt.sweeps.status.query import standing
from slurmopt.sweeps.status.view import short, states
from slurmopt.sweeps.submit import backlog
from slurmopt.sweeps.submit.cancelled_points import change

__all__ = ["main", "parser"]

_PATIENCE = 10.0
_POLL = 0.3
_SCANCEL_TIMEOUT = 60.0
_SPANS = 2000
"""Ranges in one word of scancel: the kernel takes 128 KiB a word."""
_MAY_GO_ON = (*ALIVE, "unknown", "unsubmitted")


def main(argv: list[str]) -> int:
    """The command; returns the exit status."""
    given = parser().parse_args(argv)
    found = pick(given.run, given.folder)
    if isinstance(found, RunFolder):
        return of_runs.cancel(found, given.json)
    _refuse_others(found.sweep)
    seen = standing(found.sweep, fresh=True)
    going = _going(seen, found)
    jobs = cancel(seen, going)
    _go_on(found)
    now = _wait(seen.sweep, going)
    print(json.dumps(_as_dict(now, going, jobs)) if given.json else _said(now, going))
    return 0


def _refuse_others(sweep: SweepFolder) -> None:
    """RunError for another user's sweep, whose folder alone keeps points that wait from being started; with what those
    can do whom Slurm lets end its jobs."""
    try:
        refuse_others(sweep.run)
    except RunError as error:
        jobs = sorted({one.job for one in arrays.known(sweep) if one.job is not None and one.job.isdecimal()}, key=int)
        if not jobs:
            raise
        raise RunError(f"{error}; as a coordinator: scancel {' '.join(jobs)}") from error


def _go_on(found: Selection) -> None:
    """A sweep that is cancelled as a whole has nothing that follows; of another the tasks may be gone that would have
    submitted what waits."""
    if found.points is None:
        found.sweep.more.unlink(missing_ok=True)
    elif found.sweep.more.exists():
        backlog.main([str(found.sweep.path)])


def _going(seen: SweepStates, found: Selection) -> Ranges:
    """The chosen points that have not ended."""
    if seen.problem and any(one.job is None for one in seen.submissions):
        raise SlurmError(f"{found.label}: nobody can tell whether Slurm has its latest array job: {seen.problem}")
    going = seen.numbers(*_MAY_GO_ON).union(_left_behind(seen))
    going = going if found.points is None else going.both(found.points)
    if not going:
        if set(seen.counts(found.points)) == {"cancelled"}:
            _go_on(found)  # a cancel that was killed may not have come so far
        one = found.point is not None or found.points is None
        raise RunError(f"{found.label} {'has' if one else 'have'} ended already: {states(seen.counts(found.points))}")
    return going


def _left_behind(seen: SweepStates) -> Ranges:
    """Cancelled points whose array tasks wait in Slurm although none of their points goes on."""
    running, found = seen.numbers(*_MAY_GO_ON), Ranges()
    for one in seen.submissions:
        mine = one.points.both(seen.withdrawn)
        if one.job is None or not mine:
            continue
        if one.tasks is not None:  # a search's, which share all points
            found = found if one.points.both(running) else found.union(mine)
        else:
            tasks = _whole_tasks(one, mine, running)
            found = found.union(mine.both(Ranges(span for task in tasks for span in one.points_of(task).spans)))
    return found


def cancel(seen: SweepStates, points: Ranges) -> list[str]:
    """Tells these points to end, and not to start; the words that scancel got. Where it does not reach Slurm, the
    journals take it back."""
    sweep = seen.sweep
    # First, so that a job that ends at once is known to have been cancelled.
    _note(sweep, "cancel", points, lambda before: before.union(points))
    seen = standing(sweep, fresh=True)  # an array job may have been submitted since
    arrays.note(sweep, seen.submissions)  # one whose answer was lost has been cancelled: no retry is to count it
    told = _tell(seen, points)
    try:
        words = list(_words(seen, points))
        _scancel(words)
    except BaseException:
        _note(sweep, "cancel-failed", points, lambda before: before.minus(points))
        for run in told:
            with contextlib.suppress(OSError):
                events.append(run.events, "cancel-failed")
        raise
    return words


def _note(sweep: SweepFolder, word: str, points: Ranges, how: Callable[[Ranges], Ranges]) -> None:
    change(sweep, how)
    events.append(sweep.events, word, points=str(points))


def _tell(seen: SweepStates, points: Ranges) -> list[RunFolder]:
    """Notes it in the journals of the points that have started."""
    told, records = [], Records(seen.sweep)
    for point in seen.known(points):
        # One that has ended and been archived at this moment, a file that cannot be read: the sweep's journal has it.
        with contextlib.suppress(OSError):
            run = records.running(point.number)
            if run is not None:
                events.append(run.events, "cancel", job=point.job)
                told.append(run)
    return told


def _words(seen: SweepStates, points: Ranges) -> Iterator[str]:
    """What scancel is to end: whole array jobs, or array tasks whose points all end."""
    left, running = points, seen.numbers(*_MAY_GO_ON)
    for one in reversed(seen.submissions):
        mine = one.points.both(left)
        left = left.minus(mine)
        if one.job is None or not mine:
            continue
        if not one.points.both(running).minus(mine):
            yield one.job
        elif one.tasks is None:
            yield from _of_tasks(one, _whole_tasks(one, mine, running))


def _whole_tasks(one: Submission, points: Ranges, running: Ranges) -> Ranges:
    """The array tasks none of whose points go on but `points`."""
    return one.tasks_of(points).minus(one.tasks_of(one.points.both(running).minus(points)))


def _of_tasks(one: Submission, tasks: Ranges) -> Iterator[str]:
    for start in range(0, len(tasks.spans), _SPANS):
        yield f"{one.job}_[{Ranges(tasks.spans[start : start + _SPANS])}]"


def _scancel(words: list[str]) -> None:
    from slurmopt.slurm import client

    for word in words:
        try:
            client.run(["scancel", word], _SCANCEL_TIMEOUT)
        except SlurmRefused as error:
            if "already" not in str(error) and "Invalid job id" not in str(error):  # it may have ended a moment ago
                raise


def _wait(sweep: SweepFolder, points: Ranges) -> SweepStates:
    """The sweep once the points are gone, or as it is when patience ends."""
    deadline, pause = time.monotonic() + _PATIENCE, _POLL
    while True:
        now = standing(sweep, fresh=True)
        if not _alive(now, points) or time.monotonic() >= deadline:
            return now
        time.sleep(pause)
        pause *= 2


def _alive(now: SweepStates, points: Ranges) -> int:
    counts = now.counts(points)
    return sum(counts.get(word, 0) for word in (*ALIVE, "unknown"))


def _said(now: SweepStates, points: Ranges) -> str:
    counts = now.counts(points)
    label = now.label if len(points) == now.count else f"{now.label}/{short(points)}"
    if alive := _alive(now, points):
        return (
            f"{label}: {alive:,} of {len(points):,} told to stop have not ended yet: {states(counts)}; what runs has "
            f"half a minute; to see it end: slurmopt status {now.label} --watch"
        )
    if set(counts) == {"cancelled"}:
        what, them = ("the point is", "it") if len(points) == 1 else (f"{len(points):,} points are", "them")
        word = now.label if "…" in label else label
        return f"{label}: {what} cancelled; slurmopt retry {word} goes on with {them}"
    return f"{label}: {states(counts)}"


def _as_dict(now: SweepStates, points: Ranges, jobs: list[str]) -> dict[str, object]:
    return {
        "name": now.sweep.name,
        "id": now.sweep.id,
        "folder": str(now.sweep.path),
        "points": str(points),
        "jobs": jobs,
        "states": now.counts(points),
        "gone": not _alive(now, points),
    }
