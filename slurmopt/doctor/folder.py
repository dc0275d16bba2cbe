"""Checks of a folder: its file system, how long a small file takes, and the clock."""

from __future__ import annotations

import os
import shlex
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from slurmopt.checks.result import FAIL, PASS, WARN, CheckResult
from slurmopt.errors import why_failed
from slurmopt.storage.filesystem.usage import nearest_folder
from slurmopt.storage.inspection import inspect

_SKEW = 2.0
_SLOW = 0.5
"""Seconds for a small file, made, synced and removed."""


def folder_of_runs(runs: Path) -> Iterator[CheckResult]:
    """The folder, or its nearest parent that is there."""
    place = nearest_folder(runs.absolute())
    for result in folder(place):
        yield replace(result, text=f"{place}: {result.text}") if result.verdict != PASS else result


def folder(place: Path) -> Iterator[CheckResult]:
    """A folder that exists. Raises FileNotFoundError or NotADirectoryError."""
    os.stat(f"{place}/.")
    yield from inspect(place)
    if os.access(place, os.W_OK | os.X_OK):
        yield from _tried(place)


def _tried(place: Path) -> list[CheckResult]:
    """What a small file tells; where it cannot be written, the other findings still count."""
    try:
        return list(_written(place))
    except OSError as error:
        mend = f"slurmopt storage show {shlex.quote(str(place))}; launch with --folder DIR"
        return [CheckResult("speed of the folder", FAIL, f"no file can be written: {why_failed(error)}", mend)]


def _written(place: Path) -> Iterator[CheckResult]:
    """By a small file: how long that takes, and the clock of the file system."""
    began = time.time()
    with tempfile.NamedTemporaryFile(prefix=".slurmopt-doctor-", dir=place) as file:
        file.write(b"slurmopt")
        file.flush()
        os.fsync(file.fileno())
        stamp = os.fstat(file.fileno()).st_mtime
        ended = time.time()
    seconds, off = ended - began, max(began - stamp, stamp - ended)
    if seconds > _SLOW:
        text = f"a file of 8 bytes takes {seconds:.1f} s"
        yield CheckResult("speed of the folder", WARN, text, "is the file system overloaded? launch with --folder DIR")
    if off > _SKEW:
        text = f"this machine's clock is {off:.0f} s off the file system's"
        yield CheckResult("clock", WARN, text, "chronyc tracking; systemctl restart chronyd")
    else:
        yield CheckResult("clock", PASS, "as the file system's")
