"""Takes the lock of an open file, with a timeout and without blocking."""

from __future__ import annotations

import fcntl
import time


def held(descriptor: int, deadline: float, pause: float = 0.1) -> bool | None:
    """Takes the lock of an open file. Returns whether it was free before `deadline` (of time.monotonic()); None if the
    file system has no locks.

    `pause`: seconds between two tries. The lock ends with the descriptor.
    """
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(pause)
        except OSError:
            return None
