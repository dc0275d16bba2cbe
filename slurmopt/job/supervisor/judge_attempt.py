"""Which rank ended an attempt, and how: the ranks' own accounts as one verdict. A value: no files are read here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from slurmopt.job.failures import is_peer_lost
from slurmopt.run_folder.heartbeat import Heartbeat
from slurmopt.run_folder.outcome import EXIT_STATUS, FINISHED, INFRASTRUCTURE, KILLED, REQUEUE, USER_ERROR


@dataclass
class Verdict:
    """How the attempt ended, and because of which rank."""

    outcome: str
    attempt: int
    exit_code: int
    rank: int | None = None
    node: str | None = None
    error: str | None = None
    traceback: str | None = None
    result: Any = None
    others: list[str] | None = None
    """One line for each other rank that did not finish."""


Beats = dict[int, Heartbeat]
_FAILURES = (USER_ERROR, INFRASTRUCTURE, KILLED)


def judge(beats: Beats, attempt: int, ranks: int, step_exit: int) -> Verdict:
    """The first failure decides: a rank's own error, then ranks without an outcome, then failures that only
    followed."""
    silent = [rank for rank in range(ranks) if rank not in beats or beats[rank].outcome is None]
    failed = sorted((rank for rank in beats if kind_of(beats[rank]) in _FAILURES), key=_time_in(beats))
    wishes = [rank for rank in sorted(beats) if kind_of(beats[rank]) == REQUEUE]
    causes = [rank for rank in failed if not is_peer_lost(_field(beats[rank], "error"))]
    if causes:
        return _because_of(causes[0], beats, attempt)
    if wishes and not silent:  # who saved and left first is a lost peer to the others
        return Verdict(REQUEUE, attempt, EXIT_STATUS[REQUEUE], wishes[0], error=_field(beats[wishes[0]], "error"))
    if silent:
        return _because_of_silence(silent, beats, attempt, ranks, step_exit)
    if failed:
        return _because_of(failed[0], beats, attempt)
    return Verdict(FINISHED, attempt, 0, result=_field(beats[0], "result"))


def judge_early(why: str, attempt: int, exit_code: int, node: str | None) -> Verdict:
    """The verdict if the batch shell ended before the training: infrastructure, unless the user's setup failed."""
    outcome = INFRASTRUCTURE if exit_code == EXIT_STATUS[INFRASTRUCTURE] else USER_ERROR
    return Verdict(outcome, attempt, exit_code, node=node, error=why)


def _because_of(rank: int, beats: Beats, attempt: int) -> Verdict:
    account = beats[rank].outcome or {}
    blamed = account.get("nodes")  # of a failed health check: another node, or none
    return Verdict(
        account["outcome"],
        attempt,
        account.get("exit_code") or 1,
        rank,
        beats[rank].node if blamed is None else next(iter(blamed), None),
        account.get("error"),
        account.get("traceback"),
    )


def _because_of_silence(silent: list[int], beats: Beats, attempt: int, ranks: int, step_exit: int) -> Verdict:
    if not beats:
        error = f"no rank started: the step ended with exit status {step_exit}"
        return Verdict(INFRASTRUCTURE, attempt, EXIT_STATUS[INFRASTRUCTURE], error=error)
    first = silent[0]
    node = beats[first].node if first in beats else None
    error = f"{named(silent)} of {ranks} ended without a report: killed from outside, or its node was lost"
    return Verdict(KILLED, attempt, EXIT_STATUS[KILLED], first, node, error)


def kind_of(beat: Heartbeat) -> str | None:
    return None if beat.outcome is None else str(beat.outcome.get("outcome"))


def _field(beat: Heartbeat, name: str) -> Any:
    return (beat.outcome or {}).get(name)


def _time_in(beats: Beats) -> Any:
    return lambda rank: _field(beats[rank], "time") or 0.0


def numbers(ranks: list[int]) -> str:
    """Ranks as a person writes them: "0, 2-5"."""
    spans: list[list[int]] = []
    for rank in sorted(ranks):
        if spans and rank == spans[-1][1] + 1:
            spans[-1][1] = rank
        else:
            spans.append([rank, rank])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in spans)


def other_failures(verdict: Verdict, beats: Beats, ranks: int) -> list[str]:
    """One line for each other rank that did not finish."""
    failed = [rank for rank in sorted(beats) if rank != verdict.rank and kind_of(beats[rank]) in _FAILURES]
    bereft = [rank for rank in failed if is_peer_lost(_field(beats[rank], "error"))]
    silent = [r for r in range(ranks) if r != verdict.rank and (r not in beats or beats[r].outcome is None)]
    lines = [
        f"{named([rank])} on {beats[rank].node}: {kind_of(beats[rank])}: {_field(beats[rank], 'error')}"
        for rank in failed
        if rank not in bereft
    ]
    lines += [f"{named(bereft)}: lost the connection to another rank"] if bereft else []
    return lines + ([f"{named(silent)}: ended without a report"] if silent else [])


def named(some: list[int]) -> str:
    return f"rank {some[0]}" if len(some) == 1 else f"ranks {numbers(some)}"
