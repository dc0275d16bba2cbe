"""Adds the attempts of a run to its record, from its journal and what else is read of them."""

from __future__ import annotations

from collections.abc import Sequence

from slurmopt.errors import one_line, with_place
from slurmopt.grid.records import readable
from slurmopt.report.records.attempt_records import Sources, attempt_record
from slurmopt.report.records.reading import Reading
from slurmopt.report.run_record import AttemptFacts, Place, RunRecord
from slurmopt.run_folder import attempts as journal_attempts
from slurmopt.run_folder import events
from slurmopt.run_folder.attempts import Attempt, Event
from slurmopt.run_folder.json_values import as_int
from slurmopt.run_folder.layout import RunFolder
from slurmopt.runs.history.timeline import node_count
from slurmopt.runs.status.query import Status

_MOST_NODES = 1_000_000
"""Of all attempts together; those of a journal of somebody else would fill the memory."""


def fill(record: RunRecord, reading: Reading) -> None:
    """Adds the attempts of a run whose state is known. Raises OSError where the records of a point cannot be read."""
    run = readable(record.folder)
    try:
        journal = list(events.parse(events.few(journal_attempts.lines_on_attempts(run.events), run.events)))
    except OSError as error:
        record.problems.append(f"the journal cannot be read: {one_line(with_place(error))}")
        return
    add_attempts(record, run, journal, reading)


def add_attempts(record: RunRecord, run: RunFolder, journal: Sequence[Event], reading: Reading) -> None:
    """Adds the attempts that a journal tells of. `run`: has the other files of them."""
    told = journal_attempts.of_events(journal)
    found = _newest(told)
    if len(found) < len(told):
        left_out = f"the first {len(told) - len(found):,} attempts are left out"
        record.problems.append(f"{left_out}: all together have more than {_MOST_NODES:,} nodes")
    started = {as_int(event.get("attempt")): event for event in journal if event["event"] == "attempt"}
    queued = _queue_times(found)
    reading.begin(run, [attempt.number for attempt in found], record)
    for attempt in found:
        event = started.get(attempt.number, {})
        read = reading.of_attempt(run, attempt, event, record)
        sources = Sources(attempt, event, read.beats, read.series, read.samples, read.resources, read.told)
        _add(record, sources, queued[attempt.number], _now(record.status, attempt, attempt is found[-1]))


def _newest(found: list[Attempt]) -> list[Attempt]:
    """The newest attempts, as many as have the most nodes together."""
    left = _MOST_NODES
    for at in reversed(range(len(found))):
        left -= node_count(found[at].nodes)
        if left < 0:
            return found[at + 1 :]
    return found


def _add(record: RunRecord, sources: Sources, queued: float | None, now: float | None) -> None:
    attempt = sources.attempt
    built = attempt_record(sources, queued, now)
    record.facts[attempt.number] = AttemptFacts(attempt, place=place(sources.event))
    if built is None:
        record.problems.append(f"attempt {attempt.number}: nothing tells when it began, so it is left out of the sums")
        return
    record.attempts.append(built[0])
    record.facts[attempt.number].world_size = built[1].world_size


def place(event: Event) -> Place | None:
    """The array task's attempt in which an attempt of a point ran, by the point's `attempt` event."""
    task, number = event.get("task"), as_int(event.get("task_attempt"))
    return (task, number) if isinstance(task, str) and number is not None else None


def _now(status: Status, attempt: Attempt, newest: bool) -> float | None:
    """Now, if the attempt still runs. Where Slurm cannot be asked, only a fresh heartbeat would show that."""
    return status.now if newest and attempt.end is None and status.state in ("running", "stopping") else None


def _queue_times(found: Sequence[Attempt]) -> dict[int, float | None]:
    """Attempt → since when it waited: since the submission or the requeue, and not while the one before still ran."""
    times: dict[int, float | None] = {}
    before: float | None = None
    for attempt in found:
        known = [time for time in (attempt.queued, before) if time is not None]
        times[attempt.number] = max(known) if known else None
        before = attempt.ended
    return times
