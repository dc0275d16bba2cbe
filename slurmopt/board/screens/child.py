"""Runs slurmopt's own commands for the board, so that its keys do exactly what the commands do."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from slurmopt.board.screens.in_thread import in_thread
from slurmopt.errors import one_line

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
"""Colours, moves of the cursor, titles."""
_PIECE = 1 << 16
_LONGEST_LINE = 4000


class Child:
    """One command of slurmopt and its output."""

    def __init__(self, *words: str | Path) -> None:
        self._words = [sys.executable, "-m", "slurmopt", *map(str, words)]
        self._stopped = False
        self.process: subprocess.Popen[bytes] | None = None

    async def run(self, take: Callable[[list[str]], None]) -> int:
        """Runs the command, gives its lines of output and errors to `take` as they come, and returns its exit status.
        OSError where it cannot be started."""
        loop = asyncio.get_running_loop()
        return await in_thread(lambda: self._run(lambda lines: loop.call_soon_threadsafe(take, lines)))

    def _run(self, take: Callable[[list[str]], object]) -> int:
        self.process = subprocess.Popen(
            self._words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONUNBUFFERED": "1"}, start_new_session=True,
        )  # fmt: skip
        if self._stopped:
            self.stop()
        assert self.process.stdout is not None
        with self.process.stdout as output, contextlib.suppress(RuntimeError):  # the board has ended meanwhile
            rest = b""
            while piece := os.read(output.fileno(), _PIECE):
                *lines, rest = (rest + piece).split(b"\n")
                if len(rest) > _PIECE:
                    lines, rest = [*lines, rest], b""
                take([printable(line.decode(errors="replace")) for line in lines])
            if rest:
                take([printable(rest.decode(errors="replace"))])
        return self.process.wait()

    def stop(self) -> None:
        """Ends the command, if it still runs."""
        self._stopped = True
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()


def printable(line: str) -> str:
    """The line as a terminal would leave it: without escape sequences, of a progress bar the last state; other control
    characters are escaped."""
    plain = _ESCAPES.sub("", line).rstrip("\r").rpartition("\r")[2]
    return one_line(plain.expandtabs(8)[:_LONGEST_LINE])
