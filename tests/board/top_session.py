"""`slurmopt top` with a terminal of its own, for tests."""

from __future__ import annotations

import fcntl
import os
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path

PATIENCE = 30.0
LISTENS = b"\x1b[?2004h"
"""Textual is there, and takes keys."""
ALTERNATE, LEFT = b"\x1b[?1049h", b"\x1b[?1049l"


class Session:
    """`slurmopt top` with a terminal of its own."""

    def __init__(self, *words: str, size: tuple[int, int] = (24, 80), **environment: str) -> None:
        self._master, self._slave = os.openpty()
        self.resize(*size)
        self.before = termios.tcgetattr(self._slave)
        self.output = b""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "slurmopt", "top", *words], stdin=self._slave, stdout=self._slave,
            stderr=self._slave, env={**os.environ, "TERM": "xterm-256color", **environment}, start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )  # fmt: skip

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def until(self, done: Callable[[], bool] | bytes) -> Session:
        """Reads until the output has the bytes, or the condition holds, and then what was written by then."""
        deadline = time.monotonic() + PATIENCE
        holds = (lambda: done in self.output) if isinstance(done, bytes) else done
        while not holds():
            assert time.monotonic() < deadline, f"never {done!r}: {self.output[-3000:]!r}"
            self._read(0.05)
        while self._read(0):
            pass
        return self

    def _read(self, patience: float) -> bool:
        """Whether there was something to read within so many seconds."""
        if not select.select([self._master], [], [], patience)[0]:
            return False
        self.output += os.read(self._master, 1 << 16)
        return True

    def press(self, keys: bytes) -> Session:
        os.write(self._master, keys)
        return self

    def kill(self, number: int) -> Session:
        os.kill(self._process.pid, number)
        return self

    def is_stopped(self) -> bool:
        return Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"

    def end(self) -> int:
        """The exit status, once it has ended; its terminal must be as before."""
        self.until(lambda: self._process.poll() is not None)
        assert termios.tcgetattr(self._slave) == self.before
        return self._process.returncode

    def assert_left(self) -> None:
        """The normal screen, the cursor, no mouse."""
        for on, off in ((b"\x1b[?1049h", LEFT), (b"\x1b[?25l", b"\x1b[?25h"), (b"\x1b[?1003h", b"\x1b[?1003l")):
            assert self.output.rfind(on) < self.output.rfind(off) or on not in self.output

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        os.close(self._master)
        os.close(self._slave)
