"""A widget that shows lines of styled text as they are: no markup in them is interpreted, and only lines that have
changed are drawn."""

from __future__ import annotations

from functools import lru_cache

from rich.segment import Segment
from rich.style import Style
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from slurmopt.board.columns import Line
from slurmopt.board.styles import plain_words


class Lines(Widget, can_focus=True):
    """The whole screen, line by line."""

    DEFAULT_CSS = "Lines { width: 100%; height: 100%; background: ansi_default; }"

    def __init__(self, colours: bool) -> None:
        super().__init__()
        self._colours = colours
        self.lines: list[Line] = []

    def show(self, lines: list[Line]) -> None:
        """Shows these lines."""
        before, self.lines = self.lines, lines
        if len(before) != len(lines):
            self.refresh()
            return
        width = self.size.width
        changed = [Region(0, at, width, 1) for at, line in enumerate(lines) if line != before[at]]
        if changed:
            self.refresh(*changed)

    def render_line(self, y: int) -> Strip:
        """One line, for Textual."""
        width = self.size.width
        line = self.lines[y] if y < len(self.lines) else []
        segments = [Segment(text, _style(words, self._colours)) for text, words in line if text]
        return Strip(segments).adjust_cell_length(width, _style("", self._colours))


@lru_cache(maxsize=256)
def _style(words: str, colours: bool) -> Style:
    return Style.parse(plain_words(words, colours) or "none")
