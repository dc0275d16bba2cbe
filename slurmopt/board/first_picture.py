"""The first picture, drawn before Textual is imported: that takes longer than to find and read the newest runs."""

from __future__ import annotations

import contextlib
import signal
import sys
import termios
from collections.abc import Iterator
from typing import Any, NoReturn

from slurmopt.board.columns import Line
from slurmopt.board.styles import painted

ALTERNATE, HIDE_CURSOR = "\x1b[?1049h", "\x1b[?25l"
_LEAVE = "\x1b[?25h\x1b[?1049l"
_NO_WRAP, _WRAP = "\x1b[?7l", "\x1b[?7h"
TERMINATED = 143


@contextlib.contextmanager
def first_picture(lines: list[Line], colours: bool) -> Iterator[None]:
    """Draws the lines; the block goes on with the program. Afterwards the terminal is as it was before.

    Keys that are pressed meanwhile wait, and are not shown."""
    before = _terminal()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _terminated)
    picture = f"{ALTERNATE}{HIDE_CURSOR}{_NO_WRAP}{_drawn(lines, colours)}{_WRAP}"
    try:
        _quiet(before)
        _write(picture)
        yield
    finally:
        _write(_LEAVE)
        if before is not None:
            with contextlib.suppress(termios.error):
                termios.tcsetattr(sys.stdin.fileno(), termios.TCSANOW, before)


def _drawn(lines: list[Line], colours: bool) -> str:
    shown = ["".join(painted(text, style, colours) for text, style in line) for line in lines]
    return "\x1b[H" + "\r\n".join(shown)


def _terminal() -> list[Any] | None:
    try:
        return termios.tcgetattr(sys.stdin.fileno())
    except termios.error:
        return None


def _quiet(attributes: list[Any] | None) -> None:
    """Keys are neither shown nor wait for the end of a line."""
    if attributes is not None:
        local = attributes[3] & ~(termios.ECHO | termios.ICANON)
        with contextlib.suppress(termios.error):
            termios.tcsetattr(sys.stdin.fileno(), termios.TCSANOW, [*attributes[:3], local, *attributes[4:]])


def _terminated(*_: object) -> NoReturn:
    raise SystemExit(TERMINATED)


def _write(text: str) -> None:
    """To where Textual draws."""
    assert sys.__stderr__ is not None
    sys.__stderr__.write(text)
    sys.__stderr__.flush()
