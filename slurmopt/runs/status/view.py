"""A run's status for people: one line in a table, or a page of its own."""

from __future__ import annotations

import json
import time

from slurmopt.errors import one_line, why_failed
from slurmopt.restart import causes
from slurmopt.run_folder.files import read_json
from slurmopt.run_folder.json_values import as_int, text
from slurmopt.runs.options import word_for
from slurmopt.runs.status import budgets, checkpoints
from slurmopt.runs.status.failure import failure
from slurmopt.runs.status.progress import Progress, silent_after, silent_ranks
from slurmopt.runs.status.query import Status
from slurmopt.runs.status.state import FAILED, age
from slurmopt.runs.table import cut, table
from slurmopt.units import human_seconds

_LONGEST_RESULT = 300
HEADER = ["RUN", "STATE", "STEP", "LEFT", "TIME", ""]
_NEXT = {
    "unsubmitted": "slurmopt launch … launch.id={id}",
    "pending": "slurmopt logs {run} --follow waits for it; slurmopt cancel {run} stops it",
    "running": "slurmopt logs {run} --follow",
    "stopping": "slurmopt status {run} --watch",
    "requeued": "slurmopt status {run} --watch",
    "finished": "slurmopt logs {run}",
    "failed": "slurmopt logs {run} --errors, then slurmopt retry {run}{more}",
    "killed": "slurmopt logs {run} --errors, then slurmopt retry {run}{more}",
    "cancelled": "slurmopt retry {run} goes on with it",
    "lost": "slurmopt logs {run} --errors, then slurmopt retry {run}",
    "unknown": "slurmopt logs {run}",
}


def rows(statuses: list[Status], width: int | None) -> str:
    """Many runs, a line each."""
    return table(HEADER, [cells(status) for status in statuses], width)


def cells(status: Status) -> list[str]:
    """A run's line in the table."""
    seen = status.progress
    left = human_seconds(seen.eta_seconds) if seen.eta_seconds is not None and status.alive else ""
    elapsed = human_seconds(status.elapsed) if status.elapsed is not None else ""
    return [_short(status.label), status.state, steps(seen), left, elapsed, _remark(status)]


def _short(label: str, most: int = 36) -> str:
    """The ID's end and the name's beginning tell runs apart."""
    return label if len(label) <= most else f"{label[: most - 23]}…{label[-22:]}"


def _remark(status: Status) -> str:
    attempt = status.journal.attempt
    again = f"attempt {attempt.number}" if attempt and attempt.number and status.alive else ""
    told = metrics(status.progress) if status.alive else ""
    parts = [whose(status.owner), status.detail or "", _awaits(status), _start(status), told, again]
    return "; ".join(filter(None, parts))


def whose(owner: str | None) -> str:
    """Of a run or sweep that is not one's own: anybody may have written there what it says."""
    return f"of another user ({owner})" if owner else ""


def _start(status: Status) -> str:
    if status.start is None:
        return ""
    when = time.localtime(status.start)
    day = "" if status.start - status.now < 86400 / 2 else "%b %d "
    return f"expected to start {time.strftime(f'{day}%H:%M', when)}"


def steps(seen: Progress) -> str:
    """`120/500`."""
    if seen.step is None:
        return ""
    return str(seen.step) if seen.total_steps is None else f"{seen.step}/{seen.total_steps}"


def metrics(seen: Progress) -> str:
    """`val_loss 1.234  lr 0.0003`."""
    return "  ".join(f"{name} {value:.4g}" for name, value in seen.metrics.items())


def page(status: Status) -> str:
    """One run, with all that helps to understand it and what to do next. Nothing is cut: paths are to be copied."""
    lines = [(label, one_line(text)) for label, text in _facts(status) if text]
    return "\n".join([f"{status.label}: {status.state}", *(f"  {label:10} {text}" for label, text in lines)])


def _facts(status: Status) -> list[tuple[str, str | None]]:
    journal, seen = status.journal, status.progress
    why = status.detail if journal.ended is None else _why_final(status)
    return [
        ("owner", whose(status.owner).removeprefix("of ")),
        ("why", "; ".join(filter(None, (why, _start(status))))),
        ("progress", _progress(status)),
        ("metrics", metrics(seen)),
        *_checkpoints(status),
        ("time", _times(status)),
        ("budget", budgets.for_people(budgets.read(status.folder))),
        ("job", _job(status)),
        ("heartbeat", _heartbeat(status)),
        ("result", _result(status)),
        ("error", _error(status)),
        ("folder", str(journal.folder.told(journal.folder.path))),
        ("log", log_path(status)),
        ("next", next_step(status)),
    ]


def _why_final(status: Status) -> str:
    """Why a run that was ended does not come back, where its error does not tell."""
    told = text((status.journal.ended or {}).get("reason"))
    return told if told and status.state not in ("finished", "cancelled") and told != status.detail else ""


def _progress(status: Status) -> str:
    seen = status.progress
    rate = f"{seen.steps_per_second:.3g} steps/s" if seen.steps_per_second is not None else ""
    left = f"about {human_seconds(seen.eta_seconds)} left" if seen.eta_seconds is not None and status.alive else ""
    done = f"step {steps(seen)}" if seen.step is not None else ""
    waiting = "waits for the other ranks" if seen.phase == "waiting" and status.alive else _awaits(status)
    return ", ".join(filter(None, (waiting, done, rate, left)))


def _awaits(status: Status) -> str:
    """What a running attempt waits for before its task starts."""
    return f"waits: {status.progress.awaits}" if status.progress.awaits and status.alive else ""


def _checkpoints(status: Status) -> list[tuple[str, str | None]]:
    lines = checkpoints.for_people(checkpoints.read(status.folder), status.now)
    return [("" if index else "checkpoint", line) for index, line in enumerate(lines)]


def _times(status: Status) -> str:
    journal = status.journal
    parts = []
    if status.elapsed is not None and journal.attempt:
        word = "has run" if status.alive else "ran"
        parts.append(f"attempt {journal.attempt.number} {word} {human_seconds(status.elapsed)}")
    if journal.created is not None:
        parts.append(f"launched {age(journal.created, status.now)}")
    return ", ".join(parts)


def _job(status: Status) -> str:
    journal = status.journal
    nodes = f"on {status.nodes}" if status.nodes else ""
    return " ".join(filter(None, (journal.job, f"({journal.backend})" if journal.backend else "", nodes)))


def _heartbeat(status: Status) -> str:
    attempt, seen = status.journal.attempt, status.progress.heartbeat
    if attempt is None or seen is None or not status.alive:
        return ""
    text = age(seen, status.now)
    threshold = silent_after(status.folder, status.progress.interval)
    silent = silent_ranks(status.folder, attempt.number, threshold)
    if silent:
        text += f"; silent for over {human_seconds(threshold)}: rank {', '.join(map(str, silent[:10]))}"
        text += f" and {len(silent) - 10} more" if len(silent) > 10 else ""
    return text


def _result(status: Status) -> str:
    """What the function returned, where it says something."""
    if status.state != "finished":
        return ""
    try:
        told = read_json(status.folder.result) or status.journal.ended or {}  # of a sweep's point the journal has it
        result = told.get("result")
    except OSError as error:
        return f"cannot be read: {why_failed(error)}"
    return "" if result is None or result == 0 else cut(json.dumps(result), _LONGEST_RESULT)


def _error(status: Status) -> str | None:
    if status.state not in FAILED:
        return None
    if status.journal.ended is not None and status.detail:
        return status.detail
    found = failure(status.folder, status.journal.attempt.number) if status.journal.attempt else None
    if found is None:
        return None
    said = found.error or found.outcome
    return said if found.rank is None else f"rank {found.rank}: {said}"


def log_path(status: Status) -> str | None:
    """The log of the rank that failed, else rank 0's, of the latest attempt; else the job's."""
    folder, attempt, job = status.folder, status.journal.attempt, status.journal.job
    failed = as_int((status.journal.ended or {}).get("rank"))
    paths = [folder.rank_log(attempt.number, rank) for rank in (failed, 0) if rank is not None] if attempt else []
    paths += [folder.job_log(job)] if job else []
    return next((str(folder.told(path)) for path in paths if path.exists()), None)


def next_step(status: Status) -> str:
    """The command that helps now."""
    run = word_for(status.folder, status.label)
    if status.journal.problem is not None and not status.folder.in_sweep:
        return f"look at what is there; squeue --me -o '%i %o' names your job whose script is {status.folder.script}"
    if status.owner is not None:  # who alone can submit, retry or cancel it
        return f"slurmopt logs {run}" if status.journal.attempt else ""
    if status.state == "unsubmitted" and status.folder.lacks():
        return ""
    if status.journal.for_tend and status.alive:
        return f"slurmopt tend {run}"
    more = causes.RETRY_OPTIONS.get(text((status.journal.ended or {}).get("cause")) or "", "")
    return _NEXT[status.state].format(run=run, id=status.folder.id, more=more)
