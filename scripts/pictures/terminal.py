"""A real terminal session, typed into bash in a pseudo-terminal, as the pictures that its screen showed and when.

pyte reads the escape sequences: it is a maintained terminal emulator without a window.
"""

from __future__ import annotations

import os
import pty
import pwd
import select
import struct
import termios
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from fcntl import ioctl
from pathlib import Path

import pyte

PROMPT = "\x1b[1;32m$\x1b[0m "
_KEYSTROKE = 0.035
_FRAME = 0.07


@dataclass(frozen=True)
class Cell:
    """A character, its colour (a name of ANSI's, or six hexadecimal digits), and whether it is bold."""

    text: str
    colour: str
    bold: bool


Row = tuple[Cell, ...]


@dataclass
class Frame:
    """What the screen showed from `start` on, in seconds of the session."""

    start: float
    rows: tuple[Row, ...]
    cursor: tuple[int, int]


@dataclass
class Session:
    """A shell in a terminal of `columns` by `lines`. Its frames are what a viewer sees; long waits are cut."""

    folder: Path
    environment: dict[str, str]
    user: str
    columns: int = 96
    lines: int = 26
    longest_wait: float = 1.2
    frames: list[Frame] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._screen = pyte.Screen(self.columns, self.lines)
        self._stream = pyte.ByteStream(self._screen)
        self._now = 0.0
        pid, self._terminal = pty.fork()
        if pid == 0:
            account = pwd.getpwnam(self.user)
            os.initgroups(self.user, account.pw_gid)
            os.setgid(account.pw_gid)
            os.setuid(account.pw_uid)
            os.chdir(self.folder)
            environment = {**self.environment, "PS1": PROMPT, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
            os.execvpe("bash", ["bash", "--norc", "--noprofile", "-i"], environment)
        ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", self.lines, self.columns, 0, 0))
        self._until_prompt()

    def type(self, command: str, rest: float = 1.5) -> None:
        """Types a command, waits for the next prompt, and rests so that a reader can follow."""
        self.keys(command)
        os.write(self._terminal, b"\n")
        self._until_prompt()
        self._now += rest

    def keys(self, text: str) -> None:
        """Types characters, each shown when the shell echoes it."""
        for character in text:
            os.write(self._terminal, character.encode())
            self._read(_KEYSTROKE)
            self._now += _KEYSTROKE
            self._shown()

    def watch(self, until: Callable[[], bool], speed: float = 1.0) -> None:
        """Shows what a program draws until something is so, `speed` times as fast as it was."""
        while not until():
            self._read(_FRAME * speed)
            self._now += _FRAME
            self._shown()

    def start(self, command: str) -> None:
        """Types a command and does not wait for its end."""
        self.keys(command)
        os.write(self._terminal, b"\n")

    def press(self, key: str) -> None:
        """Presses a key that ends the program on the screen."""
        os.write(self._terminal, key.encode())
        self._until_prompt()

    def close(self) -> None:
        """Ends the shell."""
        os.close(self._terminal)

    def _until_prompt(self) -> None:
        """Reads until the shell shows its prompt again; time that passes without output is cut."""
        waited = 0.0
        while True:
            changed = self._read(_FRAME)
            waited = 0.0 if changed else waited + _FRAME
            if waited < self.longest_wait:
                self._now += _FRAME
            self._shown()
            if not changed and self._at_prompt():
                return

    def _at_prompt(self) -> bool:
        line = self._screen.display[self._screen.cursor.y]
        return line.rstrip() == "$" and self._screen.cursor.x == 2

    def _read(self, seconds: float) -> bool:
        end, changed = time.monotonic() + seconds, False
        while (left := end - time.monotonic()) > 0:
            if select.select([self._terminal], [], [], left)[0]:
                self._stream.feed(os.read(self._terminal, 1 << 16))
                changed = True
        return changed

    def _shown(self) -> None:
        """Keeps the screen as a frame where it has changed."""
        cells = tuple(self._row(number) for number in range(self.lines))
        cursor = (self._screen.cursor.x, self._screen.cursor.y)
        if not self.frames or (self.frames[-1].rows, self.frames[-1].cursor) != (cells, cursor):
            self.frames.append(Frame(self._now, cells, cursor))

    def _row(self, number: int) -> Row:
        line = self._screen.buffer[number]
        characters = (line[column] for column in range(self.columns))
        return tuple(Cell(one.data, one.fg, one.bold) for one in characters)

    @property
    def length(self) -> float:
        """Seconds of the session, with the rest at its end."""
        return self._now
