"""Queries the history of a run: its attempts, other events, and totals."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from slurmopt import command_output
from slurmopt.errors import one_line
from slurmopt.grid.records import readable
from slurmopt.restart import exclusions
from slurmopt.run_folder import attempts, events
from slurmopt.run_folder.attempts import Event
from slurmopt.run_folder.json_values import as_int, number, text
from slurmopt.run_folder.layout import RunFolder
from slurmopt.runs import stored_config
from slurmopt.runs.history import timeline
from slurmopt.runs.history.timeline import Entry
from slurmopt.runs.journal import launched
from slurmopt.runs.recovery.changed_config import for_people
from slurmopt.runs.status.query import Status, gather


@dataclass(frozen=True)
class Note:
    """An event other than an attempt's start or end. `after`: the latest attempt at that time; None before the
    first."""

    time: float | None
    event: str
    after: int | None
    text: str


@dataclass(frozen=True)
class History:
    """The history of a run."""

    status: Status
    entries: list[Entry]
    notes: list[Note]
    totals: dict[str, Any]


def history(run: RunFolder) -> History:
    """The history of the run so far. Raises OSError where the journal cannot be read."""
    (status,), problem = gather([run])
    run = readable(status.folder)  # the folder may have moved while Slurm was asked
    journal = list(events.parse(events.few(attempts.lines_on_attempts(run.events), run.events)))
    if problem:
        command_output.warn(f"Slurm was not asked, so this is what the journal says: {problem}")
    run_attempts = attempts.of_events(journal)
    entries = timeline.entries(run, run_attempts, status.now, alive=status.alive or status.state == "unknown")
    until = status.now if status.alive else (entries[-1].ended if entries else None)
    gpus = _gpus(run, journal)
    sums = timeline.totals(
        entries, launched(run, status.journal), until, [gpus.get(entry.attempt.number) for entry in entries]
    )
    return History(status, entries, _notes(journal), sums)


def _notes(journal: Sequence[Event]) -> list[Note]:
    notes: list[Note] = []
    latest: int | None = None
    submitted = False
    for event in journal:
        kind = str(event["event"])
        if kind == "attempt":
            latest = as_int(event.get("attempt"))
        elif kind == "submitted":
            if submitted:
                notes.append(Note(number(event.get("time")), kind, latest, f"submitted again as job {_job(event)}"))
            submitted = True
        elif kind in _NOTE_TEXTS:
            notes.append(Note(number(event.get("time")), kind, latest, _NOTE_TEXTS[kind](event)))
    return notes


def _job(event: Event) -> str:
    return text(event.get("job")) or "?"


def _why(event: Event) -> str:
    return f": {why}" if (why := text(event.get("reason"))) else ""


def _excluded(event: Event) -> str:
    nodes = event.get("nodes")
    named = ",".join(filter(None, map(text, nodes))) if isinstance(nodes, list) else text(nodes)
    until = number(event.get("until"))
    until_when = f" until {moment(until)}" if until is not None else ""
    return f"{named} is left out{until_when}{_why(event)}"


def moment(seconds: float) -> str:
    """Date and time of day, in local time."""
    try:
        return time.strftime("%b %d %H:%M:%S", time.localtime(seconds))
    except (ValueError, OverflowError, OSError):  # no year of the calendar
        return "?"


def _retried(event: Event) -> str:
    changes = event.get("changes")
    changed = one_line(for_people(changes)) if isinstance(changes, dict) else ""
    return f"you continued it{f', with {changed}' if changed else ''}; budgets count from here"


def _refused(event: Event) -> str:
    if _job(event).startswith("local-") or "by" in event:
        return f"no further attempt was started{_why(event)}"
    return f"Slurm refused to requeue job {_job(event)}{_why(event)}"


def _damaged(event: Event) -> str:
    tier = text(event.get("tier"))
    on = f" on {tier}" if tier else ""
    return f"the checkpoint {text(event.get('checkpoint')) or '?'}{on} was damaged and set aside{_why(event)}"


def _not_saved(event: Event) -> str:
    step, tier = as_int(event.get("step")), text(event.get("tier"))
    of_step, on = f" of step {step:,}" if step is not None else "", f" to {tier}" if tier else ""
    return f"the checkpoint{of_step} was not saved{on}{_why(event)}"


def _waited(event: Event) -> str:
    until = number(event.get("until"))
    until_when = f" until {moment(until)} at the latest" if until is not None else ""
    return f"{text(event.get('node')) or '?'} waits{until_when}{_why(event)}"


_NOTE_TEXTS: dict[str, Callable[[Event], str]] = {
    exclusions.EVENT: _excluded,
    "waits": _waited,
    "requeue-refused": _refused,
    "submit-failed": lambda event: f"it was not submitted{_why(event)}",
    "retry": _retried,
    "cancel": lambda event: "you cancelled it",
    "cancel-failed": lambda event: "that did not reach the job",
    "checkpoint-failed": _not_saved,
    "checkpoint-damaged": _damaged,
    "notified": lambda event: f"notified its owner: {text(event.get('how')) or '?'}",
    "notify-failed": lambda event: f"could not notify its owner ({text(event.get('how')) or '?'}){_why(event)}",
}


def as_dict(history: History) -> dict[str, Any]:
    """What `--json` prints."""
    status = history.status
    return {
        "name": status.folder.name,
        "id": status.folder.id,
        "folder": str(status.folder.told(status.folder.path)),
        "backend": status.journal.backend,
        "state": status.state,
        "detail": status.detail,
        "created": status.journal.created,
        "attempts": [_attempt(entry) for entry in history.entries],
        "events": [
            {"time": note.time, "event": note.event, "attempt": note.after, "text": note.text} for note in history.notes
        ],
        "totals": history.totals,
    }


def _attempt(entry: Entry) -> dict[str, Any]:
    attempt = entry.attempt
    end, restored, hang = attempt.end or {}, attempt.restored or {}, attempt.hang
    return {
        "attempt": attempt.number,
        "job": attempt.job,
        "nodes": attempt.nodes,
        "node_count": entry.nodes,
        "started": entry.started,
        "ended": entry.ended,
        "seconds": entry.seconds,
        "signals": attempt.signals,
        "cause": attempt.cause,
        "outcome": text(end.get("outcome")),
        "exit_code": as_int(end.get("exit_code")),
        "rank": as_int(end.get("rank")),
        "node": text(end.get("node")),
        "error": text(end.get("error")),
        "next": text(end.get("next")),
        "reason": text(end.get("reason")),
        "by": text(end.get("by")),
        "hang": None if hang is None else hang_of(hang),
        "base": entry.base,
        "last_step": entry.last,
        "steps_done": entry.done,
        "steps_lost": entry.lost,
        "durable": attempt.durable if as_int(end.get("durable")) is None else as_int(end.get("durable")),
        "restored_from": text(restored.get("tier")),
        "queue_seconds": entry.queue,
        "restart_seconds": entry.restart,
        "restart": entry.parts,
    }


def hang_of(event: Event) -> dict[str, Any]:
    """The watchdog's `hang` event; a field of a wrong type is None."""
    return {
        "rank": as_int(event.get("rank")),
        "node": text(event.get("node")),
        "step": as_int(event.get("step")),
        "seconds": number(event.get("seconds")),
        "alike": as_int(event.get("alike")),
    }


def _gpus(run: RunFolder, journal: Sequence[Event]) -> dict[int, int | None]:
    """Attempt → its GPUs per node: from the config, and from its value before each retry."""
    key = "gpus_per_node"
    current_gpus = as_int(stored_config.group(run, "resources").get(key))
    gpus: dict[int, int | None] = {}
    for event in reversed(journal):
        if event["event"] == "attempt" and (attempt_number := as_int(event.get("attempt"))) is not None:
            gpus[attempt_number] = current_gpus
        elif event["event"] == "retry" and isinstance(changes := event.get("changes"), dict):
            change = changes.get(f"resources.{key}")
            current_gpus = as_int(change[0]) if isinstance(change, list) and change else current_gpus
    return gpus
