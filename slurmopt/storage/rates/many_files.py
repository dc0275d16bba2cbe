"""Rates of small files and of metadata, in one folder."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable

from slurmopt.storage.rates.rate import Rate

MOST_FILES = 5_000
_BYTES = 16 * 1024
"""Of a small file: an image or a text of a dataset that is not packed."""
_READ = os.O_RDONLY | os.O_NOFOLLOW
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW


def small_files(folder: int, seconds: float, most: int = MOST_FILES) -> list[Rate]:
    """Writes files of 16 KiB, reads them back in another order, and removes them."""
    content = os.urandom(_BYTES)

    def write(name: str) -> None:
        _with(os.open(name, _NEW, 0o600, dir_fd=folder), lambda file: os.write(file, content))

    def read(name: str) -> None:
        _with(os.open(name, _READ, dir_fd=folder), lambda file: os.read(file, _BYTES))

    made, took = _each(write, (f"small-{number}" for number in range(most)), seconds)
    written = Rate("small file write", "operations/s", len(made), took, "16 KiB each: create, write, close; no fsync")
    _settle(folder, made)
    found, took = _each(read, reversed(made), seconds)
    how = "16 KiB each: open, read, close; from the client's cache where that keeps them"
    _remove(folder, made)
    return [written, Rate("small file read", "operations/s", len(found), took, how)]


def metadata(folder: int, seconds: float, most: int = MOST_FILES) -> list[Rate]:
    """Creates empty files, asks for their facts, renames and removes them."""
    names = (f"empty-{number}" for number in range(most))
    made, took = _each(lambda name: _with(os.open(name, _NEW, 0o600, dir_fd=folder)), names, seconds)
    rates = [Rate("create", "operations/s", len(made), took, "empty files")]
    found, took = _each(lambda name: os.stat(name, dir_fd=folder, follow_symlinks=False), made, seconds)
    rates.append(Rate("stat", "operations/s", len(found), took, "of these files"))
    gone, took = _each(lambda name: os.unlink(name, dir_fd=folder), made, seconds)
    rates.append(Rate("remove", "operations/s", len(gone), took, "of these files"))
    _remove(folder, made[len(gone) :])
    return rates


def _each(call: Callable[[str], object], names: Iterable[str], seconds: float) -> tuple[list[str], float]:
    """The names for which `call` was made until `seconds` are over, and what that took."""
    done = []
    began = time.perf_counter()
    for name in names:
        if time.perf_counter() - began >= seconds:
            break
        call(name)
        done.append(name)
    return done, time.perf_counter() - began


def _with(file: int, use: Callable[[int], object] = lambda file: None) -> None:
    try:
        use(file)
    finally:
        os.close(file)


def _settle(folder: int, names: list[str]) -> None:
    """Has the kernel drop the content, where it is written already."""
    for name in names:
        file = os.open(name, _READ, dir_fd=folder)
        try:
            os.fdatasync(file)
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(file)


def _remove(folder: int, names: Iterable[str]) -> None:
    for name in names:
        os.unlink(name, dir_fd=folder)
