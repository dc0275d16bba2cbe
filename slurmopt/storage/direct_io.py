"""Files that are read and written by direct I/O where the file system supports it."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import stat
from collections.abc import Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path

from slurmopt.errors import StorageError

ALIGNMENT = 4096
"""Bytes: the alignment of addresses, offsets and lengths that direct I/O requires on all known file systems."""
_WRITERS = 2
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK  # without O_NONBLOCK, opening a FIFO would block
_NOT_DIRECT = (errno.EINVAL, errno.ENOTSUP)


class OutputFile:
    """A new file, written by two threads at a time."""

    def __init__(self, path: Path) -> None:
        self._descriptor = _open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, direct=True)
        self._direct = bool(fcntl.fcntl(self._descriptor, fcntl.F_GETFL) & os.O_DIRECT)
        self._pool = ThreadPoolExecutor(_WRITERS, thread_name_prefix="slurmopt-write")
        self._pending: set[Future[None]] = set()

    def __enter__(self) -> OutputFile:
        return self

    def __exit__(self, *exception: object) -> None:
        self._pool.shutdown(cancel_futures=True)
        os.close(self._descriptor)

    def write(self, pieces: Iterable[memoryview]) -> None:
        offset = 0
        for piece in pieces:
            if self._direct and not is_aligned(piece, offset):
                self._disable_direct()
            self._pending.add(self._pool.submit(self._write_piece, piece, offset))
            offset += len(piece)
            self._settle(_WRITERS)
        self._settle(0)
        os.fsync(self._descriptor)

    def _settle(self, most: int) -> None:
        """Waits until at most `most` pieces are in flight. Raises the error of a piece that failed."""
        while len(self._pending) > most:
            done, self._pending = wait(self._pending, return_when=FIRST_COMPLETED)
            for future in done:
                future.result()

    def _disable_direct(self) -> None:
        self._settle(0)
        flags = fcntl.fcntl(self._descriptor, fcntl.F_GETFL)
        fcntl.fcntl(self._descriptor, fcntl.F_SETFL, flags & ~os.O_DIRECT)
        self._direct = False

    def _write_piece(self, piece: memoryview, offset: int) -> None:
        while piece:
            count = os.pwrite(self._descriptor, piece, offset)
            piece, offset = piece[count:], offset + count


def open_to_read(path: Path, direct: bool) -> int:
    """Opens a regular file for reading; raises for anything else."""
    descriptor = _open(path, _READ, direct)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    raise StorageError(f"{path} is not a regular file")


def _open(path: Path, flags: int, direct: bool) -> int:
    if direct:
        try:
            return os.open(path, flags | os.O_DIRECT, 0o600)
        except OSError as error:
            if error.errno not in _NOT_DIRECT:
                raise
            # On a file system without direct I/O the failed open may have created the file.
            if flags & os.O_EXCL:
                path.unlink(missing_ok=True)
    return os.open(path, flags, 0o600)


def is_aligned(buffer: memoryview, offset: int) -> bool:
    """Whether `buffer` can be read or written at `offset` by direct I/O."""
    return (offset | len(buffer) | address(buffer)) % ALIGNMENT == 0


def address(buffer: memoryview) -> int:
    """The address of `buffer`'s first byte in memory."""
    if not len(buffer):
        return 0
    if buffer.readonly:  # ctypes rejects read-only buffers; these are small, and aligned only by chance
        return 1
    return ctypes.addressof(ctypes.c_char.from_buffer(buffer))


def read_exactly(descriptor: int, offset: int, buffer: memoryview, path: Path) -> None:
    """Fills `buffer` from `offset` on. StorageError, naming `path`, where the file is too short."""
    while buffer:
        count = os.preadv(descriptor, [buffer], offset)
        if count == 0:
            raise StorageError(f"{path} ends at byte {offset:,}, {len(buffer):,} bytes too early")
        buffer, offset = buffer[count:], offset + count
