"""Starts a process of slurmopt that is no child of a rank, and ends it with the rank that started it.

A shell starts it and ends at once. So it is none of the processes that a training, or slurmopt, waits for, signals,
counts or kills below a rank.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from collections.abc import Sequence

from slurmopt.run_folder.process import module_words

_DETACHED = 'trap "" HUP INT QUIT USR1 USR2 TERM; exec 3<&0; exec "$@" <&3 3<&- &'
"""Slurm's signals are for the training. What a shell ignores stays ignored in what it starts."""


class Detached:
    """A process that leaves at the last word that `close` writes to its standard input, and when this process is
    gone."""

    def __init__(self, module: str, words: Sequence[str]) -> None:
        """Runs `python -m module words`. Raises OSError if it cannot be started."""
        self._pid = os.getpid()
        told, self._tell = os.pipe()
        self._gone, gone = os.pipe()
        try:
            shell = ["/bin/sh", "-c", _DETACHED, "sh", sys.executable, *module_words(module)]
            subprocess.run([*shell, *words], stdin=told, stdout=gone, start_new_session=True, check=False)
        except OSError:
            os.close(self._tell)
            os.close(self._gone)
            raise
        finally:
            os.close(told)
            os.close(gone)
        self._ends = {end: _identity(end) for end in (self._tell, self._gone)}

    def close(self, last: bytes, seconds: float) -> str | None:
        """Writes the last word, and waits for the process for so many seconds at most. Returns what is wrong with it if
        it did not leave then. Does nothing in a forked child, and where the training has closed the pipe."""
        if os.getpid() != self._pid or any(_identity(end) != known for end, known in self._ends.items()):
            return None
        try:
            os.write(self._tell, last)
        except OSError:
            os.close(self._gone)
            return "has ended before the rank"
        finally:
            os.close(self._tell)
        deadline = time.monotonic() + seconds
        try:
            while (left := deadline - time.monotonic()) > 0 and select.select([self._gone], [], [], left)[0]:
                if not os.read(self._gone, 1024):
                    return None
        finally:
            os.close(self._gone)
        return f"has not ended after {seconds:g} s, and is not waited for"


def _identity(descriptor: int) -> tuple[int, int] | None:
    try:
        facts = os.fstat(descriptor)
    except OSError:
        return None
    return facts.st_dev, facts.st_ino
