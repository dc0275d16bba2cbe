"""Draws a text again and again until nothing of it can change any more: `--watch`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

_HOME_AND_CLEAR = "\x1b[H\x1b[J"
_REDRAW = 1.0


def redraw(look: Callable[[], tuple[str, list[str], bool]]) -> int:
    """On a terminal redraws in place; elsewhere prints again what has changed. `look` gives the text, what a change is
    told by, and whether it can change any more."""
    shown = None
    while True:
        text, states, alive = look()
        if sys.stdout.isatty():
            print(f"{_HOME_AND_CLEAR}{text}", flush=True)
        elif states != shown:
            print(text, flush=True)
            shown = states
        if not alive:
            return 0
        time.sleep(_REDRAW)
