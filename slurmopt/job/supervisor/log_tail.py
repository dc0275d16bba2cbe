"""What a command that failed left in its log: a traceback, or a last line."""

from __future__ import annotations

import re
from pathlib import Path

from slurmopt.errors import one_line
from slurmopt.job.failures import is_peer_lost
from slurmopt.run_folder.access.files import read_end

_BYTES = 65536
_LINES = 60
_LONGEST_LINE = 300
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_OTHERS = re.compile(r"slurmopt: |srun: |slurmstepd: |slurmopt\[")
"""How lines begin that are not the command's own."""
_START = re.compile(r"^(?P<prefix>.*?)Traceback \(most recent call last\):\s*$")
LAUNCHERS = "ChildFailedError"
"""The error in torchrun's own traceback, which does not tell the cause."""


def last_traceback(log: Path) -> str | None:
    """The most informative Python traceback near the end of a log: not the launcher's own or that of a lost peer, if
    there is another one. None if the log has none."""
    tracebacks = _tracebacks(_tail(log))
    if not tracebacks:
        return None
    telling = [text for text in tracebacks if LAUNCHERS not in text.splitlines()[-1] and not is_peer_lost(text)]
    return (telling or tracebacks)[-1]


def last_line(log: Path) -> str | None:
    """The last line of a log that says something: what a command that failed printed last, mostly to standard error.
    None if there is none."""
    for line in reversed(_tail(log)):
        said = _ESCAPES.sub("", line.rsplit("\r", 1)[-1]).strip()
        if any(char.isalnum() for char in said) and not _OTHERS.match(said):
            shown = one_line(said)
            return shown if len(shown) <= _LONGEST_LINE else f"{shown[: _LONGEST_LINE - 1]}…"
    return None


def _tail(log: Path) -> list[str]:
    try:
        return read_end(log, _BYTES).decode(errors="replace").splitlines()
    except OSError:
        return []


def _tracebacks(lines: list[str]) -> list[str]:
    """The tracebacks, each from its "Traceback" line to the first unindented line, which names the error."""
    tracebacks = []
    for at, line in enumerate(lines):
        if match := _START.match(line):
            prefix = match["prefix"]  # torchrun writes "[rank0]: " before each line
            body = [text.removeprefix(prefix) for text in lines[at : at + _LINES]]
            end = next((i for i, text in enumerate(body[1:], 1) if text and not text.startswith(" ")), len(body) - 1)
            tracebacks.append("\n".join(body[: end + 1]) + "\n")
    return tracebacks
