"""The screen of a text: the details of a run, or the output of a command such as `slurmopt logs --follow`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from textual import events
from textual.app import ComposeResult
from textual.screen import Screen

from slurmopt.board.pages import Pages
from slurmopt.board.screens.child import Child
from slurmopt.board.screens.in_thread import in_thread
from slurmopt.board.screens.lines import Lines

Text = list[tuple[str, str]]
"""Lines with their styles."""
_WHEEL = 3


class TextScreen(Screen[None]):
    """Shows a text that comes from a function or from a command."""

    def __init__(self, pages: Pages, source: Child | Callable[[], Text], colours: bool) -> None:
        super().__init__()
        self.pages = pages
        self._source = source
        self._view = Lines(colours)
        self._reader: asyncio.Task[None] | None = None

    def compose(self) -> ComposeResult:
        """The one widget."""
        yield self._view

    def on_mount(self) -> None:
        """Begins to read."""
        self._reader = asyncio.create_task(self._read())

    async def _read(self) -> None:
        if isinstance(self._source, Child):
            await self._read_child(self._source)
        else:
            self._add(await in_thread(self._source))
        self._draw()

    async def _read_child(self, child: Child) -> None:
        self.pages.note = "nothing yet"
        self._draw()
        try:
            status = await child.run(self._add_output)
        except OSError as error:
            self.pages.note = f"cannot be started: {error}"
            return
        empty = "" if self.pages.has_lines else "nothing"
        self.pages.note = empty if status == 0 else f"exit status {status}"

    def _add_output(self, lines: list[str]) -> None:
        self.pages.note = ""
        self._add([(line, "") for line in lines])

    def _add(self, lines: Text) -> None:
        self.pages.add(lines)
        self._draw()

    def _draw(self) -> None:
        self._view.show(self.pages.frame())

    def on_resize(self, event: events.Resize) -> None:
        """Wraps the text to the new width."""
        self.pages.resize(event.size.width, event.size.height)
        self._draw()

    def on_key(self, event: events.Key) -> None:
        """Scrolls, or goes back."""
        key, page = event.key, self.pages.space - 1
        moves = {
            "up": -1, "k": -1, "down": 1, "j": 1, "pageup": -page, "b": -page, "pagedown": page, "space": page,
            "home": -(10**9), "g": -(10**9), "end": 10**9, "G": 10**9, "upper_g": 10**9,
        }  # fmt: skip
        if key in moves:
            self.pages.move(moves[key])
            self._draw()
        elif key in ("escape", "backspace", "left"):
            self.dismiss()
        elif key == "q":
            self.app.exit(0)
        else:
            return
        event.stop()

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Scrolls up."""
        self.pages.move(-_WHEEL)
        self._draw()

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Scrolls down."""
        self.pages.move(_WHEEL)
        self._draw()

    def on_unmount(self) -> None:
        """Ends the command."""
        if isinstance(self._source, Child):
            self._source.stop()
        if self._reader is not None:
            self._reader.cancel()
