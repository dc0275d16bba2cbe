"""A private folder for a benchmark, in a place that has room for it, and gone afterwards."""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from slurmopt.errors import InputError, one_line, why_failed
from slurmopt.storage.filesystem.usage import Usage, usage_of
from slurmopt.units import human_bytes

PREFIX = ".slurmopt-bench-"
_SPARE = 0.02
"""Share of the file system that stays free: some stop at less."""


def check_room(
    folder: Path, needed: int, files: int, least: int, usage: Usage | None = None, quota_left: int | None = None
) -> None:
    """Raises InputError where `folder` lacks the space for `needed` bytes in `files` files; with smaller
    --bytes it would be `least`."""
    usage = usage or usage_of(folder)
    if usage.is_read_only:
        raise InputError(one_line(f"{folder} is mounted read-only: nothing can be measured there"))
    spare = int(_SPARE * usage.bytes)
    free = usage.free_bytes if quota_left is None else min(usage.free_bytes, quota_left)
    if free < needed + spare:
        smaller = "give a smaller --bytes, or " if free >= least + spare else ""
        raise InputError(
            one_line(
                f"{folder} has {human_bytes(free)} free; measuring takes {human_bytes(needed)} and leaves "
                f"{human_bytes(spare)} free: {smaller}make room"
            )
        )
    if usage.inodes and usage.free_inodes < 2 * files:
        raise InputError(one_line(f"{folder} has {usage.free_inodes:,} inodes left, and measuring takes {files:,}"))


@contextlib.contextmanager
def workplace(folder: Path) -> Iterator[int]:
    """A descriptor of a new folder within `folder` that only this user can enter; removed at the end, also after Ctrl-C
    and SIGTERM. Raises InputError where none can be made."""
    try:
        path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=folder))
    except OSError as error:
        raise InputError(one_line(f"{folder}: no file can be made there: {why_failed(error)}")) from error
    # All is made and removed below the descriptor: whoever puts another folder in the place of this one gains nothing.
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        with _terminates():
            yield descriptor
    finally:
        with _uninterrupted(), contextlib.suppress(OSError):
            _remove(path, descriptor)


def _remove(path: Path, descriptor: int) -> None:
    try:
        for name in os.listdir(descriptor):
            os.unlink(name, dir_fd=descriptor)
    finally:
        os.close(descriptor)
        path.rmdir()  # only an empty one


@contextlib.contextmanager
def _terminates() -> Iterator[None]:
    """SIGTERM, as `timeout` and Slurm send it, ends the block like Ctrl-C."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """A second Ctrl-C waits until the block has ended."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = {signal.SIGINT, signal.SIGTERM}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
