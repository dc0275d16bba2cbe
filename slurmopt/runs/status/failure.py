"""Finds why a run failed: the rank that failed first, and its traceback."""

from __future__ import annotations

from dataclasses import dataclass

from slurmopt.run_folder.access.files import read_json
from slurmopt.run_folder.json_values import as_int, number, text
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.outcome import FINISHED, REQUEUE
from slurmopt.runs.status.progress import read


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
