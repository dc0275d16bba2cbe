"""Whether a run that asked for less than earlier ones had enough."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A run, and one thing that it asked for."""

    label: str
    asked: float | None
    """None where the site's default counted."""
    used: float | None
    """None where it was not measured."""
    finished: bool
    was_short: bool
    """Whether an attempt ended for want of it."""

    @property
    def had_enough(self) -> bool | None:
        """None where it does not tell: it was preempted, cancelled, still runs, or used all that there was."""
        if self.was_short:
            return False
        if not self.finished or (self.asked is not None and self.used is not None and self.used >= self.asked):
            return None
        return True


@dataclass(frozen=True)
class Check:
    """The verdict on one run."""

    trial: Trial
    before: float
    """What an earlier run asked for."""


def check(trials: Sequence[Trial]) -> Check | None:
    """Of the runs that asked for less than an earlier one the newest that tells something, else the newest. `trials`:
    newest first. None where none asked for less."""
    found = []
    for at, trial in enumerate(trials):
        if (before := _more_before(trial, trials[at + 1 :])) is not None:
            found.append(Check(trial, before))
    return next((one for one in found if one.trial.had_enough is not None), found[0] if found else None)


def _more_before(trial: Trial, older: Sequence[Trial]) -> float | None:
    """What the latest of the older runs asked for that asked for more."""
    if (asked := trial.asked) is None:
        return None
    return next((one.asked for one in older if one.asked is not None and one.asked > asked), None)
