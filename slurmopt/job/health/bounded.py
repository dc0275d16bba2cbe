"""The time limit of health checks, and a check within it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from slurmopt.checks.in_thread import InThread, Late
from slurmopt.checks.result import CheckResult, NotChecked, failed

Look = Callable[[], CheckResult | None]
"""Returns what is wrong, or None. May raise NotChecked or OSError."""


class Budget:
    """The time limit that several checks of a rank share: `times` times `seconds`."""

    def __init__(self, seconds: float, times: int = 1) -> None:
        self.seconds = seconds * times
        self.said = "health.within" if times == 1 else f"{times} times health.within"
        self._end = time.monotonic() + self.seconds

    def left(self) -> float:
        return max(0.0, self._end - time.monotonic())


def bounded(what: str, budget: Budget, look: Look, passing: bool = False) -> CheckResult | None:
    """Runs `look` in a thread. Returns what it found, or that `what` did not answer in time; `passing` is set in that.

    If the check cannot be made, the reason is printed to standard error.
    """
    try:
        return InThread(what, look).result(budget.left())
    except Late:
        return failed(what, f"{what} did not answer within {budget.seconds:g} s ({budget.said})", passing=passing)
    except NotChecked as reason:
        print(f"slurmopt: health: {reason}", file=sys.stderr, flush=True)
    except OSError as error:
        print(f"slurmopt: health: {what} is not checked: {error}", file=sys.stderr, flush=True)
    return None
