"""What `slurmopt logs --errors` prints: the error first, then the traceback, the ends of the logs, and the next step.

Nothing is printed twice: a traceback that is in the log is shown there, and of the job's log only what no rank said.
"""

from __future__ import annotations

from pathlib import Path

from slurmopt.errors import one_line
from slurmopt.run_folder.outcome import USER_ERROR
from slurmopt.runs.status.account import account, said_last, where
from slurmopt.runs.status.failure import Failure, failure
from slurmopt.runs.status.next_commands import listed, next_commands
from slurmopt.runs.status.query import Status
from slurmopt.runs.status.state import FAILED
from slurmopt.runs.tail import last_lines

_LOG_LINES = 20
_JOB_LINES = 10
_MOST_LINES = 400
_STORY = ("slurmopt: attempt ", "  log: ", "  the end: ", "  next: ")
"""How the lines begin by which the job's log tells of the same failure."""


def report(status: Status, attempt: int | None) -> str:
    """The failure of an attempt, of the latest one where `attempt` is None."""
    folder = status.folder
    latest = status.journal.attempt.number if status.journal.attempt else None
    shown = attempt if attempt is not None else latest
    failed = failure(folder, shown) if shown is not None else None
    if failed is None and (status.state in ("finished", "pending", "running", "requeued") or shown != latest):
        place = "" if shown is None else f" in attempt {shown}"
        return f"{status.label} is {status.state}; no rank has failed{place}"
    lines = [_head(status, failed, shown)]
    if failed is not None and (place := where(failed)):
        lines.append(f"  where      {place}")
    is_final = shown == latest and status.state in FAILED
    if is_final and (why := account(status).why_final):
        lines.append(f"  why        {one_line(why)}")
    lines += _logs(status, failed, shown)
    if is_final and (commands := [one for one in next_commands(status) if not one.endswith(" --errors")]):
        lines += ["", *listed(commands, "next", 10)]
    return "\n".join(lines)


def _head(status: Status, failed: Failure | None, attempt: int | None) -> str:
    if failed is None:
        return f"{status.label} is {status.state}: {status.detail or 'no rank left an account of its end'}"
    error, how = said_last(failed.error or failed.outcome)
    outcome = "" if failed.outcome == USER_ERROR or failed.outcome in error else f"{failed.outcome}: "
    return f"{status.label}, attempt {attempt}: {outcome}{error}" + (f" ({how})" if how else "")


def _logs(status: Status, failed: Failure | None, attempt: int | None) -> list[str]:
    """The traceback, and the ends of the logs of the rank and the job."""
    folder, traceback = status.folder, ((failed.traceback if failed else None) or "").rstrip()
    rank = failed.rank if failed is not None and failed.rank is not None else 0
    log = folder.rank_log(attempt, rank) if attempt is not None else None
    of_rank = _end_of(log, _LOG_LINES + len(traceback.splitlines())) if log is not None else []
    is_in_log = traceback != "" and traceback in "\n".join(of_rank)
    lines = [] if is_in_log or not traceback else ["", traceback]
    lines += _section(of_rank if is_in_log else of_rank[-_LOG_LINES:], folder.told(log) if log is not None else None)
    if status.journal.job:
        job_log = folder.job_log(status.journal.job)
        lines += _section(_news(_end_of(job_log, _MOST_LINES), [*of_rank, *traceback.splitlines()]), job_log)
    return lines


def _news(lines: list[str], known: list[str]) -> list[str]:
    """The last of those lines that say something else than the `known` ones and the verdict."""
    said = {line.strip() for line in known}
    return [line for line in lines if line.strip() not in said and not line.startswith(_STORY)][-_JOB_LINES:]


def _end_of(log: Path, count: int) -> list[str]:
    try:
        lines = last_lines(log, count)
    except FileNotFoundError:
        return []
    while lines and not lines[-1].strip():
        lines.pop()
    return lines


def _section(lines: list[str], log: Path | None) -> list[str]:
    return ["", f"the end of {log}:", *(f"  {line}" for line in lines)] if any(map(str.strip, lines)) else []
