"""Exports the results of a sweep: as CSV, one line per point, or as one JSON object."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from typing import Any, TextIO

from slurmopt.errors import plain_lines
from slurmopt.runs.ownership import owner_of
from slurmopt.sweeps.results.importance import Effect
from slurmopt.sweeps.results.outcomes import Row
from slurmopt.sweeps.results.ranking import Ranking

_FEW = 5000
"""Rows up to which json writes them; msgspec writes more."""
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""Characters with which a spreadsheet begins a formula."""


def write_csv(ranking: Ranking, out: TextIO) -> None:
    """Writes one line per point. An apostrophe is put before texts that a spreadsheet would run as a formula. In
    another user's sweep control characters are written as escapes."""
    axes, metrics = ranking.table.axes, ranking.table.metrics
    shown = str if owner_of(ranking.table.states.sweep.run) is None else plain_lines
    head = io.StringIO()
    csv.writer(head, lineterminator="\n").writerow(
        map(_harmless, ["point", *axes, *metrics, "seconds", "state", "attempt", "error"])
    )
    out.write(shown(head.getvalue()))

    def lines(rows: Iterable[Row]) -> str:
        piece = io.StringIO()
        writer = csv.writer(piece, lineterminator="\n")
        for row in rows:
            values = [row.values.get(axis) for axis in axes]
            numbers = [row.metrics.get(name) for name in metrics]
            tail = [row.seconds, row.state, row.attempt, row.error]
            writer.writerow([row.point, *map(_harmless, values), *numbers, *map(_harmless, tail)])
        return shown(piece.getvalue())

    out.writelines(ranking.written(lines))


def _harmless(value: Any) -> Any:
    if isinstance(value, (bool, list, dict)):
        value = json.dumps(value, default=str)
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


def as_json(ranking: Ranking) -> Iterator[str]:
    """Yields what `--json` prints, in pieces: the rows of a million points are 200 MB."""
    table, states, best = ranking.table, ranking.table.states, ranking.best
    head = {
        "name": states.sweep.name,
        "id": states.sweep.id,
        "folder": str(states.sweep.path),
        "state": states.state,
        "points": states.count,
        "states": states.counts(),
        "axes": table.axes,
        "metrics": table.metrics,
        "metric": ranking.metric,
        "direction": "maximize" if ranking.maximize else "minimize",
        "best": best.point if best else None,
    }
    yield f'{_dumped(head)[:-1]}, "rows": ['
    dumped, joint = _by_json if len(table.places) <= _FEW else _by_msgspec(), ""
    for piece in ranking.written(lambda rows: dumped(list(map(_row_dict, rows)))[1:-1]):
        yield joint + piece
        joint = ", "
    yield f'], "effects": {_dumped([_effect_dict(effect) for effect in ranking.effects])}}}'


def _dumped(value: Any) -> str:
    return json.dumps(value, allow_nan=False, default=str)


def _by_json(rows: list[dict[str, Any]]) -> str:
    finite = [
        {
            **row,
            **{group: {key: _finite(value) for key, value in row[group].items()} for group in ("values", "metrics")},
        }
        for row in rows
    ]
    return _dumped(finite)


def _by_msgspec() -> Callable[[list[dict[str, Any]]], str]:
    """An encoder that takes a fifth of the time. msgspec writes numbers that are not finite as null."""
    import msgspec

    encode = msgspec.json.Encoder(enc_hook=str).encode

    def dumped(rows: list[dict[str, Any]]) -> str:
        try:
            return encode(rows).decode()
        except UnicodeEncodeError:  # a lone surrogate, which JSON can only contain as an escape
            return _by_json(rows)

    return dumped


def _row_dict(row: Row) -> dict[str, Any]:
    return {
        "point": row.point,
        "state": row.state,
        "pruned": row.pruned,
        "values": row.values,
        "metrics": row.metrics,
        "seconds": row.seconds,
        "attempt": row.attempt,
        "error": row.error,
    }


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _effect_dict(effect: Effect) -> dict[str, Any]:
    return {"axis": effect.axis, "share": effect.share, "levels": [asdict(level) for level in effect.levels]}
