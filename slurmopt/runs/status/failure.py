"""Why a run failed: the first failing rank, its traceback, the end of its log."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from slurmopt.run_folder.files import read_json
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
    """The rank that failed first; `rank` is None where none of them started."""

    rank: int | None
    node: str | None
    outcome: str
    error: str | None
    traceback: str | None


def failure(folder: RunFolder, attempt: int) -> Failure | None:
    """From the verdict in result.json; where there is none on this attempt, from the ranks' own accounts."""
    try:
        verdict = read_json(folder.result) or {}
    except OSError:  # the ranks' accounts tell as much
        verdict = {}
    if as_int(verdict.get("attempt")) == attempt:
        return None if verdict.get("outcome") in (FINISHED, REQUEUE) else _from(verdict, verdict.get("rank"))
    return _first_account(folder, attempt)


def _first_account(folder: RunFolder, attempt: int) -> Failure | None:
    """The rank whose own account of its failure is the oldest: the others mostly fail because of it."""
    found = []
    for rank in folder.ranks_with_heartbeats(attempt):
        beat = read(folder, attempt, rank)
        account = beat.outcome if beat is not None and isinstance(beat.outcome, dict) else {}
        if beat is not None and account and account.get("outcome") not in (FINISHED, REQUEUE):
            found.append((number(account.get("time")) or 0.0, rank, {**account, "node": beat.node}))
    if not found:
        return None
    _, rank, account = min(found, key=lambda one: one[:2])
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
    chosen = attempt if attempt is not None else latest
    found = failure(folder, chosen) if chosen is not None else None
    if found is None and (status.state in ("finished", "pending", "running", "requeued") or chosen != latest):
        which = "" if chosen is None else f" in attempt {chosen}"
        return f"{status.label} is {status.state}; no rank has failed{which}"
    lines = [_head(status, found, chosen)]
    if found is not None and found.traceback:
        lines += ["", found.traceback.rstrip()]
    if chosen is not None:
        rank = found.rank if found is not None and found.rank is not None else 0
        log = folder.rank_log(chosen, rank)
        lines += _end_of(log, _LOG_LINES, folder.told(log))
    if status.journal.job:
        lines += _end_of(folder.job_log(status.journal.job), _JOB_LINES)
    return "\n".join(lines)


def _head(status: Status, found: Failure | None, attempt: int | None) -> str:
    if found is None:
        return f"{status.label} is {status.state}: {status.detail or 'no rank left an account of its end'}"
    rank = f" in rank {found.rank}" if found.rank is not None else ""
    node = f" on {found.node}" if found.node else ""
    error = f": {found.error}" if found.error else ""
    return f"{status.label}, attempt {attempt}: {found.outcome}{rank}{node}{error}"


def _end_of(log: Path, count: int, shown: Path | None = None) -> list[str]:
    try:
        lines = last_lines(log, count)
    except FileNotFoundError:
        return []
    return ["", f"the end of {shown or log}:", *(f"  {line}" for line in lines)] if lines else []
