"""The text of a screen with more lines than fit: wrapping and scrolling. Pure."""

from __future__ import annotations

import re
import textwrap
from collections import deque
from collections.abc import Iterable
from itertools import islice

from slurmopt.board.columns import Line, clean, fitted

_LABEL = re.compile(r" *(?:[a-z]+ {2,}|[A-Z][a-z]{2} \d+ [\d:]{5,8} +)?")
"""What stands before the text of a line: blanks, a label such as `folder`, a time."""
_MOST = 20_000
"""Lines that are kept, the newest."""


class Pages:
    """Lines of text, wrapped to the width of the terminal."""

    def __init__(self, title: str, follows: bool = False) -> None:
        self.title, self.follows = title, follows
        self.width, self.height, self.top = 80, 24, 0
        self.note = ""
        """What stands in the last line, before the keys."""
        self._lines: deque[tuple[str, str]] = deque(maxlen=_MOST)
        self._wrapped: deque[tuple[str, str]] = deque(maxlen=_MOST)

    def add(self, lines: Iterable[tuple[str, str]]) -> None:
        """Adds lines with their styles. While the end is followed, it stays on the screen."""
        for text, style in lines:
            self._lines.append((text, style))
            self._wrapped.extend((part, style) for part in _parts(text, self.width))
        self.move(0)

    def resize(self, width: int, height: int) -> None:
        """Wraps the lines anew."""
        if width != self.width:
            self._wrapped.clear()
            self._wrapped.extend((part, style) for text, style in self._lines for part in _parts(text, width))
        self.width, self.height = width, height
        self.move(0)

    @property
    def has_lines(self) -> bool:
        return bool(self._lines)

    @property
    def space(self) -> int:
        return max(1, self.height - 2)

    @property
    def _last(self) -> int:
        return max(0, len(self._wrapped) - self.space)

    def move(self, by: int) -> None:
        """Scrolls. Who scrolls up no longer follows the end; who comes back to it does."""
        if by:
            self.follows = self.top + by >= self._last
        self.top = self._last if self.follows else min(self._last, max(0, self.top + by))

    def frame(self) -> list[Line]:
        """All lines of the screen."""
        shown = list(islice(self._wrapped, self.top, self.top + self.space))
        lines = [fitted([(f" {clean(self.title)} ", "title")], self.width)]
        lines += [fitted([(text, style)], self.width) for text, style in shown]
        lines += [[(" " * self.width, "")]] * (self.space - len(shown))
        end = min(len(self._wrapped), self.top + self.space)
        place = f"{end}/{len(self._wrapped)}" if len(self._wrapped) > self.space else ""
        keys: Line = [(" esc", "key"), (" back  ", ""), ("↑↓", "key"), (" scroll  ", ""), ("q", "key"), (" quit  ", "")]
        lines.append(fitted([*keys, (place, "dim"), (f"  {clean(self.note)}", "yellow")], self.width))
        return lines[: self.height]


def _parts(text: str, width: int) -> list[str]:
    """The line in pieces of the terminal's width; the later ones are indented as what the first one says."""
    if len(text) * 2 <= width or (text.isascii() and len(text) <= width):
        return [text]
    match = _LABEL.match(text)
    indent = len(match[0]) if match is not None and len(match[0]) < width / 3 else 0
    has_room = max(map(len, text.split()), default=0) <= width - indent
    if has_room and text.isascii():
        return textwrap.wrap(text, width, subsequent_indent=" " * indent, break_on_hyphens=False) or [""]
    from rich.cells import chop_cells

    first, *rest = chop_cells(text, max(2, width)) or [""]
    return [first, *(" " * indent + part for part in chop_cells("".join(rest), max(2, width - indent)))]
