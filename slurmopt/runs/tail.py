"""Reading logs that still grow: text from bytes of any kind, a piece at a time."""

from __future__ import annotations

import codecs
import io
import os
from collections.abc import Iterator
from pathlib import Path

from slurmopt.errors import plain_lines
from slurmopt.folder.files import next_data, open_regular, read_end
from slurmopt.folder.owner import is_trusted

_PIECE = 1 << 20


class Tail:
    """One log: `read` gives what was added since the last call. A log that is not there yet is empty.

    `mine`: whether the run is this user's own, whose log is shown as it is. In what another user wrote control
    characters are shown as escapes, and what returns to the line's start begins a new line.
    """

    def __init__(self, path: Path, mine: bool) -> None:
        self.path = path
        self._mine = mine
        self._position = 0
        self._decoder = self._new_decoder()

    def read(self) -> Iterator[str]:
        """The new text, a piece at a time; bytes that are no UTF-8 are replaced."""
        try:
            file = open_regular(self.path)
        except FileNotFoundError:
            return
        with file:
            if self._mine and not is_trusted(os.fstat(file.fileno()), self.path.parent):
                self._mine = False
                self._decoder = self._new_decoder()
            file.seek(self._position)
            while piece := file.read(_PIECE):
                self._position += len(piece)
                yield self._shown(piece)
                if not piece.strip(b"\0"):
                    self._position = file.seek(next_data(file.fileno(), self._position))

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
    """The last lines of a log, looking at no more than its last 256 KiB."""
    return read_end(path, _PIECE >> 2).decode(errors="replace").splitlines()[-count:]
