"""Colours of states on a terminal. The words tell the same without them."""

from __future__ import annotations

import os
from typing import TextIO

CHOICES = ("auto", "always", "never")
BOLD, _RED, _GREEN, _YELLOW, _CYAN, _GREY = "1", "31", "32", "33", "36", "90"
_OF_STATE = {
    "finished": _GREEN,
    "running": _CYAN,
    **dict.fromkeys(("pending", "requeued", "stopping"), _YELLOW),
    **dict.fromkeys(("failed", "killed", "lost"), _RED),
    **dict.fromkeys(("cancelled", "unsubmitted", "unknown"), _GREY),
}


def wanted(choice: str, stream: TextIO) -> bool:
    """Whether to print colours on `stream`. `auto`: on a terminal that has them; NO_COLOR and FORCE_COLOR decide."""
    if choice != "auto":
        return choice == "always"
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR", "0") not in ("", "0"):
        return True
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def paint(text: str, code: str) -> str:
    """`text` between the escapes of `code`."""
    return f"\x1b[{code}m{text}\x1b[0m" if code and text.strip() else text


def of_state(state: str) -> str:
    """The code of a state's colour; "" for a word that is none."""
    return _OF_STATE.get(state, "")
