"""Divides the time of GPUs among the points that shared them, second by second."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import TypeVar

from slurmopt.ledger.apportion import apportion

_Key = TypeVar("_Key", bound=Hashable)
Interval = tuple[int, int]
"""Start and end, in milliseconds."""


def divide(units: float, start: int, end: int, alive: Mapping[_Key, Iterable[Interval]]) -> tuple[dict[_Key, int], int]:
    """What each point had of `units` GPUs from `start` to `end`, in GPU-milliseconds, and what nobody had.

    `alive`: when each point ran; intervals may overlap, and may lie outside. In each instant the GPUs are divided
    equally among the points that run in it. The parts sum to round(units x (end - start)) exactly.
    """
    found = dict.fromkeys(alive, 0)
    end = max(start, end)
    running: dict[_Key, int] = {}
    changes = sorted(_changes(alive, start, end), key=lambda change: change[0])
    at = start
    for time, point, change in changes:
        amount = round(units * (time - start)) - round(units * (at - start))
        for one, share in zip(running, apportion(amount, [1.0] * len(running)) if running else [], strict=True):
            found[one] += share
        at = time
        running[point] = running.get(point, 0) + change
        if not running[point]:
            del running[point]
    return found, round(units * (end - start)) - sum(found.values())


def _changes(alive: Mapping[_Key, Iterable[Interval]], start: int, end: int) -> Iterable[tuple[int, _Key, int]]:
    for point, intervals in alive.items():
        for since, until in intervals:
            since, until = max(since, start), min(until, end)
            if since < until:
                yield since, point, 1
                yield until, point, -1
