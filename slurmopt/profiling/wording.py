"""A sentence about a profile, and numbers and names as sentences have them."""

from __future__ import annotations

from dataclasses import dataclass, field

from slurmopt.errors import one_line
from slurmopt.units import human_seconds

_NAME = 60
"""Characters of a name."""


@dataclass(frozen=True)
class Sentence:
    """A statement about a profile."""

    text: str
    share: float
    """The part of the time that it is about, 0 to 1."""
    evidence: list[str] = field(default_factory=list)
    """The rows that it follows from."""


def shown(name: str) -> str:
    """A name out of a trace for people: on one line, and not too long."""
    text = one_line(name)
    return text if len(text) <= _NAME else f"{text[: _NAME - 1]}…"


def calls_text(calls: int, steps: int) -> str:
    """Such as 4 calls a step; of a trace without whole steps all calls."""
    return f"{calls / steps:,.0f} calls a step" if steps else f"{calls:,} calls"


def duration(seconds: float) -> str:
    """Such as 3.2 µs, 4.1 ms, 2.5 s."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.3g} µs"
    if seconds < 1:
        return f"{seconds * 1e3:.3g} ms"
    return f"{seconds:.3g} s" if seconds < 100 else human_seconds(seconds)
