"""Telling whether a process that the journal names still lives; process ids are used again."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any


def started_at(pid: int) -> int | None:
    """When the process started, in clock ticks since boot (field 22 of /proc/PID/stat); None where there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text.rpartition(")")[2].split()
    return None if fields[0] == "Z" else int(fields[19])


def alive(event: dict[str, Any], run: Path) -> bool | None:
    """Whether the local runner that a `submitted` event of `run` names lives; None on another host, where nobody can
    tell. A journal can be edited: the process must be the runner of that very run."""
    if event.get("host") != socket.gethostname():
        return None
    pid = event.get("pid")
    if not isinstance(pid, int) or event.get("pid_started") != started_at(pid):
        return False
    return started_at(pid) is not None and str(run) in _words(pid)


def _words(pid: int) -> list[str]:
    try:
        return os.fsdecode(Path(f"/proc/{pid}/cmdline").read_bytes()).split("\0")
    except (FileNotFoundError, ProcessLookupError):
        return []
