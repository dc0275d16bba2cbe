"""A command on a terminal of its own: when it draws, and what it costs while nobody touches it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import termios
import time
from collections.abc import Mapping
from pathlib import Path

from benchmarks.measure import BenchError

PATIENCE = 30.0
_TICKS = os.sysconf("SC_CLK_TCK")


class Terminal:
    """The command, from its start on, on a terminal of 80 columns."""

    def __init__(self, argv: list[str], cwd: Path, env: Mapping[str, str]) -> None:
        self.began = time.perf_counter()
        self.pid, self._end = pty.fork()
        if self.pid == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
            os.chdir(cwd)
            os.execvpe(argv[0], argv, {**env, "TERM": "xterm-256color"})
        self._output = b""

    def until(self, *wanted: bytes) -> float:
        """Seconds from the start of the process until the terminal has got all of `wanted`."""
        while any(text not in self._output for text in wanted):
            if not select.select([self._end], [], [], PATIENCE)[0]:
                raise BenchError(f"the terminal never got {wanted!r}: {self._output[-500:]!r}")
            self._take()
        return time.perf_counter() - self.began

    def rest(self, seconds: float) -> int:
        """Reads for so many seconds what is drawn; how many bytes that are."""
        before, until = len(self._output), time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if select.select([self._end], [], [], left)[0]:
                self._take()
        return len(self._output) - before

    def _take(self) -> None:
        try:
            self._output += os.read(self._end, 1 << 16)
        except OSError as error:
            raise BenchError(f"the command has ended: {self._output[-500:]!r}") from error

    def cpu(self) -> float:
        """Seconds of the processor until now, those of ended children included."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:15])) / _TICKS

    def close(self) -> None:
        """Ends it."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self._end)
