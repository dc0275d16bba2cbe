"""The traceback that a command left in its log."""

from __future__ import annotations

import re
from pathlib import Path

from slurmopt.job.failures import is_peer_lost
from slurmopt.run_folder.files import read_end

_BYTES = 65536
_LINES = 60
_START = re.compile(r"^(?P<prefix>.*?)Traceback \(most recent call last\):\s*$")
LAUNCHERS = "ChildFailedError"
"""The error of torchrun's own traceback, which tells nothing of the cause."""


def last_traceback(log: Path) -> str | None:
    """The Python traceback near the end of a log that tells the most: not the launcher's own, not a lost peer's, if
    there is another. None where the log has none."""
    found = _tracebacks(_tail(log))
    if not found:
        return None
    telling = [text for text in found if LAUNCHERS not in text.splitlines()[-1] and not is_peer_lost(text)]
    return (telling or found)[-1]


def _tail(log: Path) -> list[str]:
    try:
        return read_end(log, _BYTES).decode(errors="replace").splitlines()
    except OSError:
        return []


def _tracebacks(lines: list[str]) -> list[str]:
    """Each from its "Traceback" line to the first line that is not indented, which names the error."""
    found = []
    for at, line in enumerate(lines):
        if match := _START.match(line):
            prefix = match["prefix"]  # torchrun writes "[rank0]: " before each line
            body = [text.removeprefix(prefix) for text in lines[at : at + _LINES]]
            end = next((i for i, text in enumerate(body[1:], 1) if text and not text.startswith(" ")), len(body) - 1)
            found.append("\n".join(body[: end + 1]) + "\n")
    return found
