"""Reads logs that still grow, a piece at a time, whatever bytes they contain."""

from __future__ import annotations

import codecs
import io
import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from slurmopt import command_output
from slurmopt.errors import one_line, plain_lines
from slurmopt.run_folder.access.files import data_end, data_to_read, next_data, open_regular
from slurmopt.run_folder.access.owner import is_trusted
from slurmopt.units import human_bytes

_PIECE = 1 << 20
MOST = 1 << 30
"""Bytes of the largest log that is shown whole; of a larger one only the end is."""
_END = 16 << 20
_ZEROS = 4096
"""Consecutive zero bytes from which a note is shown instead. Crashes, full disks and sparse files leave them."""
_MANY_ZEROS = re.compile(rb"\0{%d,}" % _ZEROS)


class Tail:
    """One log: `read` yields what was added since the last call. A log that does not exist yet is empty.

    `is_own`: whether the run is this user's own, so that its log is shown as it is. In another user's log, control
    characters are shown as escapes, and a carriage return begins a new line.
    """

    def __init__(self, path: Path, is_own: bool) -> None:
        self.path = path
        self._is_own = is_own
        self._position = 0
        self._zeros = 0
        """Zero bytes at the end of what was read, which are not shown yet."""
        self._decoder = self._new_decoder()

    def read(self) -> Iterator[str]:
        """The new text, a piece at a time. Bytes that are not UTF-8 are replaced, and many consecutive zero bytes are
        shown as a note. Of a very large log only the end is shown, with a line on stderr."""
        try:
            file = open_regular(self.path)
        except FileNotFoundError:
            return
        with file:
            if self._is_own and not is_trusted(os.fstat(file.fileno()), self.path.parent):
                self._is_own = False
                self._decoder = self._new_decoder()
            if not self._position:
                self._position = self._start(file)
            file.seek(self._position)
            while piece := file.read(_PIECE):
                self._position += len(piece)
                if self._zeros or b"\0" in piece:
                    piece = self._without_zeros(piece)
                if piece:
                    yield self._shown(piece)
                else:  # a sparse file may have a terabyte of zeros
                    start = file.seek(next_data(file.fileno(), self._position))
                    self._zeros, self._position = self._zeros + start - self._position, start
            yield self._shown(self._rest_of_zeros())

    def _start(self, file: BinaryIO) -> int:
        """The offset from which the log is shown: its beginning, or the start of a line near its end."""
        if data_to_read(file.fileno()) <= MOST:
            return 0
        size = data_end(file.fileno())
        start = file.seek(size - _END) + len(file.readline(_END >> 1))
        command_output.warn(
            f"this log has {human_bytes(size)}, and these are its last {human_bytes(size - start)}; "
            f"all of it: less {shlex.quote(one_line(str(self.path)))}"
        )
        return start

    def _without_zeros(self, piece: bytes) -> bytes:
        """The piece, after the note on the zero bytes before it. Zero bytes at its end wait for the next piece."""
        rest = piece.lstrip(b"\0")
        self._zeros += len(piece) - len(rest)
        if not rest:
            return b""
        note, shown = self._rest_of_zeros(), rest.rstrip(b"\0")
        self._zeros = len(rest) - len(shown)
        return note + _with_zero_notes(shown)

    def _rest_of_zeros(self) -> bytes:
        count, self._zeros = self._zeros, 0
        return _zeros_or_note(count)

    def rest(self) -> str:
        """The rest of a character that the end of the log has cut."""
        return self._shown(b"", final=True)

    def _shown(self, piece: bytes, final: bool = False) -> str:
        text = self._decoder.decode(piece, final)
        return text if self._is_own else plain_lines(text)

    def _new_decoder(self) -> codecs.IncrementalDecoder | io.IncrementalNewlineDecoder:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        return decoder if self._is_own else io.IncrementalNewlineDecoder(decoder, translate=True)


class Lines:
    """A `Tail` in whole lines with a prefix, so that several logs can be shown at once."""

    def __init__(self, path: Path, prefix: str, is_own: bool) -> None:
        self._tail = Tail(path, is_own)
        self._prefix = prefix
        self._partial = ""

    @property
    def path(self) -> Path:
        return self._tail.path

    @path.setter
    def path(self, path: Path) -> None:
        """Follows the log to its new place."""
        self._tail.path = path

    def read(self) -> Iterator[str]:
        """The lines that were completed since the last call. A line longer than a MiB becomes several."""
        for piece in self._tail.read():
            *lines, self._partial = (self._partial + piece).split("\n")
            if len(self._partial) > _PIECE:
                lines, self._partial = [*lines, self._partial], ""
            yield "".join(f"{self._prefix}{line}\n" for line in lines)

    def rest(self) -> str:
        """The last line, which has no line end."""
        last = self._partial + self._tail.rest()
        return f"{self._prefix}{last}\n" if last else ""


def last_lines(path: Path, count: int) -> list[str]:
    """The last lines of a log, from its last 256 KiB at most, and a note on zero bytes after them."""
    with open_regular(path) as file:
        size, end = os.fstat(file.fileno()).st_size, data_end(file.fileno())
        start = file.seek(max(0, end - (_PIECE >> 2)))
        data = file.read(end - start)
    shown = data.rstrip(b"\0")
    data = _with_zero_notes(shown) + _zeros_or_note(size - start - len(shown))
    return data.decode(errors="replace").splitlines()[-count:]


def _with_zero_notes(data: bytes) -> bytes:
    """`data` with a note in place of many consecutive zero bytes."""
    return _MANY_ZEROS.sub(lambda match: _zeros_or_note(len(match[0])), data) if b"\0" in data else data


def _zeros_or_note(count: int) -> bytes:
    """`count` zero bytes, or a note in their place where they are many."""
    return bytes(count) if count < _ZEROS else f"[{human_bytes(count)} of zero bytes]\n".encode()
