"""Reads small files of the kernel: numbers, and lines of a name and a number."""

from __future__ import annotations

import os
from pathlib import Path


def text(path: Path | str) -> str | None:
    """The content; None where there is no such file, or it is not for this user."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        data = os.read(descriptor, 1 << 16)
        while piece := os.read(descriptor, 1 << 16):
            data += piece
    except OSError:  # the process has ended, or the port has no such counter
        return None
    finally:
        os.close(descriptor)
    return data.decode(errors="replace")


def number(path: Path | str) -> int | None:
    """The number in a file; None where there is none, as in `max` and in N/A."""
    try:
        return int(text(path) or "")
    except ValueError:
        return None


def table(path: Path | str) -> dict[str, int]:
    """The lines `name number` or `name: number` of a file."""
    found: dict[str, int] = {}
    for line in (text(path) or "").splitlines():
        words = line.split()
        if len(words) >= 2 and words[1].isdecimal():
            found[words[0].rstrip(":")] = int(words[1])
    return found
