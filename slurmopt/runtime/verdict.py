"""The verdict on an attempt, from the ranks' own accounts: not from srun's exit status, which tells too little.

python -m slurmopt.runtime.verdict FOLDER ATTEMPT RANKS STEP_EXIT_CODE
"""

from __future__ import annotations

import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from slurmopt.folder import events, heartbeat
from slurmopt.folder.files import replace_json
from slurmopt.folder.heartbeat import Heartbeat
from slurmopt.folder.layout import RunFolder
from slurmopt.folder.outcome import EXIT_STATUS, FINISHED, INFRASTRUCTURE, KILLED, REQUEUE, USER_ERROR
from slurmopt.runtime.failures import is_peer_lost
from slurmopt.runtime.logtail import last_traceback

_SETTLE_SECONDS = 10.0


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


def judge(beats: Beats, attempt: int, ranks: int, step_exit: int) -> Verdict:
    """The first cause wins: a rank's own error, then ranks that ended without a word, then what only followed."""
    silent = [rank for rank in range(ranks) if rank not in beats or beats[rank].outcome is None]
    failed = sorted((r for r in beats if _kind(beats[r]) in (USER_ERROR, INFRASTRUCTURE, KILLED)), key=_time_in(beats))
    wishes = [rank for rank in sorted(beats) if _kind(beats[rank]) == REQUEUE]
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


def _because_of(rank: int, beats: Beats, attempt: int) -> Verdict:
    account = beats[rank].outcome or {}
    return Verdict(
        account["outcome"],
        attempt,
        account.get("exit_code") or 1,
        rank,
        beats[rank].node,
        account.get("error"),
        account.get("traceback"),
    )


def _because_of_silence(silent: list[int], beats: Beats, attempt: int, ranks: int, step_exit: int) -> Verdict:
    if not beats:
        error = f"no rank started: the step ended with exit status {step_exit}"
        return Verdict(INFRASTRUCTURE, attempt, EXIT_STATUS[INFRASTRUCTURE], error=error)
    first = silent[0]
    node = beats[first].node if first in beats else None
    error = f"{_ranks(silent)} of {ranks} ended without a word: killed (out of memory, cancelled, a node lost?)"
    return Verdict(KILLED, attempt, EXIT_STATUS[KILLED], first, node, error)


def _kind(beat: Heartbeat) -> str | None:
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


def settled(folder: RunFolder, attempt: int, ranks: int, step_exit: int) -> Beats:
    """The ranks' last heartbeats. Another node's last write may show late on a network file system: it is waited for
    as long as it must come, because the step says that all went well, or briefly where one may never come."""
    deadline = time.monotonic() + (_SETTLE_SECONDS if step_exit == 0 else 1.0)
    while True:
        beats = _read_all(folder, attempt, ranks)
        if len(beats) == ranks and all(beat.outcome for beat in beats.values()):
            return beats
        if time.monotonic() >= deadline:
            return beats
        time.sleep(0.2)


def _read_all(folder: RunFolder, attempt: int, ranks: int) -> Beats:
    found: Beats = {}
    for rank in range(ranks):
        try:
            beat = heartbeat.read(folder.heartbeat(attempt, rank))
        except OSError:  # a stale NFS handle: the file was replaced just now; the next look finds the new one
            continue
        if beat is not None:
            found[rank] = beat
    return found


def _with_log(verdict: Verdict, folder: RunFolder) -> Verdict:
    """A command's traceback is in its log alone; by now all of it has been written."""
    if verdict.outcome not in (USER_ERROR, INFRASTRUCTURE) or verdict.traceback:
        return verdict
    tail = last_traceback(folder.rank_log(verdict.attempt, verdict.rank or 0))
    if tail is not None:
        verdict.traceback = tail
        verdict.error = f"{verdict.error}: {tail.strip().splitlines()[-1]}"
    return verdict


def _others(verdict: Verdict, beats: Beats, ranks: int) -> list[str]:
    failed = [r for r in sorted(beats) if r != verdict.rank and _kind(beats[r]) in (USER_ERROR, INFRASTRUCTURE, KILLED)]
    bereft = [rank for rank in failed if is_peer_lost(_field(beats[rank], "error"))]
    silent = [r for r in range(ranks) if r != verdict.rank and (r not in beats or beats[r].outcome is None)]
    lines = [
        f"{_ranks([rank])} on {beats[rank].node}: {_kind(beats[rank])}: {_field(beats[rank], 'error')}"
        for rank in failed
        if rank not in bereft
    ]
    lines += [f"{_ranks(bereft)}: lost the connection to another rank"] if bereft else []
    return lines + ([f"{_ranks(silent)}: ended without a word"] if silent else [])


def _ranks(some: list[int]) -> str:
    return f"rank {some[0]}" if len(some) == 1 else f"ranks {numbers(some)}"


def story(verdict: Verdict, folder: RunFolder) -> str:
    """What happened, for the job's log: the first failing rank's traceback first."""
    head = f"slurmopt: attempt {verdict.attempt}: {verdict.outcome}"
    if verdict.outcome == FINISHED:
        return head
    where = "" if verdict.rank is None else f" in rank {verdict.rank}" + (f" on {verdict.node}" if verdict.node else "")
    if verdict.outcome == REQUEUE:
        return f"{head}: rank {verdict.rank} saved and asked to be started again"
    lines = [f"{head}{where}: {verdict.error}"]
    if verdict.traceback and verdict.traceback.strip() != verdict.error:
        lines.append(verdict.traceback.rstrip())
    others = verdict.others or []
    lines += [f"  then {line}" for line in others[:5]] + ([f"  and {len(others) - 5} more"] if len(others) > 5 else [])
    log = folder.rank_log(verdict.attempt, verdict.rank or 0)
    return "\n".join([*lines, f"  log: {log if verdict.rank is not None else folder.logs}"])


def main(argv: list[str]) -> int:
    """Judges, writes result.json and the event, prints the story; the exit status is the outcome's."""
    folder, attempt, ranks, step_exit = RunFolder(Path(argv[0]).absolute()), int(argv[1]), int(argv[2]), int(argv[3])
    beats = settled(folder, attempt, ranks, step_exit)
    verdict = _with_log(judge(beats, attempt, ranks, step_exit), folder)
    verdict.others = _others(verdict, beats, ranks)
    (folder.path / "requeue").unlink(missing_ok=True)  # a wish is for one attempt
    replace_json(folder.result, {**asdict(verdict), "time": time.time(), "ranks": ranks, "step_exit_code": step_exit})
    said = {"outcome": verdict.outcome, "exit_code": verdict.exit_code, "rank": verdict.rank, "error": verdict.error}
    events.append(folder.events, "end", attempt=attempt, **said)
    print(story(verdict, folder), flush=True)
    return EXIT_STATUS[verdict.outcome]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
