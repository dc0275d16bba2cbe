"""The value of `--array`: which tasks, and how many at a time."""

from __future__ import annotations

import re

_PIECE = re.compile(r"(\d{1,9})(?:-(\d{1,9})(?::(\d{1,9}))?)?")
MOST = 100_000


def array_tasks(text: str) -> tuple[list[int], int | None]:
    """`1,3,5-9:2%4` → ([1, 3, 5, 7, 9], 4). ValueError if sbatch would not take it either."""
    pieces, _, limit = text.strip().strip("[]").partition("%")
    if limit and not (limit.isdecimal() and int(limit)):
        raise ValueError(f"{limit!r} is no number of tasks at a time")
    tasks: set[int] = set()
    for piece in pieces.split(","):
        tasks |= _range(piece.strip(), text)
        if len(tasks) > MOST:
            raise ValueError(f"{text!r} has more than {MOST:,} tasks")
    return sorted(tasks), int(limit) if limit else None


def _range(piece: str, text: str) -> set[int]:
    match = _PIECE.fullmatch(piece)
    if match is None:
        raise ValueError(f"{text!r} is no array; valid: 0-9, 1,3,5, 0-20:4, each with %LIMIT")
    first, last, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
    if last < first or not step:
        raise ValueError(f"{text!r} has an empty range")
    if (last - first) // step > MOST:
        raise ValueError(f"{text!r} has more than {MOST:,} tasks")
    return set(range(first, last + 1, step))
