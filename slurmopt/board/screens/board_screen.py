"""The screen with all runs: keys and mouse change the view, and the view is drawn."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from textual import events
from textual.app import ComposeResult
from textual.screen import Screen

from slurmopt.board.frame import View, frame, key_at
from slurmopt.board.pages import Pages
from slurmopt.board.rows.order import ORDERS
from slurmopt.board.rows.reading import Reading
from slurmopt.board.rows.row import Row
from slurmopt.board.screens.child import Child
from slurmopt.board.screens.details import details
from slurmopt.board.screens.help import HELP
from slurmopt.board.screens.lines import Lines
from slurmopt.board.screens.looking import Looking
from slurmopt.board.screens.text_screen import Text, TextScreen

_WHEEL = 3
_FAR = 10**9
_COMMANDS = {"l": ("logs", "--follow"), "e": ("logs", "--errors"), "h": ("history",)}
"""The key → the command that shows more of the selected row."""
_CHANGES = {"c": "cancel", "r": "retry"}


class Program(Protocol):
    """What the screen needs of the application."""

    reading: Reading
    looking: Looking

    def run_change(self, command: str, row: Row) -> None:
        """Cancels or retries a run."""


class BoardScreen(Screen[None]):
    """All runs."""

    def __init__(self, board: Program, view: View, colours: bool) -> None:
        super().__init__()
        self._board, self.view, self._colours = board, view, colours
        self._lines = Lines(colours)
        self._typing = False
        """Whether the filter is being typed."""
        self._asked: tuple[str, Row] | None = None
        """The change that waits for an answer."""

    def compose(self) -> ComposeResult:
        """The one widget."""
        yield self._lines

    def draw(self) -> None:
        """Draws the rows as they are known now."""
        rows = list(self._board.reading.rows.values())
        self.view.problem = self._board.reading.problem
        self.view.take(rows)
        self._board.looking.show([row.path for row in self.view.shown])
        self._lines.show(frame(self.view, rows, time.time()))

    def on_resize(self, event: events.Resize) -> None:
        """Takes the new size."""
        self.view.width, self.view.height = event.size.width, event.size.height
        self.draw()

    def on_key(self, event: events.Key) -> None:
        """A key, as an answer, as text, or as a command."""
        event.stop()
        if self._asked is not None:
            self._answer(event.character or "")
        elif self._typing:
            self._type(event)
        else:
            self.press(event.character if event.is_printable and event.character else event.key)
        self.draw()

    def press(self, key: str) -> None:
        """Does what a key stands for."""
        self.view.message = ""
        page = self.view.space - 1
        moves = {
            "up": -1, "k": -1, "down": 1, "j": 1, "pageup": -page, "pagedown": page, " ": page,
            "home": -_FAR, "g": -_FAR, "end": _FAR, "G": _FAR,
        }  # fmt: skip
        actions: dict[str, Callable[[], None]] = {
            "q": lambda: self.app.exit(0), "?": self._help, "enter": self._open, "/": self._filter, "s": self._sort,
            "S": self._turn, "a": self._active, "escape": self._clear, "ctrl+r": self._board.looking.now,
            "f5": self._board.looking.now,
        }  # fmt: skip
        if key in moves:
            self.view.move(moves[key])
        elif key in actions:
            actions[key]()
        elif key in _COMMANDS:
            self._show_command(*_COMMANDS[key])
        elif key in _CHANGES:
            self._ask(_CHANGES[key])

    def _help(self) -> None:
        self._push(Pages("slurmopt top"), lambda: [(line, "") for line in HELP.split("\n")])

    def _open(self) -> None:
        if (row := self._chosen()) is not None:
            self._push(Pages(row.label), lambda: details(row))

    def _show_command(self, command: str, *options: str) -> None:
        if (row := self._chosen()) is not None:
            follows = "--follow" in options and not row.is_sweep
            pages = Pages(f"{command} {row.label} {' '.join(options)}", follows=follows)
            self._push(pages, Child(command, row.path, *options))

    def _push(self, pages: Pages, source: Child | Callable[[], Text]) -> None:
        pages.resize(self.view.width, self.view.height)
        self.app.push_screen(TextScreen(pages, source, self._colours))

    def _chosen(self) -> Row | None:
        """The selected row, from now on in the eyes of the user too."""
        row = self.view.current
        if row is not None:
            self.view.selected = row.path
        return row

    def _ask(self, command: str) -> None:
        if (row := self._chosen()) is not None:
            self._asked = command, row
            what = f"{row.label} ({row.total:,} points)" if row.is_sweep and row.total else row.label
            self.view.prompt = f"{command} {what}, which is {row.state}? y/n"

    def _answer(self, key: str) -> None:
        assert self._asked is not None
        command, row = self._asked
        self._asked, self.view.prompt = None, None
        if key not in ("y", "Y"):
            self.view.message = f"no {command}"
            return
        self.view.message = f"{command} {row.label} …"
        self._board.run_change(command, row)

    def _filter(self) -> None:
        self._typing = True
        self.view.prompt = f"/{self.view.words}▏"

    def _type(self, event: events.Key) -> None:
        view = self.view
        if event.key == "enter":
            self._typing, view.prompt = False, None
            return
        if event.key == "escape":
            self._typing, view.prompt, view.words = False, None, ""
            return
        if event.key == "backspace":
            view.words = view.words[:-1]
        elif event.key == "ctrl+u":
            view.words = ""
        elif event.is_printable and event.character:
            view.words += event.character
        view.prompt = f"/{view.words}▏"

    def on_paste(self, event: events.Paste) -> None:
        """Text from the clipboard goes into the filter."""
        if self._typing:
            self.view.words += "".join(char for char in event.text if char.isprintable())
            self.view.prompt = f"/{self.view.words}▏"
            self.draw()

    def _sort(self) -> None:
        names = list(ORDERS)
        self._order(names[(names.index(self.view.order) + 1) % len(names)])

    def _order(self, name: str) -> None:
        self.view.backwards = not self.view.backwards if name == self.view.order else False
        self.view.order, self.view.top = name, 0
        self.view.message = f"sorted by {name}{', backwards' if self.view.backwards else ''}"

    def _turn(self) -> None:
        self._order(self.view.order)

    def _active(self) -> None:
        self.view.only_active = not self.view.only_active

    def _clear(self) -> None:
        self.view.words, self.view.only_active = "", False

    def on_click(self, event: events.Click) -> None:
        """Selects a row, sorts by a head, or presses a key of the last line."""
        view, line = self.view, event.y - self.view.above
        if self._asked is not None or self._typing:
            return
        if event.y == view.height - 1:
            if (key := key_at(event.x, view.width)) is not None:
                self.press(key)
        elif view.above > 1 and event.y == 1:
            at = next((place for place in view.columns if place.start <= event.x <= place.start + place.width), None)
            if at is not None:
                self._order(at.column.order)
        elif 0 <= line < len(view.shown):
            row = view.shown[line]
            is_second = view.selected == row.path
            view.selected = row.path
            if is_second:
                self._open()
        self.draw()

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Moves up."""
        self.view.move(-_WHEEL)
        self.draw()

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Moves down."""
        self.view.move(_WHEEL)
        self.draw()
