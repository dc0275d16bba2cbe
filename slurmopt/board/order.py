"""Which rows of the board are shown, and in which order."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

from slurmopt.board.row import Row, rank_of

_Key = Callable[[Row], Any]
_LAST = 100
"""After all states."""


def _low(value: float | None) -> tuple[bool, float]:
    """Small values first, missing ones last."""
    missing = value is None or math.isnan(value)
    return missing, 0.0 if value is None or missing else value


def _high(value: float | None) -> tuple[bool, float]:
    """Large values first, missing ones last."""
    missing, known = _low(value)
    return missing, -known


def _newest(row: Row) -> tuple[bool, float]:
    return _high(row.created)


ORDERS: dict[str, _Key] = {
    "active": lambda row: (rank_of(row.state) if row.alive else _LAST, _newest(row)),
    "age": _newest,
    "name": lambda row: (row.name, _newest(row)),
    "state": lambda row: (rank_of(row.state), _newest(row)),
    "done": lambda row: _high(row.share),
    "left": lambda row: _low(row.left),
    "metric": lambda row: _low(row.metric[1] if row.metric else None),
    "rate": lambda row: _high(row.rate),
    "gpu": lambda row: _low(row.gpu[-1] if row.gpu else None),
}
"""The word of an order → the key of a row in it. `active`: what is under way, then the rest, each newest first."""


def ordered(rows: Iterable[Row], order: str, backwards: bool = False) -> list[Row]:
    """The rows in that order; rows with the same key stay newest first."""
    by_id = sorted(rows, key=lambda row: row.id, reverse=True)
    return sorted(by_id, key=ORDERS[order], reverse=backwards)


def matching(rows: Iterable[Row], words: str) -> list[Row]:
    """The rows that have all of the words in name, ID, state, job, nodes or detail."""
    wanted = words.lower().split()
    return [row for row in rows if not wanted or all(word in _text(row) for word in wanted)]


def _text(row: Row) -> str:
    kind = "sweep" if row.is_sweep else "run"
    return f"{row.name}/{row.id} {row.state} {row.job} {row.nodes} {row.owner} {kind} {row.detail}".lower()
