"""Telling whether a process that the journal names still lives; process ids are used again."""

from __future__ import annotations

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


def alive(event: dict[str, Any]) -> bool | None:
    """Whether the local backend's process of a `submitted` event lives; None on another host, where nobody can tell."""
    if event.get("host") != socket.gethostname():
        return None
    pid = event.get("pid")
    return isinstance(pid, int) and event.get("pid_started") == started_at(pid) is not None
