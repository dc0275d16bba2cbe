"""Waits for the traces that ranks were asked for."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from slurmopt.run_folder import captures
from slurmopt.run_folder.captures import MEMORY, NOTICE, Capture
from slurmopt.run_folder.heartbeat import Heartbeat
from slurmopt.run_folder.json_values import as_int, number
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.traced_ranks import Ranks
from slurmopt.runs.profiling.request import attempt_ranks

_LOOKS_EVERY = 0.5
_ANSWER_SECONDS = 5.0
"""Seconds after the start of the traces until a rank counts as one that does not answer."""
_EXPORT_SECONDS = 960.0
_MEMORY_SECONDS = 120.0
"""Seconds after which a rank whose memory is recorded counts as one that makes no steps."""
_ENDS_EVERY = 2.0


def wait(run: RunFolder, capture: Capture, tell: Callable[[str], None]) -> dict[int, dict[str, Any]]:
    """Waits until each rank has stored its trace, or has failed to; returns what each has said, with `error` for those
    that have not answered. `tell` gets a line whenever something has changed."""
    began, looked, told = time.monotonic(), 0.0, dict[int, str]()
    while True:
        results = captures.results(run.capture(capture.name))
        _tell_changes(capture, results, told, tell)
        waiting = [rank for rank in capture.ranks if not captures.is_final(results.get(rank))]
        late = time.monotonic() - began - NOTICE
        if waiting and time.monotonic() - looked > _ENDS_EVERY:
            looked, ranks = time.monotonic(), attempt_ranks(run, capture.attempt)
            waiting = [rank for rank in waiting if not _has_ended(ranks.beat_of(rank))]
        if not any(late < _patience(capture, results.get(rank)) for rank in waiting):
            return _final(run, capture)
        time.sleep(_LOOKS_EVERY)


def _patience(capture: Capture, result: dict[str, Any] | None) -> float:
    if result is None:
        return _ANSWER_SECONDS
    return capture.seconds + (_MEMORY_SECONDS if capture.kind == MEMORY else _EXPORT_SECONDS)


def _has_ended(beat: Heartbeat | None) -> bool:
    return beat is not None and beat.outcome is not None


def _tell_changes(
    capture: Capture, results: dict[int, dict[str, Any]], told: dict[int, str], tell: Callable[[str], None]
) -> None:
    words = {"recording": "takes part", "writing": "is recorded, and being stored"}
    for rank in capture.ranks:
        state = str(results.get(rank, {}).get("state", ""))
        if state in words and told.get(rank) != state:
            told[rank] = state
            tell(f"rank {rank} {words[state]}")


def _final(run: RunFolder, capture: Capture) -> dict[int, dict[str, Any]]:
    """The last words of the ranks. Those that said none may just have ended, and have said it in the meantime."""
    ranks = attempt_ranks(run, capture.attempt)
    results = captures.results(run.capture(capture.name))
    what = "record" if capture.kind == MEMORY else "trace"
    for rank in capture.ranks:
        if not captures.is_final(results.get(rank)):
            results[rank] = {"error": _why_not(rank, results.get(rank), ranks, what)}
    return {rank: results[rank] for rank in capture.ranks}


def _why_not(rank: int, result: dict[str, Any] | None, ranks: Ranks, what: str) -> str:
    beat = ranks.beat_of(rank)
    if _has_ended(beat):
        return f"the rank ended before its {what} was complete"
    if beat is not None and beat.asked:
        return "it was asked to save and stop"
    if result is not None:
        return f"its {what} is not complete; the job goes on with it"
    state = "" if beat is None else f" It is in the phase {beat.phase}{_since_step(beat, ranks)}."
    return (
        f"it did not answer.{state} Only a process that has imported torch answers, and none that a profiler of its "
        "own traces or that holds the GIL in C code: slurmopt logs, or py-spy on the node, shows where it is"
    )


def _since_step(beat: Heartbeat, ranks: Ranks) -> str:
    """By the newest heartbeat of any rank: that of a rank which is stuck grows old itself."""
    step, at = as_int(beat.step), number(beat.step_time)
    if step is None or at is None:
        return ""
    now = max(number(each.time) or at for each in ranks.beats.values())
    return f", and made step {step} {max(0.0, now - at):.0f} s ago"
