"""Formats a run's status for people: as a row of a table, or as a page."""

from __future__ import annotations

import json
import time

from slurmopt.errors import one_line, why_failed
from slurmopt.run_folder import loader_costs
from slurmopt.run_folder.access.files import read_json
from slurmopt.run_folder.json_values import as_int
from slurmopt.runs.colour import of_state, paint
from slurmopt.runs.journal import launched
from slurmopt.runs.options import run_arg
from slurmopt.runs.status import budgets, checkpoints
from slurmopt.runs.status.account import account
from slurmopt.runs.status.next_commands import next_commands
from slurmopt.runs.status.progress import Progress, silent_after, silent_ranks, stands_still
from slurmopt.runs.status.query import Status
from slurmopt.runs.status.state import FAILED, age
from slurmopt.runs.text_table import cut, table
from slurmopt.units import human_count, human_seconds

_LONGEST_RESULT = 300
_LONGEST_NAME = 60
"""Of a metric: a training may name it as it likes."""
HEADER = ["RUN", "STATE", "STEP", "LEFT", "TIME", ""]


def rows(statuses: list[Status], width: int | None, coloured: bool = False) -> str:
    """A table of runs, one row each."""
    return table(HEADER, [cells(status) for status in statuses], width, coloured)


def cells(status: Status) -> list[str]:
    """A run's row in the table."""
    progress = status.progress
    remaining = human_seconds(progress.eta_seconds) if progress.eta_seconds is not None and status.alive else ""
    elapsed = human_seconds(status.elapsed) if status.elapsed is not None else ""
    return [_short(status.label), status.state, steps(progress), remaining, elapsed, _remark(status)]


def _short(label: str, most: int = 36) -> str:
    """`label`, cut in the middle: the name's beginning and the ID's end tell runs apart."""
    return label if len(label) <= most else f"{label[: most - 23]}…{label[-22:]}"


def _remark(status: Status) -> str:
    attempt = status.journal.attempt
    attempt_text = f"attempt {attempt.number}" if attempt and attempt.number and status.alive else ""
    metrics_text = metrics(status.progress) if status.alive else ""
    parts = [whose(status.owner), status.detail or "", _awaits(status), _start(status), metrics_text, attempt_text]
    return "; ".join(filter(None, parts))


def whose(owner: str | None) -> str:
    """A remark on a run or sweep of another user, who may have written anything into it; "" for one's own."""
    return f"of another user ({owner})" if owner else ""


def _start(status: Status) -> str:
    if status.start is None:
        return ""
    when = time.localtime(status.start)
    day = "" if status.start - status.now < 86400 / 2 else "%b %d "
    return f"expected to start {time.strftime(f'{day}%H:%M', when)}"


def steps(progress: Progress) -> str:
    """`120/500`."""
    if progress.step is None:
        return ""
    return str(progress.step) if progress.total_steps is None else f"{progress.step}/{progress.total_steps}"


def metrics(progress: Progress) -> str:
    """`val_loss 1.234  lr 0.0003`."""
    return "  ".join(f"{cut(name, _LONGEST_NAME)} {value:.4g}" for name, value in progress.metrics.items())


def page(status: Status, coloured: bool = False) -> str:
    """The page of one run, with the next command. Nothing is cut, so that paths can be copied."""
    lines = [(label, one_line(text)) for label, text in _facts(status) if text]
    state = paint(status.state, of_state(status.state)) if coloured else status.state
    return "\n".join([f"{status.label}: {state}", *(f"  {label:10} {text}" for label, text in lines)])


def _facts(status: Status) -> list[tuple[str, str | None]]:
    journal, progress, failed = status.journal, status.progress, account(status)
    return [
        ("owner", whose(status.owner).removeprefix("of ")),
        ("error", failed.error),
        ("where", failed.where),
        ("why", failed.why_final or "; ".join(filter(None, (_why(status), _start(status))))),
        ("progress", _progress(status)),
        ("metrics", metrics(progress)),
        ("input", _input(progress)),
        *_checkpoints(status),
        ("time", _times(status)),
        ("budget", budgets.for_people(budgets.read(status.folder))),
        ("job", _job(status)),
        ("heartbeat", _heartbeat(status)),
        ("result", _result(status)),
        ("folder", str(journal.folder.told(journal.folder.path))),
        ("log", log_path(status)),
        ("report", _report(status)),
        ("profile", ", ".join(str(status.folder.told(path)) for path in status.folder.all_profiles())),
        *[("" if index else "next", command) for index, command in enumerate(next_commands(status))],
    ]


def _why(status: Status) -> str | None:
    """Why a run is in its state, where it did not fail: of one that did, `account` tells."""
    return None if status.state in (*FAILED, "cancelled") else status.detail


def _progress(status: Status) -> str:
    progress = status.progress
    rate = f"{human_count(progress.steps_per_second)} steps/s" if progress.steps_per_second is not None else ""
    if status.alive and stands_still(progress) and progress.since_step is not None:
        return f"step {steps(progress)}, no step for {human_seconds(progress.since_step)}"
    remaining = (
        f"about {human_seconds(progress.eta_seconds)} left" if progress.eta_seconds is not None and status.alive else ""
    )
    step = f"step {steps(progress)}" if progress.step is not None else ""
    waiting = "waits for the other ranks" if progress.phase == "waiting" and status.alive else _awaits(status)
    return ", ".join(filter(None, (waiting, step, rate, remaining)))


def _input(progress: Progress) -> str:
    """What the batches cost, and how many workers hide that where a step waits."""
    costs = progress.loader
    if costs is None:
        return ""
    workers = costs.workers() if costs.waits else None
    advice = "" if workers is None else f"; about {workers} workers hide it (slurmopt tune loader)"
    return loader_costs.in_words(costs) + advice


def _awaits(status: Status) -> str:
    """What an attempt that is alive waits for before its task starts."""
    if not status.alive or not status.progress.awaits:
        return ""
    return status.progress.awaits if status.progress.phase == "staging" else f"waits: {status.progress.awaits}"


def _checkpoints(status: Status) -> list[tuple[str, str | None]]:
    lines = checkpoints.for_people(checkpoints.read(status.folder), status.now)
    return [("" if index else "checkpoint", line) for index, line in enumerate(lines)]


def _times(status: Status) -> str:
    journal = status.journal
    parts = []
    if status.elapsed is not None and journal.attempt:
        verb = "has run" if status.alive else "ran"
        parts.append(f"attempt {journal.attempt.number} {verb} {human_seconds(status.elapsed)}")
    if (began := launched(status.folder, journal)) is not None:
        parts.append(f"launched {age(began, status.now)}")
    return ", ".join(parts)


def _job(status: Status) -> str:
    journal = status.journal
    nodes = f"on {status.nodes}" if status.nodes else ""
    return " ".join(filter(None, (journal.job, f"({journal.backend})" if journal.backend else "", nodes)))


def _heartbeat(status: Status) -> str:
    attempt, heartbeat = status.journal.attempt, status.progress.heartbeat
    if attempt is None or heartbeat is None or not status.alive:
        return ""
    text = age(heartbeat, status.now)
    threshold = silent_after(status.folder, status.progress.interval)
    silent = silent_ranks(status.folder, attempt.number, threshold)
    if silent:
        text += f"; silent for over {human_seconds(threshold)}: rank {', '.join(map(str, silent[:10]))}"
        text += f" and {len(silent) - 10} more" if len(silent) > 10 else ""
    return text


def _result(status: Status) -> str:
    """What the function returned, unless that is None or 0."""
    if status.state != "finished":
        return ""
    try:
        verdict = (
            read_json(status.folder.result) or status.journal.ended or {}
        )  # the journal has it for a point of a sweep
        result = verdict.get("result")
    except OSError as error:
        return f"cannot be read: {why_failed(error)}"
    return "" if result is None or result == 0 else cut(json.dumps(result), _LONGEST_RESULT)


def log_path(status: Status) -> str | None:
    """The log of the latest attempt's failed rank, else of rank 0; else that of the job."""
    folder, attempt, job = status.folder, status.journal.attempt, status.journal.job
    failed = as_int((status.journal.ended or {}).get("rank"))
    paths = [folder.rank_log(attempt.number, rank) for rank in (failed, 0) if rank is not None] if attempt else []
    paths += [folder.job_log(job)] if job else []
    return next((str(folder.told(path)) for path in paths if path.exists()), None)


def _report(status: Status) -> str:
    """The page that was written when the run ended; where there is none, the command that makes one."""
    attempt = status.journal.attempt
    if status.alive or status.state == "unknown" or attempt is None or status.folder.in_sweep:
        return ""
    path = status.folder.report
    try:
        if path.is_file() and path.stat().st_mtime >= (attempt.started or 0.0):
            return str(status.folder.told(path))
    except OSError:  # the command will say more
        pass
    return f"slurmopt report {run_arg(status.folder, status.label)} --html"
