"""The program of `slurmopt top`: Textual's application around the screens of the board."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable
from typing import Any

from textual.app import App
from textual.binding import Binding
from textual.driver import Driver
from textual.drivers.linux_driver import LinuxDriver

from slurmopt.board.first_picture import ALTERNATE, TERMINATED
from slurmopt.board.frame import View
from slurmopt.board.rows.reading import Reading
from slurmopt.board.rows.row import Row
from slurmopt.board.screens.board_screen import BoardScreen
from slurmopt.board.screens.child import Child
from slurmopt.board.screens.looking import Looking

INTERRUPTED = 130


class Board(App[int]):
    """The application. Its result is the exit status."""

    ENABLE_COMMAND_PALETTE = False
    ALLOW_SELECT = False
    CSS = "Screen { background: ansi_default; color: ansi_default; overflow: hidden; }"
    BINDINGS = [
        Binding("ctrl+c", "interrupt", priority=True, show=False),
        Binding("ctrl+q", "interrupt", priority=True, show=False),
        Binding("ctrl+z", "suspend_process", priority=True, show=False),
    ]

    def __init__(
        self, reading: Reading, every: float, view: View, colours: bool, driver: type[Driver] | None = None
    ) -> None:
        super().__init__(ansi_color=True, driver_class=driver)
        self.reading = reading
        self.looking = Looking(reading, every, self._changed, self._failed)
        self.failure: Exception | None = None
        self.screen_of_runs = BoardScreen(self, view, colours)
        self._events: asyncio.AbstractEventLoop | None = None
        self._changes: set[asyncio.Task[None]] = set()

    def on_mount(self) -> None:
        """Shows what is known, and begins to look."""
        self._events = asyncio.get_running_loop()
        self._events.add_signal_handler(signal.SIGTERM, self.exit, TERMINATED)
        self._events.add_signal_handler(signal.SIGHUP, self.exit, TERMINATED)
        self._events.add_signal_handler(signal.SIGINT, self.exit, INTERRUPTED)
        self.push_screen(self.screen_of_runs)
        self.looking.start()

    def _changed(self) -> None:
        """Called in the thread that looks."""
        self._call_soon(self._draw)

    def _failed(self, error: Exception) -> None:
        """Called in the thread that looks, which ends."""
        self.failure = error
        self._call_soon(self.exit)

    def _call_soon(self, work: Callable[[], None]) -> None:
        if self._events is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
                self._events.call_soon_threadsafe(work)

    def _draw(self) -> None:
        if self.is_running and self.screen is self.screen_of_runs:
            self.screen_of_runs.draw()

    def run_change(self, command: str, row: Row) -> None:
        """Cancels or retries a run with slurmopt's own command; its last line becomes the message."""
        task = asyncio.create_task(self._change(command, row))
        self._changes.add(task)
        task.add_done_callback(self._changes.discard)

    async def _change(self, command: str, row: Row) -> None:
        said: list[str] = []
        try:
            await Child(command, row.path).run(said.extend)
        except OSError as error:
            said = [f"error: {command} cannot be started: {error}"]
        lines = [line.removeprefix("slurmopt: ") for line in said if line.strip()]
        errors = [line for line in lines if line.startswith("error: ")]
        self.screen_of_runs.view.message = (errors or lines or [f"{command} {row.label}: done"])[-1]
        self.looking.now()
        self._draw()

    def action_interrupt(self) -> None:
        """Ctrl-C."""
        self.exit(INTERRUPTED)

    async def on_unmount(self) -> None:
        """Stops to look."""
        self.looking.end()


class _Driver(LinuxDriver):
    """Does not clear the first picture, which is on the alternate screen already. Goes on after any SIGCONT."""

    _is_there = True

    def write(self, data: str) -> None:
        """Writes to the terminal."""
        if data == ALTERNATE and self._is_there:
            self._is_there = False
        else:
            super().write(data)

    def _sigcont_application(self, *_: Any) -> None:
        if not self._must_signal_resume:  # Ctrl-Z did not stop it: a second reader of keys would start, and never end
            self.suspend_application_mode()
            self._must_signal_resume = True
        super()._sigcont_application()


def run(reading: Reading, every: float, view: View, colours: bool) -> int:
    """Shows the board until the user leaves it. Returns the exit status."""
    app = Board(reading, every, view, colours, _Driver)
    status = app.run()
    if app.failure is not None:
        raise app.failure
    return app.return_code or 0 if status is None else status
