"""Appends lines to a file below a header; a crash or a full disk loses one line at most."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections import deque
from collections.abc import Iterable
from pathlib import Path

from slurmopt.errors import one_line
from slurmopt.run_folder import events
from slurmopt.run_folder.access.files import make_folders, open_append, replace_bytes

_MOST_WAITING = 1000
"""Lines that are kept while they cannot be written: those of some hours."""


def padded(line: bytes, columns: int) -> bytes:
    """A row for more columns than there were when it was made."""
    missing = columns + 1 - line.count(b",")
    return line[:-1] + b",null" * missing + b"]"


class LineFile:
    """A file of lines that begins with a header, which is written again where it has changed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._written: bytes | None = None
        """The last header in the file; None where that is unknown."""
        self._waiting: deque[bytes] = deque(maxlen=_MOST_WAITING)
        self.size = 0
        self._complained = False

    def append(self, header: bytes, line: bytes, columns: int) -> None:
        """Appends a line, and those that could not be written before, below a header with so many columns."""
        self._waiting.append(line)
        lines = _all_padded(self._waiting, columns)
        try:
            self._append(b"\n".join([*([] if header == self._written else [header]), *lines, b""]))
        except OSError as error:
            self._has_failed(error)
        else:
            self._written = header
            self._waiting.clear()

    def _append(self, data: bytes) -> None:
        descriptor = self._open()
        try:
            size = os.fstat(descriptor).st_size
            if events.torn(descriptor):
                data = b"\n" + data
            if os.write(descriptor, data) < len(data):  # a part of it filled the disk
                os.ftruncate(descriptor, size)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path))
            self.size = size + len(data)
        finally:
            os.close(descriptor)

    def _open(self) -> int:
        try:
            return open_append(self._path)
        except FileNotFoundError:
            make_folders(self._path.parent)
            return open_append(self._path)

    def replace(self, header: bytes, lines: Iterable[bytes], columns: int) -> bool:
        """Replaces the file, with all lines that it is to have. False if that was not possible."""
        data = b"\n".join([header, *_all_padded(lines, columns), b""])
        try:
            replace_bytes(self._path, data)
        except OSError as error:
            self._has_failed(error)
            return False
        self._written, self.size = header, len(data)
        self._waiting.clear()
        return True

    def _has_failed(self, error: OSError) -> None:
        self._written = None
        if not self._complained:
            self._complained = True
            with contextlib.suppress(OSError):  # the log is on that file system too
                what = one_line(error.strerror or str(error))
                print(f"slurmopt: {self._path.name} of the sampler is not written: {what}", file=sys.stderr, flush=True)


def _all_padded(lines: Iterable[bytes], columns: int) -> list[bytes]:
    return [padded(line, columns) if line.startswith(b"[") else line for line in lines]
