"""Measures all rates of a folder, one part after the other; a part that fails does not hide the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from slurmopt.checks.result import CheckResult
from slurmopt.errors import why_failed
from slurmopt.storage.rates.data_file import DataFile
from slurmopt.storage.rates.many_files import MOST_FILES, metadata, small_files
from slurmopt.storage.rates.rate import Done, Rate
from slurmopt.storage.rates.verdicts import verdict
from slurmopt.storage.rates.workplace import workplace

SMALL_BYTES = MOST_FILES * 16 * 1024
"""What small files take at most."""
Measured = tuple["Rate | None", CheckResult]


def measure(folder: Path, most_bytes: int, seconds: float, done: Done) -> list[Measured]:
    """Each rate with its verdict. `seconds` are for each of the nine rates; `most_bytes` for the large file. `done`
    gets numbers of bytes, of `2 * most_bytes`."""
    found: list[Measured] = []
    with workplace(folder) as place:
        for name, part in (
            ("one large file", lambda: _large(place, most_bytes, seconds, done)),
            ("small files", lambda: iter(small_files(place, seconds))),
            ("metadata", lambda: iter(metadata(place, seconds))),
        ):
            found += _part(name, part)
    return found


def _part(name: str, part: Callable[[], Iterator[Rate]]) -> list[Measured]:
    found: list[Measured] = []
    try:
        for rate in part():
            found.append((rate, verdict(rate)))
    except OSError as error:
        found.append((None, CheckResult(name, "fail", why_failed(error), "slurmopt storage show says what is full")))
    return found


def _large(place: int, most_bytes: int, seconds: float, done: Done) -> Iterator[Rate]:
    with DataFile(place) as file:
        yield file.write(most_bytes, seconds, done)
        yield file.read(seconds, done)
        yield file.random_reads(min(seconds, 1.0))
        yield file.random_writes(min(seconds, 1.0))
