"""Finds why a run failed: the rank that failed first, its traceback, the end of its log."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from slurmopt.run_folder.access.files import read_json
from slurmopt.run_folder.json_values import as_int, number, text
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.outcome import FINISHED, REQUEUE
from slurmopt.runs.status.progress import read
from slurmopt.runs.status.query import Status
from slurmopt.runs.tail import last_lines

_LOG_LINES = 20
_JOB_LINES = 10


@dataclass
class Failure:
    """The rank that failed first; `rank` is None where no rank started."""

    rank: int | None
    node: str | None
    outcome: str
    error: str | None
    traceback: str | None


def failure(folder: RunFolder, attempt: int) -> Failure | None:
    """From the verdict in result.json; where that is not of this attempt, from the outcomes in the ranks'
    heartbeats."""
    try:
        verdict = read_json(folder.result) or {}
    except OSError:  # the ranks' heartbeats have it too
        verdict = {}
    if as_int(verdict.get("attempt")) == attempt:
        return None if verdict.get("outcome") in (FINISHED, REQUEUE) else _from(verdict, verdict.get("rank"))
    return _first_account(folder, attempt)


def _first_account(folder: RunFolder, attempt: int) -> Failure | None:
    """The rank that reported its failure first: the others mostly fail because of it."""
    failures = []
    for rank in folder.ranks_with_heartbeats(attempt):
        beat = read(folder, attempt, rank)
        account = beat.outcome if beat is not None and isinstance(beat.outcome, dict) else {}
        if beat is not None and account and account.get("outcome") not in (FINISHED, REQUEUE):
            failures.append((number(account.get("time")) or 0.0, rank, {**account, "node": beat.node}))
    if not failures:
        return None
    _, rank, account = min(failures, key=lambda failure: failure[:2])
    return _from(account, rank)


def _from(account: dict[str, object], rank: object) -> Failure:
    trace = account.get("traceback")
    return Failure(
        rank=as_int(rank),
        node=text(account.get("node")),
        outcome=text(account.get("outcome")) or "failed",
        error=text(account.get("error")),
        traceback=trace if isinstance(trace, str) else None,
    )


def report(status: Status, attempt: int | None) -> str:
    """What `slurmopt logs --errors` prints."""
    folder = status.folder
    latest = status.journal.attempt.number if status.journal.attempt else None
    shown = attempt if attempt is not None else latest
    failed = failure(folder, shown) if shown is not None else None
    if failed is None and (status.state in ("finished", "pending", "running", "requeued") or shown != latest):
        where = "" if shown is None else f" in attempt {shown}"
        return f"{status.label} is {status.state}; no rank has failed{where}"
    lines = [_head(status, failed, shown)]
    if failed is not None and failed.traceback:
        lines += ["", failed.traceback.rstrip()]
    if shown is not None:
        rank = failed.rank if failed is not None and failed.rank is not None else 0
        log = folder.rank_log(shown, rank)
        lines += _end_of(log, _LOG_LINES, folder.told(log))
    if status.journal.job:
        lines += _end_of(folder.job_log(status.journal.job), _JOB_LINES)
    return "\n".join(lines)


def _head(status: Status, failed: Failure | None, attempt: int | None) -> str:
    if failed is None:
        return f"{status.label} is {status.state}: {status.detail or 'no rank left an account of its end'}"
    rank = f" in rank {failed.rank}" if failed.rank is not None else ""
    node = f" on {failed.node}" if failed.node else ""
    error = f": {failed.error}" if failed.error else ""
    return f"{status.label}, attempt {attempt}: {failed.outcome}{rank}{node}{error}"


def _end_of(log: Path, count: int, shown: Path | None = None) -> list[str]:
    try:
        lines = last_lines(log, count)
    except FileNotFoundError:
        return []
    return ["", f"the end of {shown or log}:", *(f"  {line}" for line in lines)] if lines else []
