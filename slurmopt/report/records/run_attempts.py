"""Adds the attempts of a run to its record, from its journal and what else is read of them."""

from __future__ import annotations

from collections.abc import Sequence

from slurmopt.errors import one_line, with_place
from slurmopt.grid.records import readable
from slurmopt.report.records.attempt_records import Sources, attempt_record
from slurmopt.report.records.reading import Reading
from slurmopt.report.run_record import AttemptFacts, RunRecord
from slurmopt.run_folder import attempts as journal_attempts
from slurmopt.run_folder import events
from slurmopt.run_folder.attempts import Attempt
from slurmopt.run_folder.json_values import as_int
from slurmopt.runs.status.query import Status


def fill(record: RunRecord, reading: Reading) -> None:
    """Adds the attempts of a run whose state is known. Raises OSError where the records of a point cannot be read."""
    run = readable(record.folder)
    try:
        journal = list(events.parse(events.few(journal_attempts.lines_on_attempts(run.events), run.events)))
    except OSError as error:
        record.problems.append(f"the journal cannot be read: {one_line(with_place(error))}")
        return
    found = journal_attempts.of_events(journal)
    started = {as_int(event.get("attempt")): event for event in journal if event["event"] == "attempt"}
    queued = _queue_times(found)
    for attempt in found:
        event = started.get(attempt.number, {})
        read = reading.of_attempt(run, attempt, event, record)
        sources = Sources(
            attempt, event, read.beats, read.series, read.samples, read.resources, read.per, told=read.told
        )
        _add(record, sources, queued[attempt.number])


def _add(record: RunRecord, sources: Sources, queued: float | None) -> None:
    attempt = sources.attempt
    built = attempt_record(sources, queued, _now(record.status, attempt))
    record.facts[attempt.number] = AttemptFacts(attempt)
    if built is None:
        record.problems.append(f"attempt {attempt.number}: nothing tells when it began, so it is left out of the sums")
        return
    record.attempts.append(built[0])
    record.facts[attempt.number].world_size = built[1].world_size


def _now(status: Status, attempt: Attempt) -> float | None:
    """Now, if the attempt still runs. Where Slurm cannot be asked, only a fresh heartbeat would show that."""
    latest = status.journal.attempt
    runs = status.alive and attempt.end is None and latest is not None and latest.number == attempt.number
    return status.now if runs else None


def _queue_times(found: Sequence[Attempt]) -> dict[int, float | None]:
    """Attempt → since when it waited: since the submission or the requeue, and not while the one before still ran."""
    times: dict[int, float | None] = {}
    before: float | None = None
    for attempt in found:
        known = [time for time in (attempt.queued, before) if time is not None]
        times[attempt.number] = max(known) if known else None
        before = attempt.ended
    return times
