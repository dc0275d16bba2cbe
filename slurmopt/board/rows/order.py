"""Which rows of the board are shown, and in which order."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from slurmopt.board.rows.row import Row, rank_of

_LAST = 100
"""After all states."""


@dataclass(frozen=True)
class Order:
    """An order of rows. Rows without a value are last in both directions."""

    value: Callable[[Row], Any]
    falls: bool = False
    """Large values first."""


def _created(row: Row) -> float | None:
    return row.created


def _last_gpu(row: Row) -> float | None:
    return row.gpu[-1] if row.gpu else None


ORDERS: dict[str, Order] = {
    "active": Order(lambda row: rank_of(row.state) if row.alive else _LAST),
    "age": Order(_created, falls=True),
    "name": Order(lambda row: row.name),
    "state": Order(lambda row: rank_of(row.state)),
    "done": Order(lambda row: row.share, falls=True),
    "left": Order(lambda row: row.left),
    "metric": Order(lambda row: row.metric[1] if row.metric else None),
    "rate": Order(lambda row: row.rate, falls=True),
    "gpu": Order(_last_gpu),
}
"""The word of an order → the order. `active`: what is under way, then the rest."""


def ordered(rows: Iterable[Row], order: str, backwards: bool = False) -> list[Row]:
    """The rows in that order; those with the same value are newest first."""
    by_id = sorted(rows, key=lambda row: row.id, reverse=True)
    newest = sorted(by_id, key=lambda row: row.created or 0.0, reverse=True)
    chosen = ORDERS[order]
    known = [(value, row) for row in newest if _is_known(value := chosen.value(row))]
    has = {row.path for _, row in known}
    known.sort(key=lambda pair: pair[0], reverse=chosen.falls != backwards)
    return [*(row for _, row in known), *(row for row in newest if row.path not in has)]


def _is_known(value: Any) -> bool:
    return value is not None and value == value  # not nan


def matching(rows: Iterable[Row], words: str) -> list[Row]:
    """The rows that have all of the words in name, ID, state, job, nodes or detail."""
    wanted = words.lower().split()
    return [row for row in rows if not wanted or all(word in _text(row) for word in wanted)]


def _text(row: Row) -> str:
    kind = "sweep" if row.is_sweep else "run"
    return f"{row.name}/{row.id} {row.state} {row.job} {row.nodes} {row.owner} {kind} {row.detail}".lower()
