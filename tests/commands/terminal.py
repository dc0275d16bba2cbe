"""An interactive shell on a terminal of its own: types keys, and waits for what must appear."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import termios
import time
from pathlib import Path

_DEADLINE = 30.0
_ROWS_AND_COLUMNS = (40, 120)


class Terminal:
    """The shell `argv` in `cwd`. End it with `close`."""

    def __init__(self, argv: list[str], env: dict[str, str], cwd: Path) -> None:
        self.pid, self._descriptor = pty.fork()
        if self.pid == 0:
            os.chdir(cwd)
            os.execvpe(argv[0], argv, env)
        fcntl.ioctl(self._descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", *_ROWS_AND_COLUMNS, 0, 0))

    def type(self, keys: str) -> None:
        os.write(self._descriptor, keys.encode())

    def until(self, *texts: str) -> str:
        """What was shown until all of `texts` were; AssertionError after 30 s."""
        shown, end = b"", time.monotonic() + _DEADLINE
        while not all(text.encode() in shown for text in texts):
            assert time.monotonic() < end, (texts, shown.decode(errors="replace"))
            if select.select([self._descriptor], [], [], 0.1)[0]:
                shown += os.read(self._descriptor, 65536)
        return shown.decode(errors="replace")

    def close(self) -> None:
        os.close(self._descriptor)  # the shell gets SIGHUP
        os.waitpid(self.pid, 0)
