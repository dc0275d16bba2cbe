"""Redraws a text until it can no longer change: `--watch`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from slurmopt.runs.status.keys import keyboard

_HOME_AND_CLEAR = "\x1b[H\x1b[J"
_REDRAW = 1.0
_HINT = "q ends this view, and nothing else"


def redraw(draw: Callable[[], tuple[str, list[str], bool]]) -> bool:
    """Redraws in place on a terminal; elsewhere prints the text again when it has changed. Returns whether it is over;
    False after the key q.

    `draw` returns the text, the states by which changes are recognized, and whether they can still change.
    """
    is_live = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
    previous = None
    with keyboard() as keys:
        while True:
            text, states, alive = draw()
            if is_live:
                hint = f"\n\n{_HINT}" if alive and keys.is_live else ""
                print(f"{_HOME_AND_CLEAR}{text}{hint}", flush=True)
            elif states != previous:
                print(text, flush=True)
                previous = states
            if not alive:
                return True
            if "q" in keys.pressed(_REDRAW).lower():
                return False
