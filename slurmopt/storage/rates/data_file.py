"""Sequential and random rates of one file, by direct I/O where the file system has it."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
import random
import time

from slurmopt.storage.rates.rate import MIB, Done, Rate

BLOCK = 4 * MIB
"""Bytes of one sequential write or read, as `dd bs=4M` has it."""
_SMALL = 4096
_NO_DIRECT = (errno.EINVAL, errno.EOPNOTSUPP)


class DataFile:
    """A file without a name, so that nothing is left even if this process is killed. A context manager."""

    def __init__(self, folder: int) -> None:
        name = f"data-{os.urandom(4).hex()}"
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        self._descriptor = os.open(name, flags, 0o600, dir_fd=folder)
        os.unlink(name, dir_fd=folder)
        self.is_direct = self._set_direct()
        # Ordinary pages, as those of other programs: huge ones, which checkpoints use, take fewer and larger requests.
        self._block = memoryview(mmap.mmap(-1, BLOCK))
        self._block[:] = os.urandom(BLOCK)  # some file systems compress, and zeros would be fast there
        self.bytes = 0

    def __enter__(self) -> DataFile:
        return self

    def __exit__(self, *exception: object) -> None:
        os.close(self._descriptor)

    def write(self, most: int, seconds: float, done: Done) -> Rate:
        """Writes up to `most` bytes from the start, until `seconds` are over, and makes them durable."""
        began = time.perf_counter()
        written = 0
        while written < most and time.perf_counter() - began < seconds:
            length = os.pwrite(self._descriptor, self._block[: most - written], written)
            written += length
            done(length)
        os.fsync(self._descriptor)
        took = time.perf_counter() - began
        self.bytes = max(self.bytes, written)
        return Rate("sequential write", "MiB/s", written, took, f"4 MiB blocks, {self._how}, fsync at the end")

    def read(self, seconds: float, done: Done) -> Rate:
        """Reads the file from its start, until `seconds` are over."""
        self._forget_cached()
        began = time.perf_counter()
        position = 0
        while position < self.bytes and time.perf_counter() - began < seconds:
            length = os.preadv(self._descriptor, [self._block], position)
            if not length:
                break
            position += length
            done(length)
        took = time.perf_counter() - began
        return Rate("sequential read", "MiB/s", position, took, f"4 MiB blocks, {self._how}")

    def random_reads(self, seconds: float) -> Rate:
        """Reads 4 KiB at random places, one after the other."""
        self._forget_cached()
        buffer = self._block[:_SMALL]
        count, took = self._randomly(seconds, lambda offset: os.preadv(self._descriptor, [buffer], offset))
        return Rate("random read", "operations/s", count, took, f"4 KiB, one at a time, {self._how}")

    def random_writes(self, seconds: float) -> Rate:
        """Writes 4 KiB at random places, one after the other, and makes them durable."""
        buffer = self._block[:_SMALL]
        began = time.perf_counter()
        count, _ = self._randomly(seconds, lambda offset: os.pwrite(self._descriptor, buffer, offset))
        os.fsync(self._descriptor)
        took = time.perf_counter() - began
        return Rate("random write", "operations/s", count, took, f"4 KiB, one at a time, {self._how}, fsync at the end")

    def _randomly(self, seconds: float, call: object) -> tuple[int, float]:
        assert callable(call)
        places = self.bytes // _SMALL
        choice = random.Random(0)  # noqa: S311 - the same places each time, so that runs can be compared
        began = time.perf_counter()
        count = 0
        while places and time.perf_counter() - began < seconds:
            call(choice.randrange(places) * _SMALL)
            count += 1
        return count, time.perf_counter() - began

    @property
    def _how(self) -> str:
        return "O_DIRECT" if self.is_direct else "buffered (this file system has no direct I/O)"

    def _set_direct(self) -> bool:
        flags = fcntl.fcntl(self._descriptor, fcntl.F_GETFL)
        try:
            fcntl.fcntl(self._descriptor, fcntl.F_SETFL, flags | os.O_DIRECT)
        except OSError as error:
            if error.errno in _NO_DIRECT:
                return False
            raise
        return True

    def _forget_cached(self) -> None:
        if not self.is_direct:
            with contextlib.suppress(OSError):
                os.posix_fadvise(self._descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
