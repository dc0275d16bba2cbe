"""Converts between Slurm's notation for time and memory and numbers: "04:00:00" and 14400 s, "80GB" and bytes."""

from __future__ import annotations

import contextlib
import re
from typing import Literal

_TIME_UNITS = {"s": 1, "sec": 1, "min": 60, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_WORD = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]+)")
_STEPS = re.compile(r"(\d{1,15})(?:\s*steps?)?")
_MEMORY = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGTP]?)(?:i?B)?", re.IGNORECASE)
_LONGEST = 10 * 366 * 86400
"""Ten years. More is a mistake, and overflows 32-bit counters."""
_MOST_BYTES = 2.0**60
"""No node has as much."""
_LONGEST_TEXT = 100
"""Characters of a time."""
TIME_FORMS = 'minutes, "MM:SS", "HH:MM:SS", "D-HH", "D-HH:MM:SS", or words such as "90m", "4h", "1d 12h"'
INTERVAL_FORMS = 'a number of steps such as 50, a time with a unit such as "10min", or auto'
MEMORY_FORMS = 'a number with K, M, G or T such as "80GB" (powers of 1024, as in Slurm; a bare number is megabytes)'


def seconds(text: str | int | float) -> int:
    """Seconds of a time as sbatch reads it: a bare number is minutes, then Slurm's colon forms and words with units.

    Raises ValueError naming the valid forms. "UNLIMITED" is not a time here: ask for the limit you want.
    """
    text = str(text).strip().lower()
    total = _slurm_time(text) if len(text) <= _LONGEST_TEXT else None
    if total is None and len(text) <= _LONGEST_TEXT:
        total = _words_time(text)
    if total is None:
        raise ValueError(f"not a time: {text[:_LONGEST_TEXT]!r}; valid are {TIME_FORMS}")
    if not 0 < total <= _LONGEST:
        raise ValueError(f"not a time: {text!r}; valid are 1 second to ten years")
    return total


def steps_or_seconds(value: str | int) -> tuple[Literal["steps", "seconds", "auto"], int]:
    """Parses an interval: ("steps", 50), ("seconds", 600), or ("auto", 0).

    A bare number is steps here, other than in `seconds`. Raises ValueError naming the valid forms.
    """
    text = str(value).strip().lower()
    if text == "auto":
        return "auto", 0
    if match := _STEPS.fullmatch(text):
        if steps := int(match[1]):
            return "steps", steps
    else:
        with contextlib.suppress(ValueError):
            return "seconds", seconds(text)
    raise ValueError(f"not a number of steps or a time: {text!r}; valid: {INTERVAL_FORMS}")


def _slurm_time(text: str) -> int | None:
    match = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", text)
    if match is None:
        return None
    days, *rest = match.groups()
    parts = [int(part) for part in rest if part is not None]
    if days is not None:  # D-HH[:MM[:SS]]
        hours, minutes, secs = (*parts, 0, 0)[:3]
        return ((int(days) * 24 + hours) * 60 + minutes) * 60 + secs
    if len(parts) == 1:  # minutes
        return parts[0] * 60
    if len(parts) == 2:  # MM:SS
        return parts[0] * 60 + parts[1]
    return (parts[0] * 60 + parts[1]) * 60 + parts[2]


def _words_time(text: str) -> int | None:
    total, rest = 0.0, text
    while rest:
        match = _WORD.match(rest)
        if match is None or match[2] not in _TIME_UNITS:
            return None
        total += float(match[1]) * _TIME_UNITS[match[2]]
        rest = rest[match.end() :].strip()
    return int(min(total, 2.0 * _LONGEST)) if text else None  # infinity is no int


def slurm_time(total_seconds: int) -> str:
    """The form that every Slurm command takes: "D-HH:MM:SS" from a day on, else "HH:MM:SS"."""
    days, rest = divmod(int(total_seconds), 86400)
    clock = f"{rest // 3600:02d}:{rest % 3600 // 60:02d}:{rest % 60:02d}"
    return f"{days}-{clock}" if days else clock


def mebibytes(text: str | int | float) -> int:
    """MiB of a memory size as sbatch reads it: "80G", "80GB" and "80GiB" alike are 81920; a bare number is MiB."""
    match = _MEMORY.fullmatch(str(text).strip())
    if match is None:
        raise ValueError(f"not a memory size: {str(text)!r}; valid is {MEMORY_FORMS}")
    exponent = " KMGTP".index((match[2] or "M").upper())
    if float(match[1]) * 1024**exponent > _MOST_BYTES:
        raise ValueError(f"not a memory size: {str(text)[:40]!r}; valid is up to 1 EiB")
    # Slurm rounds kilobytes up to a whole megabyte.
    return max(1, -int(-float(match[1]) * 1024**exponent // 1024**2)) if float(match[1]) else 0


def byte_count(text: str) -> int:
    """Bytes of a size such as "256M", "1.5 GB" or "4096": powers of 1024; a bare number is bytes. Raises ValueError."""
    match = _MEMORY.fullmatch(text.strip())
    if match is None:
        raise ValueError(
            f'not a size: {text[:40]!r}; valid is a number of bytes, or one with K, M, G or T such as "4G"'
        )
    count = float(match[1]) * 1024 ** " KMGTP".index(match[2].upper() or " ")
    if count > _MOST_BYTES:
        raise ValueError(f"not a size: {text[:40]!r}; valid is up to 1 EiB")
    return int(count)


def human_bytes(count: float) -> str:
    """Bytes as a person reads them, in powers of 1024: "1.5 GiB"."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(count) < 1024 or unit == "TiB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    raise AssertionError("unreachable")


def human_seconds(total: float) -> str:
    """A duration as a person reads it: "45s", "3m20s", "2h05m", "3d04h"."""
    total = max(0, round(total))
    if total < 60:
        return f"{total}s"
    if total < 3600:
        return f"{total // 60}m{total % 60:02d}s"
    if total < 86400:
        return f"{total // 3600}h{total % 3600 // 60:02d}m"
    return f"{total // 86400}d{total % 86400 // 3600:02d}h"


def human_count(value: float) -> str:
    """Three digits and no exponent: `1,300,000`, `123`, `0.62`."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
