"""Reads a run folder into a RunRecord. Nothing is written, and what cannot be read becomes a line in `problems`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from slurmopt.errors import StorageError, one_line, with_place
from slurmopt.grid.records import readable
from slurmopt.report.records.attempt_records import Sources, attempt_record
from slurmopt.report.run_record import AttemptFacts, RunRecord
from slurmopt.run_folder import attempts as journal_attempts
from slurmopt.run_folder import events, heartbeat
from slurmopt.run_folder import series as node_series
from slurmopt.run_folder.attempts import Attempt, Event
from slurmopt.run_folder.heartbeat import Heartbeat
from slurmopt.run_folder.json_values import as_int, text
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.series import Series
from slurmopt.runs import stored_config
from slurmopt.runs.status import query
from slurmopt.runs.status.query import Status


def gather(run: RunFolder, series: bool = True) -> RunRecord:
    """The record of one run, or of a point of a sweep. `series`: reads what the samplers measured too."""
    (status,), problem = query.gather([run])
    record = RunRecord(status)
    if problem is not None:
        record.problems.append(f"Slurm was not asked, so this is what the journal says: {one_line(problem)}")
    fill(record, series)
    return record


def fill(record: RunRecord, series: bool) -> None:
    """Reads the folder of a run whose state is known."""
    run = readable(record.folder)
    record.config = _config(run, record)
    try:
        journal = list(events.parse(events.few(journal_attempts.lines_on_attempts(run.events), run.events)))
    except OSError as error:
        record.problems.append(f"the journal cannot be read: {one_line(with_place(error))}")
        return
    found = journal_attempts.of_events(journal)
    started = {as_int(event.get("attempt")): event for event in journal if event["event"] == "attempt"}
    queued = _queue_times(found)
    for attempt in found:
        _add_attempt(record, run, attempt, started.get(attempt.number, {}), queued[attempt.number], series)


def _add_attempt(
    record: RunRecord, run: RunFolder, attempt: Attempt, event: Event, queued: float | None, series: bool
) -> None:
    number = attempt.number
    record.heartbeats[number] = _heartbeats(run, number, record)
    record.series[number] = _series(run, number, record) if series else {}
    sources = Sources(
        attempt=attempt,
        event=event,
        beats=record.heartbeats[number],
        series=record.series[number],
        resources=_group(record.config, "resources"),
        per=text(_group(record.config, "task").get("per")) or "rank",
    )
    built = attempt_record(sources, queued, _now(record.status, attempt))
    record.facts[number] = AttemptFacts(attempt)
    if built is None:
        record.problems.append(f"attempt {number}: nothing tells when it began, so it is left out of the sums")
        return
    record.attempts.append(built[0])
    record.facts[number].world_size = built[1].world_size


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


def _config(run: RunFolder, record: RunRecord) -> dict[str, Any]:
    config = stored_config.whole(run)
    if not config:
        record.problems.append("its config.yaml cannot be read")
    return config


def _group(config: dict[str, Any], name: str) -> dict[str, Any]:
    found = config.get(name)
    return found if isinstance(found, dict) else {}


def _heartbeats(run: RunFolder, attempt: int, record: RunRecord) -> dict[int, Heartbeat]:
    found: dict[int, Heartbeat] = {}
    unread: list[str] = []
    for rank in _listed(run, attempt, record):
        try:
            beat = heartbeat.read(run.heartbeat(attempt, rank))
        except (OSError, RecursionError) as error:
            unread.append(f"{rank} ({one_line(str(error))})")
            continue
        if beat is None:
            unread.append(str(rank))
        else:
            found[rank] = beat
    if unread:
        shown = ", ".join(unread[:3]) + (f" and {len(unread) - 3} more" if len(unread) > 3 else "")
        record.problems.append(f"attempt {attempt}: the heartbeats of these ranks cannot be read: {shown}")
    return found


def _listed(run: RunFolder, attempt: int, record: RunRecord) -> list[int]:
    try:
        return run.ranks_with_heartbeats(attempt)
    except OSError as error:
        record.problems.append(f"attempt {attempt}: its heartbeats cannot be read: {one_line(with_place(error))}")
        return []


def _series(run: RunFolder, attempt: int, record: RunRecord) -> dict[str, Series]:
    found: dict[str, Series] = {}
    for node in run.nodes_with_series(attempt):
        try:
            series = node_series.read(run.series(attempt, node), run.recent_series(attempt, node))
        except (OSError, StorageError) as error:
            record.problems.append(f"attempt {attempt}: the series of {node} cannot be read: {one_line(str(error))}")
            continue
        if series is not None:
            found[node] = series
    return found
