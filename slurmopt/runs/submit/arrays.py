"""Array jobs of a sweep: which points each got, and the next one, submitted exactly once.

The sweep's journal is the truth: `submitting` tells the points before Slurm is asked, `submitted` the job. `sweep.json`
says the same for those who look.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from slurmopt.grid import submissions
from slurmopt.grid.point_ranges import Ranges
from slurmopt.grid.submissions import Submission
from slurmopt.run_folder import events
from slurmopt.run_folder.sweep_layout import SweepFolder
from slurmopt.runs.journal import point_count
from slurmopt.runs.ownership import refuse_foreign
from slurmopt.runs.submit.exactly_once import journaled
from slurmopt.slurm.cluster.facts import in_cluster
from slurmopt.slurm.submit import look_up, sbatch_once, sought
from slurmopt.units import seconds

if TYPE_CHECKING:
    from slurmopt.config.schema import Settings


@dataclass(frozen=True)
class Batch:
    """The points of one array job, and how its tasks share them."""

    points: Ranges
    per_task: int
    packed: bool
    tasks: int | None = None
    """Of a search: how many workers share all points."""
    options: tuple[str, ...] = ()
    """sbatch's options beside, such as what it waits for."""
    among: Ranges | None = None
    """As in `Submission`."""
    part: str | None = None
    """Of a point or an array task that is brought back: the token that its own journal has for that."""

    @property
    def size(self) -> int:
        """How many array tasks it needs."""
        return self.tasks if self.tasks is not None else -(-len(self.points) // self.per_task)


def known(sweep: SweepFolder) -> list[Submission]:
    """The sweep's submissions as its journal tells of them, oldest first; the last may have no job yet."""
    found: dict[str, Submission] = {}
    for event in events.read(sweep.events, "submitting", "submitted", "submit-failed"):
        token = str(event.get("token"))
        if event["event"] == "submitting" and "points" in event:
            with contextlib.suppress(KeyError, TypeError, ValueError):  # a line that a foreign hand has written
                found.setdefault(token, _submission(event, token))
        elif event["event"] == "submitted" and token in found:
            found[token] = replace(found[token], job=str(event.get("job")))
        elif event["event"] == "submit-failed":
            found.pop(token, None)
    return list(found.values())


def _submission(event: dict[str, Any], token: str) -> Submission:
    return Submission(
        number=int(event["number"]),
        points=Ranges.parse(str(event["points"])),
        per_task=int(event["per_task"]),
        packed=bool(event["packed"]),
        tasks=event.get("tasks"),
        among=Ranges.parse(str(event["among"])) if "among" in event else None,
        job=None,
        token=token,
    )


def of_part(sweep: SweepFolder, token: str) -> Submission | None:
    """The submission that was made for a part of the sweep, whose own journal has `token` for it."""
    tried = events.read(sweep.events, "submitting")
    mine = {event.get("token") for event in tried if event.get("part") == token}
    return next((one for one in reversed(known(sweep)) if one.token in mine), None)


def submitted(sweep: SweepFolder) -> Ranges:
    """The points that some array job has or had."""
    return Ranges(span for one in known(sweep) if one.job is not None for span in one.points.spans)


def numbered_as_before(sweep: SweepFolder, points: Ranges) -> list[tuple[Ranges, Ranges | None]]:
    """`points` in parts, each with the points that the array tasks of its first array job were numbered by: scripts
    may go by SLURM_ARRAY_TASK_ID. None where several points shared an array task, or none had one."""
    found: list[tuple[Ranges, Ranges | None]] = []
    for one in known(sweep):
        mine = points.both(one.points)
        if mine and not one.packed and one.per_task == 1:
            found.append((mine, one.numbered))
            points = points.minus(mine)
    return [*found, (points, None)] if points else found


def settle(sweep: SweepFolder, settings: Settings, count: int) -> None:
    """Brings a submission whose answer was lost to its end: the same points, not twice. With the sweep's lock held."""
    for one in known(sweep):
        if one.job is None:
            options = _options(sweep, one.token)
            batch = Batch(one.points, one.per_task, one.packed, one.tasks, options, one.among)
            submit_array(sweep, settings, batch, count)
    _tell(sweep, count)


def note_found(sweep: SweepFolder, settings: Settings) -> list[Submission]:
    """Notes the jobs of submissions whose answer was lost, where Slurm has them; these. Submits nothing. With the
    sweep's lock held. Raises what keeps Slurm from answering."""
    found = []
    for one in known(sweep):
        if one.job is not None or one.token is None:
            continue
        wanted = sought(sweep.script, one.token, _words(one))
        job = look_up(wanted, time.monotonic() + seconds(settings.launch.submit_timeout))
        if job is not None:
            found.append(replace(one, job=job))
    note(sweep, found)
    return found


def drop_lost(sweep: SweepFolder) -> None:
    """Notes that Slurm has nothing of the submissions whose jobs `note_found` did not find, so that nobody brings them
    to their end. With the sweep's lock held."""
    for one in known(sweep):
        if one.job is None:
            events.append(
                sweep.events, "submit-failed", backend="sbatch", token=one.token, reason="Slurm has no such job"
            )


def note(sweep: SweepFolder, found: list[Submission]) -> None:
    """Notes the jobs of submissions that the journal does not know yet."""
    unknown = {one.token for one in known(sweep) if one.job is None}
    for one in found:
        if one.job is not None and one.token in unknown:
            events.append(sweep.events, "submitted", backend="sbatch", token=one.token, job=one.job, **in_cluster())
    _tell(sweep, point_count(sweep))


def is_told(sweep: SweepFolder) -> bool:
    """Whether the journal knows the job of each submission, and sweep.json says the same."""
    there = known(sweep)
    return all(one.job is not None for one in there) and submissions.read(sweep.sweep_file) == there


def _tell(sweep: SweepFolder, count: int) -> None:
    """Brings sweep.json up to the journal, also where a launch was killed between the two."""
    made = [one for one in known(sweep) if one.job is not None]
    if made and submissions.read(sweep.sweep_file) != made:
        submissions.write(sweep.sweep_file, count, made)


def _words(one: Submission) -> list[str]:
    """The script's arguments: see array.sh.j2."""
    return [str(one.number), str(one.numbered), str(one.per_task)]


def _options(sweep: SweepFolder, token: str | None) -> tuple[str, ...]:
    tried = events.read(sweep.events, "submitting")
    return next((tuple(map(str, event.get("options", ()))) for event in tried if event.get("token") == token), ())


def submit_array(sweep: SweepFolder, settings: Settings, batch: Batch, count: int) -> Submission:
    """Submits one more array job of a sweep of `count` points. To be called with the sweep's lock held.

    An unsettled submission must have been settled before. Raises what `slurmopt.slurm.submit.sbatch_once` does.
    """
    refuse_foreign(sweep)
    before = [one for one in known(sweep) if one.job is not None]
    number = max((one.number for one in before), default=-1) + 1
    made = Submission(
        number=number,
        points=batch.points,
        per_task=batch.per_task,
        packed=batch.packed,
        tasks=batch.tasks,
        among=batch.among,
        job=None,
    )
    at_once = f"%{settings.sweep.at_once}" if settings.sweep.at_once else ""
    options = [f"--array={made.array}{at_once}", *batch.options]
    timeout = seconds(settings.launch.submit_timeout)
    comment = settings.resources.comment
    told = {"number": number, "points": str(batch.points), "per_task": batch.per_task, "packed": batch.packed}
    told |= {} if batch.among is None else {"among": str(batch.among)}
    told |= {} if batch.part is None else {"part": batch.part}
    with journaled(sweep.run, "sbatch", **told, tasks=batch.tasks, options=list(batch.options)) as submitting:
        token, retry = submitting.token, submitting.retry
        submitting.job = sbatch_once(sweep.script, comment, token, timeout, retry, options, _words(made))
        submitting.details = in_cluster()
    _tell(sweep, count)
    return replace(made, job=submitting.job)
