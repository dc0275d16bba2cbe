"""Redraws a text until it can no longer change: `--watch`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

_HOME_AND_CLEAR = "\x1b[H\x1b[J"
_REDRAW = 1.0


def redraw(draw: Callable[[], tuple[str, list[str], bool]]) -> int:
    """Redraws in place on a terminal; elsewhere prints the text again when it has changed. Returns the exit status, 0.

    `draw` returns the text, the states by which changes are recognized, and whether they can still change.
    """
    previous = None
    while True:
        text, states, alive = draw()
        if sys.stdout.isatty():
            print(f"{_HOME_AND_CLEAR}{text}", flush=True)
        elif states != previous:
            print(text, flush=True)
            previous = states
        if not alive:
            return 0
        time.sleep(_REDRAW)
