"""Shows a run or a sweep again and again until it has ended."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

_PAUSE = 1.0


def watch(subject: object, is_done: Callable[[], bool]) -> None:
    """In a notebook `subject` is shown in place; elsewhere its line is printed when it has changed. Ctrl-C ends it."""
    show = _in_notebook(subject) or _as_lines(subject)
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            done = is_done()
            show()
            if done:
                return
            time.sleep(_PAUSE)


def _in_notebook(subject: object) -> Callable[[], None] | None:
    """Shows `subject` in the output of a cell; None where this is no notebook."""
    try:
        from IPython import get_ipython  # type: ignore[import-not-found, unused-ignore]
        from IPython.display import display  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        return None
    shell: Any = get_ipython()
    if shell is None or not hasattr(shell, "kernel"):  # the terminal's IPython shows lines
        return None
    handle = display(subject, display_id=True)
    return lambda: handle.update(subject)


def _as_lines(subject: object) -> Callable[[], None]:
    last = ""

    def show() -> None:
        nonlocal last
        line = repr(subject)
        if line != last:
            print(line, flush=True)
            last = line

    return show
