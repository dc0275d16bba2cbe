"""Joins what the children of a rank have measured with what the rank's own process measures.

To the rank a command is one activity, `running`. What its children say they spent is taken out of that, so that the
whole still sums to the age of the rank.
"""

from __future__ import annotations

import math
from typing import Any

from slurmopt.job.heartbeat.activity_clock import FIRST_STEP, LONGEST_NAME, MOST_NAMES, OTHERS, RUNNING
from slurmopt.job.heartbeat.counters import PEAK, STEPS
from slurmopt.run_folder.json_values import number, text

_MOST_CHILDREN = 64
_LONGEST = 1e9
"""Seconds, thirty years."""
_ENDED = "children that have ended"


class ChildMeasurements:
    """The last message of each child. Called with the lock of the rank's heartbeat held."""

    def __init__(self) -> None:
        self._spent: dict[str, dict[str, float]] = {}
        self._counted: dict[str, dict[str, float]] = {}
        self._now: str | None = None
        self._before = 0.0
        self._share = 1.0

    def take(self, message: Any, own: dict[str, float]) -> None:
        """Takes in a child's message. `own`: the rank's own activities at this moment."""
        if not isinstance(message, dict):
            return
        child = str(text(message.get("id")))[:LONGEST_NAME]
        is_new = child not in self._spent
        self._spent[child], self._counted[child] = (
            _amounts(message.get("spent"), _LONGEST),
            _amounts(message.get("counted")),
        )
        now = text(message.get("now"))
        self._now = now[:LONGEST_NAME] if now else None
        if is_new:  # what went by before it could measure: shells, Python's start, imports
            self._before += max(0.0, _of_children(own) - self._before - _sum(self._spent))
            self._fold()

    def spent(self, own: dict[str, float]) -> dict[str, float]:
        """The rank's activities with those of the children in place of `running` and `first step`."""
        if not self._spent:
            return own
        available, told = _of_children(own), _sum(self._spent)
        share = min(1.0, available / told) if told else 1.0
        self._share = share  # a half where two measure at the same time
        joined = {name: value for name, value in own.items() if name not in (RUNNING, FIRST_STEP)}
        for spent in self._spent.values():
            for name, value in spent.items():
                _add(joined, name, value * share)
        rest = max(0.0, available - told * share)
        before = min(rest, self._before)
        _add(joined, FIRST_STEP, before)
        _add(joined, self._now or RUNNING, rest - before)
        return {name: value for name, value in joined.items() if value > 0}

    def counted(self, own: dict[str, float]) -> dict[str, float]:
        """The rank's sums with those of its children. Children that work at the same time make the same steps."""
        joined: dict[str, float] = {}
        for counted in self._counted.values():
            _join(joined, counted)
        if STEPS in joined:
            joined[STEPS] = float(round(joined[STEPS] * self._share))
        _join(joined, own)
        return joined

    def _fold(self) -> None:
        """Keeps memory bounded: a command may start processes without end."""
        if len(self._spent) <= _MOST_CHILDREN:
            return
        oldest = next(child for child in self._spent if child != _ENDED)
        spent, counted = self._spent.pop(oldest), self._counted.pop(oldest)
        ended = self._spent.setdefault(_ENDED, {})
        for name, value in spent.items():
            _add(ended, name, value)
        _join(self._counted.setdefault(_ENDED, {}), counted)


def _of_children(own: dict[str, float]) -> float:
    return own.get(RUNNING, 0.0) + own.get(FIRST_STEP, 0.0)


def _sum(spent: dict[str, dict[str, float]]) -> float:
    return sum(sum(each.values()) for each in spent.values())


def _add(spent: dict[str, float], name: str, seconds: float) -> None:
    name = name if name in spent or len(spent) < MOST_NAMES - 1 else OTHERS
    spent[name] = spent.get(name, 0.0) + seconds


def _join(joined: dict[str, float], counted: dict[str, float]) -> None:
    for name, value in counted.items():
        if name in joined:
            joined[name] = max(joined[name], value) if name.endswith(PEAK) else joined[name] + value
        elif len(joined) < MOST_NAMES:
            joined[name] = value


def _amounts(value: Any, most: float = math.inf) -> dict[str, float]:
    """What a message says, where it makes sense: any process of the user may send one."""
    if not isinstance(value, dict):
        return {}
    pairs = [(str(name)[:LONGEST_NAME], number(each)) for name, each in list(value.items())[: 2 * MOST_NAMES]]
    return {name: each for name, each in pairs if each is not None and 0 <= each <= most}
