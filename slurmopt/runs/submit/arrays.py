"""Array jobs of a sweep: which points each got, and the next one, submitted exactly once.

The sweep's journal is the truth: `submitting` tells the points before Slurm is asked, `submitted` the job. `sweep.json`
says the same for those who look.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from slurmopt.backends.array import start
from slurmopt.backends.array.state import is_local
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
    """The points of one array job, and how its tasks divide them."""

    points: Ranges
    per_task: int
    packed: bool
    tasks: int | None = None
    """For a search: the number of workers that share all points."""
    options: tuple[str, ...] = ()
    """Further options of sbatch, such as dependencies."""
    among: Ranges | None = None
    """As in `Submission`."""
    part: str | None = None
    """For a point or an array task that is brought back: the token in its own journal."""

    @property
    def size(self) -> int:
        """The number of array tasks."""
        return self.tasks if self.tasks is not None else -(-len(self.points) // self.per_task)


def known(sweep: SweepFolder) -> list[Submission]:
    """The submissions in the sweep's journal, oldest first. The last may have no job yet."""
    submissions_by_token: dict[str, Submission] = {}
    for event in events.read(sweep.events, "submitting", "submitted", "submit-failed"):
        token = str(event.get("token"))
        if event["event"] == "submitting" and "points" in event:
            with contextlib.suppress(KeyError, TypeError, ValueError):  # a line that a foreign hand has written
                submissions_by_token.setdefault(token, _submission(event, token))
        elif event["event"] == "submitted" and token in submissions_by_token:
            submissions_by_token[token] = replace(submissions_by_token[token], job=str(event.get("job")))
        elif event["event"] == "submit-failed":
            submissions_by_token.pop(token, None)
    return list(submissions_by_token.values())


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
    """The submission for a part of the sweep whose own journal has `token`."""
    submitting = events.read(sweep.events, "submitting")
    tokens = {event.get("token") for event in submitting if event.get("part") == token}
    return next((entry for entry in reversed(known(sweep)) if entry.token in tokens), None)


def submitted(sweep: SweepFolder) -> Ranges:
    """The points that are or were in an array job."""
    return Ranges(span for entry in known(sweep) if entry.job is not None for span in entry.points.spans)


def numbered_as_before(sweep: SweepFolder, points: Ranges) -> list[tuple[Ranges, Ranges | None]]:
    """`points` in parts, each with the points that the array tasks of its first array job were numbered by: scripts
    may go by SLURM_ARRAY_TASK_ID. None where several points shared an array task, or none had one."""
    parts: list[tuple[Ranges, Ranges | None]] = []
    for entry in known(sweep):
        common = points.intersection(entry.points)
        if common and not entry.packed and entry.per_task == 1:
            parts.append((common, entry.numbered))
            points = points.difference(common)
    return [*parts, (points, None)] if points else parts


def settle(sweep: SweepFolder, settings: Settings, count: int) -> None:
    """Completes a submission whose answer was lost: the same points, and not twice. Call with the sweep's lock held."""
    for entry in known(sweep):
        if entry.job is None:
            options = _options(sweep, entry.token)
            batch = Batch(entry.points, entry.per_task, entry.packed, entry.tasks, options, entry.among)
            submit_array(sweep, settings, batch, count)
    _update_sweep_file(sweep, count)


def note_lost_jobs(sweep: SweepFolder, settings: Settings) -> list[Submission]:
    """Notes the jobs of submissions whose answer was lost, where Slurm has them; these. Submits nothing. With the
    sweep's lock held. Raises what keeps Slurm from answering."""
    with_jobs = []
    for entry in known(sweep):
        if entry.job is not None or entry.token is None or is_local(sweep):  # no runner takes it before it is noted
            continue
        query = sought(sweep.script, entry.token, _script_args(entry))
        job = look_up(query, time.monotonic() + seconds(settings.launch.submit_timeout))
        if job is not None:
            with_jobs.append(replace(entry, job=job))
    note(sweep, with_jobs)
    return with_jobs


def drop_lost(sweep: SweepFolder) -> None:
    """Notes that Slurm has nothing of the submissions whose jobs `note_lost_jobs` did not find, so that nobody brings
    them to their end. With the sweep's lock held."""
    for entry in known(sweep):
        if entry.job is None:
            events.append(
                sweep.events, "submit-failed", backend=_backend(sweep), token=entry.token, reason="there is no such job"
            )


def note(sweep: SweepFolder, entries: list[Submission]) -> None:
    """Notes jobs of submissions that the journal lacks."""
    unknown = {entry.token for entry in known(sweep) if entry.job is None}
    for entry in entries:
        if entry.job is not None and entry.token in unknown:
            events.append(
                sweep.events, "submitted", backend=_backend(sweep), token=entry.token, job=entry.job, **in_cluster()
            )
    _update_sweep_file(sweep, point_count(sweep))


def is_settled(sweep: SweepFolder) -> bool:
    """Whether the journal has the job of each submission, and sweep.json agrees with it."""
    entries = known(sweep)
    return all(entry.job is not None for entry in entries) and submissions.read(sweep.sweep_file) == entries


def _update_sweep_file(sweep: SweepFolder, count: int) -> None:
    """Updates sweep.json from the journal, also after a launch that was killed between the two."""
    entries = [entry for entry in known(sweep) if entry.job is not None]
    if entries and submissions.read(sweep.sweep_file) != entries:
        submissions.write(sweep.sweep_file, count, entries)


def _script_args(submission: Submission) -> list[str]:
    """The script's arguments: see array.sh.j2."""
    return [str(submission.number), str(submission.numbered), str(submission.per_task)]


def _options(sweep: SweepFolder, token: str | None) -> tuple[str, ...]:
    submitting = events.read(sweep.events, "submitting")
    return next((tuple(map(str, event.get("options", ()))) for event in submitting if event.get("token") == token), ())


def submit_array(sweep: SweepFolder, settings: Settings, batch: Batch, count: int) -> Submission:
    """Submits one more array job of a sweep of `count` points. To be called with the sweep's lock held.

    An unsettled submission must have been settled before. Raises what `slurmopt.slurm.submit.sbatch_once` does.
    """
    refuse_foreign(sweep)
    entries = [entry for entry in known(sweep) if entry.job is not None]
    number = max((entry.number for entry in entries), default=-1) + 1
    submission = Submission(
        number=number,
        points=batch.points,
        per_task=batch.per_task,
        packed=batch.packed,
        tasks=batch.tasks,
        among=batch.among,
        job=None,
    )
    at_once = f"%{settings.sweep.at_once}" if settings.sweep.at_once else ""
    options = [f"--array={submission.array}{at_once}", *batch.options]
    timeout = seconds(settings.launch.submit_timeout)
    comment = settings.resources.comment
    details = {"number": number, "points": str(batch.points), "per_task": batch.per_task, "packed": batch.packed}
    details |= {} if batch.among is None else {"among": str(batch.among)}
    details |= {} if batch.part is None else {"part": batch.part}
    backend = _backend(sweep)
    with journaled(sweep.run, backend, **details, tasks=batch.tasks, options=list(batch.options)) as submitting:
        token, retry = submitting.token, submitting.retry
        if backend == "local":
            start.refuse_elsewhere(sweep)
            submitting.job = local_job(token)
        else:
            submitting.job = sbatch_once(
                sweep.script, comment, token, timeout, retry, options, _script_args(submission)
            )
            submitting.details = in_cluster()
    _update_sweep_file(sweep, count)
    return replace(submission, job=submitting.job)


def _backend(sweep: SweepFolder) -> str:
    return "local" if is_local(sweep) else "sbatch"


def local_job(token: str) -> str:
    """The id of an array job on this machine, made from its token: a submission that is repeated has the same."""
    return f"local-{int(token.rpartition(':')[2], 16) % 10**9}"
