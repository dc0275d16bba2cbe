"""The result of a health check, and its time limit."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """A problem that a health check has found, in one line."""

    text: str
    nodes: tuple[str, ...] | None = None
    """The nodes at fault; None for the node of this rank."""
    passing: bool = False
    """Whether the problem may pass by itself, so that the node is checked again."""


class NotChecked(Exception):
    """Raised by a check that cannot be made here, with the reason. This is no failure."""


Check = Callable[[], Finding | None]


class Budget:
    """The time limit that several checks of a rank share: `times` times `seconds`."""

    def __init__(self, seconds: float, times: int = 1) -> None:
        self.seconds = seconds * times
        self.said = "health.within" if times == 1 else f"{times} times health.within"
        self._end = time.monotonic() + self.seconds

    def left(self) -> float:
        return max(0.0, self._end - time.monotonic())


def bounded(what: str, budget: Budget, check: Check, passing: bool = False) -> Finding | None:
    """Runs `check` in a thread, because a dead disk or driver never returns. Returns its finding, or one saying that
    `what` did not answer in time; `passing` is set in that one.

    If the check cannot be made, the reason is printed to standard error.
    """
    from concurrent import futures  # it brings logging along, which a command's rank does without

    future: futures.Future[Finding | None] = futures.Future()

    def run() -> None:
        try:
            future.set_result(check())
        except Exception as error:  # noqa: BLE001 - handed over to the waiting thread
            future.set_exception(error)

    threading.Thread(target=run, name="slurmopt-health", daemon=True).start()
    try:
        return future.result(budget.left())
    except NotChecked as reason:
        print(f"slurmopt: health: {reason}", file=sys.stderr, flush=True)
        return None
    except futures.TimeoutError:  # an OSError since Python 3.11
        return Finding(f"{what} did not answer within {budget.seconds:g} s ({budget.said})", passing=passing)
    except OSError as error:
        print(f"slurmopt: health: {what} is not checked: {error}", file=sys.stderr, flush=True)
        return None
