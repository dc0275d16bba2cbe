"""The hook `notify.desktop`: a notification on the screen of this machine, where it has one."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from html import escape
from typing import Any

from slurmopt.notify.command import start
from slurmopt.notify.facts import lines, title

_SECONDS = 5.0
_OSASCRIPT = (
    "on run argv",
    "display notification (item 2 of argv) with title (item 1 of argv)",
    "end run",
)


def program(environ: Mapping[str, str]) -> str | None:
    """The program that shows notifications; None in a Slurm job, without a display, or where it is not installed."""
    if environ.get("SLURM_JOB_ID") or environ.get("SLURMD_NODENAME"):
        return None
    if sys.platform == "darwin":
        return None if environ.get("SSH_CONNECTION") else shutil.which("osascript", path=environ.get("PATH"))
    if not (environ.get("WAYLAND_DISPLAY") or environ.get("DISPLAY")):
        return None
    return shutil.which("notify-send", path=environ.get("PATH"))


def show(program: str, facts: dict[str, Any], environ: Mapping[str, str]) -> None:
    """Shows title and lines. Raises HookError."""
    body = "\n".join(lines(facts, longest=200))
    if program.endswith("osascript"):
        script = [word for line in _OSASCRIPT for word in ("-e", line)]
        argv = [program, *script, title(facts), body]
    else:
        urgency = "normal" if facts["state"] in ("finished", "requeued") else "critical"
        argv = [program, "--app-name=slurmopt", f"--urgency={urgency}", "--", title(facts), _plain(body)]
    start(argv, program.rpartition("/")[2], b"", environ, timeout=_SECONDS)


def _plain(text: str) -> str:
    """`text` for a body in which notify-send reads backslashes, and the desktop reads markup."""
    return escape(text, quote=False).replace("\\", "\\\\")
