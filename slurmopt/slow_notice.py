"""Prints a notice to standard error if an operation takes longer than two seconds."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator

_SECONDS = 2.0


@contextlib.contextmanager
def slow_notice(what: str) -> Iterator[None]:
    """Says `what` is going on if the block takes over two seconds."""
    timer = threading.Timer(_SECONDS, lambda: print(f"slurmopt: {what} …", file=sys.stderr, flush=True))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
