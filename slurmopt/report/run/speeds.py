"""Tells how fast an attempt was, from the heartbeats of its ranks: tokens, samples and FLOP per second."""

from __future__ import annotations

from collections.abc import Sequence

from slurmopt.run_folder.heartbeat import Heartbeat
from slurmopt.run_folder.json_values import number


def rates(beats: Sequence[Heartbeat]) -> dict[str, float]:
    """Tokens, samples and FLOP per second of all ranks of an attempt, from its first reported step to its last; those
    that were counted. What the first step did came before, and its share of the count is left out."""
    found: dict[str, float] = {}
    for name in ("tokens", "samples", "flops", "hardware_flops"):
        each = [rate for beat in beats if (rate := _rate(beat, name)) is not None]
        if each:
            found[name] = sum(each)
    return found


def _rate(beat: Heartbeat, name: str) -> float | None:
    counts = beat.counted if isinstance(beat.counted, dict) else {}
    counted, steps = number(counts.get(name)), number(counts.get("steps"))
    since, until = number(beat.first_step_time), number(beat.step_time)
    if counted is None or steps is None or steps <= 1 or since is None or until is None or until <= since:
        return None
    return counted * (steps - 1) / steps / (until - since)
