"""A finding: something that is wrong or wasteful, how sure that is, what it costs, and one thing to change."""

from __future__ import annotations

from dataclasses import dataclass

CERTAIN, LIKELY, POSSIBLE = "certain", "likely", "possible"


@dataclass(frozen=True)
class Finding:
    """One finding of a report."""

    kind: str
    """A word of docs/findings.md, such as `input-bound`."""
    summary: str
    """What is wrong, in one line for people."""
    sure: str
    """How sure it is: CERTAIN, LIKELY, POSSIBLE."""
    evidence: tuple[str, ...]
    """What shows it, with numbers and units; one line each."""
    cost: float | None
    """GPU-hours (CPU-hours without GPUs) that it costs; None where that cannot be computed."""
    change: str
    """One thing to change: an override or a line of code."""
    node: str | None = None
    rank: int | None = None
    gpu: int | None = None


@dataclass(frozen=True)
class Abstention:
    """A kind of finding that could not be judged, and the signals that were missing."""

    kind: str
    missing: tuple[str, ...]
