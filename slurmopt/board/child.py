"""Runs slurmopt's own commands for the board, so that its keys do exactly what the commands do."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

from slurmopt.errors import one_line

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
"""Colours, moves of the cursor, titles."""
_PIECE = 1 << 16
_LONGEST_LINE = 4000


class Child:
    """One command of slurmopt and its output."""

    def __init__(self, *words: str | Path) -> None:
        self._words = [sys.executable, "-m", "slurmopt", *map(str, words)]
        self._process: asyncio.subprocess.Process | None = None

    async def run(self, take: Callable[[list[str]], None]) -> int:
        """Runs the command, gives its lines of output and errors to `take` as they come, and returns its exit
        status."""
        pipe = asyncio.subprocess.PIPE
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        self._process = await asyncio.create_subprocess_exec(
            *self._words, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=asyncio.subprocess.STDOUT,
            env=environment, start_new_session=True,
        )  # fmt: skip
        assert self._process.stdout is not None
        rest = b""
        while piece := await self._process.stdout.read(_PIECE):
            *lines, rest = (rest + piece).split(b"\n")
            if len(rest) > _PIECE:
                lines, rest = [*lines, rest], b""
            take([printable(line.decode(errors="replace")) for line in lines])
        if rest:
            take([printable(rest.decode(errors="replace"))])
        return await self._process.wait()

    def stop(self) -> None:
        """Ends the command, if it still runs."""
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.terminate()


def printable(line: str) -> str:
    """The line as a terminal would leave it: without escape sequences, of a progress bar the last state; other control
    characters are escaped."""
    plain = _ESCAPES.sub("", line).rstrip("\r").rpartition("\r")[2]
    return one_line(plain.expandtabs(8)[:_LONGEST_LINE])
