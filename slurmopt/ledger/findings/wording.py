"""Numbers of findings as text, with their units."""

from __future__ import annotations

from collections.abc import Sequence

from slurmopt.units import human_bytes


def percent(share: float) -> str:
    """A share of 1 as percent: 0.123 is "12 %"."""
    value = 100 * share
    return f"{value:.1f} %" if 0 < value < 10 else f"{value:.0f} %"


def bytes_per_second(rate: float) -> str:
    """A rate in powers of 1024."""
    return f"{human_bytes(rate)}/s"


def amount(value: float) -> str:
    """A number of steps, samples or tokens per second."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def milliseconds(seconds: float) -> str:
    """A duration of a step or a part of it."""
    return f"{1000 * seconds:.1f} ms" if seconds < 0.1 else f"{1000 * seconds:.0f} ms"


def named(names: Sequence[object], most: int = 4) -> str:
    """The first names of a list, and how many there are more."""
    more = len(names) - most
    return ", ".join(map(str, names[:most])) + (f" and {more} more" if more > 0 else "")
