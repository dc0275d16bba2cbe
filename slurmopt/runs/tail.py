"""Reading logs that still grow: text from bytes of any kind, a piece at a time."""

from __future__ import annotations

import codecs
import io
import os
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from slurmopt.errors import one_line, plain_lines
from slurmopt.run_folder.files import data_end, data_to_read, next_data, open_regular
from slurmopt.run_folder.owner import is_trusted
from slurmopt.units import human_bytes

_PIECE = 1 << 20
MOST = 1 << 30
"""Bytes of a log that are shown: of one with more the end."""
_END = 16 << 20
_ZEROS = 4096
"""Zero bytes in a row that are shown as a note: what a crash, a full disk or a sparse file leaves."""
_MANY_ZEROS = re.compile(rb"\0{%d,}" % _ZEROS)


class Tail:
    """One log: `read` gives what was added since the last call. A log that is not there yet is empty.

    `mine`: whether the run is this user's own, whose log is shown as it is. In what another user wrote control
    characters are shown as escapes, and what returns to the line's start begins a new line.
    """

    def __init__(self, path: Path, mine: bool) -> None:
        self.path = path
        self._mine = mine
        self._position = 0
        self._zeros = 0
        """How many were read last, and are not shown yet."""
        self._decoder = self._new_decoder()

    def read(self) -> Iterator[str]:
        """The new text, a piece at a time; bytes that are no UTF-8 are replaced, and many zero bytes in a row told as a
        note. Of a log that is very large only the end, with a line on stderr."""
        try:
            file = open_regular(self.path)
        except FileNotFoundError:
            return
        with file:
            if self._mine and not is_trusted(os.fstat(file.fileno()), self.path.parent):
                self._mine = False
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
                else:  # it may go on like that for a terabyte
                    start = file.seek(next_data(file.fileno(), self._position))
                    self._zeros, self._position = self._zeros + start - self._position, start
            yield self._shown(self._rest_of_zeros())

    def _start(self, file: BinaryIO) -> int:
        """From where on the log is shown: its beginning, or that of a line near its end."""
        if data_to_read(file.fileno()) <= MOST:
            return 0
        size = data_end(file.fileno())
        start = file.seek(size - _END) + len(file.readline(_END >> 1))
        print(
            f"slurmopt: this log has {human_bytes(size)}, and these are its last {human_bytes(size - start)}; "
            f"all of it: less {shlex.quote(one_line(str(self.path)))}",
            file=sys.stderr,
        )
        return start

    def _without_zeros(self, piece: bytes) -> bytes:
        """The piece behind what there is to tell of zeros before it; those at its end wait for the next one."""
        rest = piece.lstrip(b"\0")
        self._zeros += len(piece) - len(rest)
        if not rest:
            return b""
        before, shown = self._rest_of_zeros(), rest.rstrip(b"\0")
        self._zeros = len(rest) - len(shown)
        return before + _noting_zeros(shown)

    def _rest_of_zeros(self) -> bytes:
        count, self._zeros = self._zeros, 0
        return _told_zeros(count)

    def rest(self) -> str:
        """What is left of a character that the log's end cut."""
        return self._shown(b"", final=True)

    def _shown(self, piece: bytes, final: bool = False) -> str:
        text = self._decoder.decode(piece, final)
        return text if self._mine else plain_lines(text)

    def _new_decoder(self) -> codecs.IncrementalDecoder | io.IncrementalNewlineDecoder:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        return decoder if self._mine else io.IncrementalNewlineDecoder(decoder, translate=True)


class Lines:
    """A `Tail` as whole lines with a prefix, so that several logs can be shown at once."""

    def __init__(self, path: Path, prefix: str, mine: bool) -> None:
        self._tail = Tail(path, mine)
        self._prefix = prefix
        self._partial = ""

    @property
    def path(self) -> Path:
        return self._tail.path

    @path.setter
    def path(self, path: Path) -> None:
        """The same log is elsewhere now."""
        self._tail.path = path

    def read(self) -> Iterator[str]:
        """The lines that were completed since the last call. One of more than a MiB becomes several."""
        for piece in self._tail.read():
            *whole, self._partial = (self._partial + piece).split("\n")
            if len(self._partial) > _PIECE:
                whole, self._partial = [*whole, self._partial], ""
            yield "".join(f"{self._prefix}{line}\n" for line in whole)

    def rest(self) -> str:
        """The last line, which has no end."""
        last = self._partial + self._tail.rest()
        return f"{self._prefix}{last}\n" if last else ""


def last_lines(path: Path, count: int) -> list[str]:
    """The last lines of a log, looking at no more than its last 256 KiB, and what zero bytes are behind them."""
    with open_regular(path) as file:
        size, end = os.fstat(file.fileno()).st_size, data_end(file.fileno())
        start = file.seek(max(0, end - (_PIECE >> 2)))
        data = file.read(end - start)
    shown = data.rstrip(b"\0")
    data = _noting_zeros(shown) + _told_zeros(size - start - len(shown))
    return data.decode(errors="replace").splitlines()[-count:]


def _noting_zeros(data: bytes) -> bytes:
    """`data` with many zero bytes in a row told as a note."""
    return _MANY_ZEROS.sub(lambda found: _told_zeros(len(found[0])), data) if b"\0" in data else data


def _told_zeros(count: int) -> bytes:
    """So many zero bytes: themselves, or a note."""
    return bytes(count) if count < _ZEROS else f"[{human_bytes(count)} of zero bytes]\n".encode()
