"""`slurmopt results`: what the points of a sweep came to. Their axes and metrics, the best, what each axis does.

`--json` prints one object:

    name id folder state
    points             how many the sweep has
    states             state -> how many points
    axes metrics       their names
    metric             what `best` and `effects` are by; null where nothing was asked for and nothing is certain
    direction          minimize or maximize
    best               the number of the best point that finished; null where none has the metric
    rows               a list of objects, sorted by the metric: point, state, pruned (a search gave it up), values
                       (axis -> value), metrics, seconds, attempt, error; points that have not started are left out
    effects            a list of axis, share (of the metric's variance: 0 to 1) and levels (value, last, count, mean,
                       median, best), the largest share first: see `slurmopt.sweeps.effects`

A metric is what the point's rank 0 gave to `progress` last, or a number in what its function returned; a metric that is
no finite number is null. `--csv` prints a line a point. Metrics of points that did not finish, or that a search gave
up, count nowhere.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import sys
from array import array
from collections.abc import Callable, Iterator
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

from slurmopt.errors import InputError, RunError, one_line
from slurmopt.runs import options, stored
from slurmopt.runs.find import Selection, pick
from slurmopt.runs.table import cut, table, terminal_width
from slurmopt.sweeps import outcomes
from slurmopt.sweeps.effects import Effect, effects, is_number, shown
from slurmopt.sweeps.look import standing
from slurmopt.sweeps.outcomes import Row, Table
from slurmopt.sweeps.view import states
from slurmopt.units import human_seconds

_SHOWN = 20
_LONGEST = 40
_LEVELS = 6
_PIECE = 1000
"""Rows that are written at once."""
_FEW = 5000
"""Rows that json has written before msgspec is imported."""
_PICTURES = (".html", ".png")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""What a spreadsheet takes for the beginning of a formula."""


def main(argv: list[str]) -> int:
    """The command; returns the exit status."""
    given = parser().parse_args(argv)
    _check_picture(given.plot)
    found = pick(given.sweep, given.folder)
    if not isinstance(found, Selection):
        raise RunError(
            f"{one_line(f'{found.name}/{found.id}')} is a run, not a sweep; slurmopt status shows its metrics"
        )
    seen = outcomes.table(standing(found.sweep, metrics=True), found.points)
    ranking = rank(seen, given.sort, given.maximize)
    if given.plot is not None:
        _draw(ranking, given.plot)
    if given.csv:
        write_csv(ranking, sys.stdout)
    elif given.json:
        sys.stdout.writelines(as_json(ranking))
    elif given.plot is None or sys.stdout.isatty():
        print(text(ranking, _SHOWN if not given.all else None, terminal_width()))
    return 0


def parser() -> argparse.ArgumentParser:
    """The options of `slurmopt results`."""
    made = options.parser("results", "What the points of a sweep came to: the best, and what each axis does.")
    made.add_argument("sweep", nargs="?", metavar="SWEEP", help=options.RUN_HELP)
    made.add_argument("--sort", metavar="METRIC", help="a metric, an axis, or seconds (default: sweep.metric)")
    made.add_argument("--maximize", action="store_true", help="the largest is the best (default: sweep.direction)")
    made.add_argument("--all", action="store_true", help=f"show all points, not the first {_SHOWN}")
    made.add_argument("--plot", type=Path, metavar="FILE", help="draw a picture: .html, or .png with matplotlib")
    how = made.add_mutually_exclusive_group()
    how.add_argument("--csv", action="store_true", help="print a line a point, for spreadsheets and pandas")
    options.add_json(how)
    return made


class Ranking:
    """The points of a sweep in the order of a metric."""

    def __init__(self, found: Table, metric: str | None, maximize: bool) -> None:
        self.found = found
        self.metric = metric
        self.maximize = maximize
        self._finished = found.finished()
        self._having: list[int] = []
        """The places of finished points that have the metric as a finite number, in the order of the points."""
        self._metrics = array("d")
        """These numbers."""
        if metric is not None:
            self._sort(list(map(found.column(metric), self._finished)))
        self.effects = self._effects()

    def _sort(self, values: list[Any]) -> None:
        places = self._finished
        having = outcomes.having(values)
        self._having = [places[at] for at in having] if len(having) < len(places) else places
        self._metrics = array("d", map(values.__getitem__, having))
        self._finished = [places[at] for at in outcomes.in_order(values, having, self.maximize)]

    def rows(self) -> Iterator[Row]:
        """The finished points, the best first; then the others."""
        yield from self.finished
        if len(self._finished) < len(self.found.places):
            finished = set(self._finished)
            yield from self.found.rows([place for place in self.found.places if place not in finished])

    @property
    def finished(self) -> Iterator[Row]:
        """The points that finished, the best first."""
        return self.found.rows(self._finished)

    @property
    def best(self) -> Row | None:
        """The best point that finished."""
        first = next(self.found.rows(self._finished[:1]), None) if self.metric else None
        return first if first is not None and is_number(outcomes.key_of(first, str(self.metric))) else None

    @property
    def numbers(self) -> list[tuple[Row, float]]:
        """The finished points that have the metric as a finite number."""
        return list(zip(self.found.rows(self._having), self._metrics, strict=True))

    def _effects(self) -> list[Effect]:
        if not self._having:
            return []
        axes = [axis for axis in self.found.axes if axis != self.metric]
        return effects((self.found.tried(axis, self._having) for axis in axes), self._metrics, self.maximize)


def rank(found: Table, asked: str | None, maximize: bool) -> Ranking:
    """The points by the metric that was asked for, or that the sweep's config names."""
    group = stored.group(found.standing.sweep.run, "sweep")
    configured = group.get("metric")
    metric = outcomes.chosen_metric(found, asked, configured if isinstance(configured, str) else None)
    return Ranking(found, metric, maximize or group.get("direction") == "maximize")


def text(ranking: Ranking, most: int | None, width: int | None) -> str:
    """For people."""
    found, seen = ranking.found, ranking.found.standing
    parts = [f"{seen.label}: {states(seen.counts())}"]
    count = len(found.places)
    if count:
        parts.append(_rows(ranking, most, width))
    if count > (most or count):
        parts.append(f"… and {count - (most or 0):,} more; --all shows them, --csv prints them")
    if ranking.effects:
        parts.append(_effects(ranking, width))
    parts.append(_last_words(ranking))
    return "\n\n".join(part for part in parts if part)


def _rows(ranking: Ranking, most: int | None, width: int | None) -> str:
    found = ranking.found
    metrics = sorted(found.metrics, key=lambda name: name != ranking.metric)
    head = ["POINT", *found.axes, *metrics, "TIME", "STATE"]
    rows = [_cells(row, found.axes, metrics) for row in islice(ranking.rows(), most)]
    return table([_cell(name) for name in head], rows, width)


def _cells(row: Row, axes: list[str], metrics: list[str]) -> list[str]:
    values = [_cell(row.values[axis]) if axis in row.values else "" for axis in axes]
    numbers = [_cell(row.metrics[name]) if name in row.metrics else "" for name in metrics]
    took = human_seconds(row.seconds) if row.seconds is not None else ""
    error = f": {one_line(row.error)}" if row.error and row.state != "finished" else ""
    state = "pruned" if row.pruned else row.state
    return [str(row.point), *values, *numbers, took, f"{state}{error}"]


def _cell(value: Any) -> str:
    return cut(one_line(shown(value)), _LONGEST)


def _effects(ranking: Ranking, width: int | None) -> str:
    head = [f"what explains {_cell(ranking.metric)}", "share", "mean at its values, the best first"]
    rows = [
        [_cell(effect.axis), f"{effect.share:.0%}", _levels(effect, ranking.maximize)] for effect in ranking.effects
    ]
    return table(head, rows, width)


def _levels(effect: Effect, maximize: bool) -> str:
    ordered = sorted(effect.levels, key=lambda level: -level.mean if maximize else level.mean)
    said = "   ".join(f"{_cell(level.label)}: {level.mean:.4g}" for level in ordered[:_LEVELS])
    return f"{said}   … {len(ordered) - _LEVELS} more" if len(ordered) > _LEVELS else said


def _last_words(ranking: Ranking) -> str:
    """The best point, or what to do for one."""
    found, seen, best = ranking.found, ranking.found.standing, ranking.best
    if best is not None:
        word = "largest" if ranking.maximize else "smallest"
        values = " ".join(f"{key}={shown(value)}" for key, value in best.values.items())
        value = shown(outcomes.key_of(best, str(ranking.metric)))
        said = f"best: point {best.point}, {word} {ranking.metric} {value}, with {values}"
        return one_line(said) + f"\nnext: slurmopt status {seen.label}/{best.point}"
    if found.metrics and ranking.metric is None:
        return f"several metrics: --sort picks one of {', '.join(map(one_line, found.metrics[:12]))}"
    if not found.metrics:
        return f"no point has told a metric yet; slurmopt status {seen.label}"
    return f"no point that finished has {one_line(str(ranking.metric))}; slurmopt status {seen.label}"


def write_csv(ranking: Ranking, out: TextIO) -> None:
    """A line a point. A text that a spreadsheet would run as a formula gets an apostrophe in front."""
    found = ranking.found
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(map(_harmless, ["point", *found.axes, *found.metrics, "seconds", "state", "attempt", "error"]))
    for row in ranking.rows():
        values = [row.values.get(axis) for axis in found.axes]
        numbers = [row.metrics.get(name) for name in found.metrics]
        tail = [row.seconds, row.state, row.attempt, row.error]
        writer.writerow([row.point, *map(_harmless, values), *numbers, *map(_harmless, tail)])


def _harmless(value: Any) -> Any:
    if isinstance(value, (bool, list, dict)):
        value = json.dumps(value, default=str)
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


def as_json(ranking: Ranking) -> Iterator[str]:
    """What `--json` prints, in pieces: the rows of a million points are 200 MB."""
    found, seen, best = ranking.found, ranking.found.standing, ranking.best
    head = {
        "name": seen.sweep.name,
        "id": seen.sweep.id,
        "folder": str(seen.sweep.path),
        "state": seen.state,
        "points": seen.count,
        "states": seen.counts(),
        "axes": found.axes,
        "metrics": found.metrics,
        "metric": ranking.metric,
        "direction": "maximize" if ranking.maximize else "minimize",
        "best": best.point if best else None,
    }
    yield f'{_dumped(head)[:-1]}, "rows": ['
    rows, joint = map(_row_dict, ranking.rows()), ""
    dumped = _by_json if len(found.places) <= _FEW else _by_msgspec()
    while piece := list(islice(rows, _PIECE)):
        yield joint + dumped(piece)[1:-1]
        joint = ", "
    yield f'], "effects": {_dumped([_effect_dict(effect) for effect in ranking.effects])}}}\n'


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
    """In a fifth of the time; numbers that are not finite become null by themselves."""
    import msgspec

    encode = msgspec.json.Encoder(enc_hook=str).encode

    def dumped(rows: list[dict[str, Any]]) -> str:
        try:
            return encode(rows).decode()
        except UnicodeEncodeError:  # half of a character, which JSON can hold as an escape only
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


def _check_picture(path: Path | None) -> None:
    if path is not None and path.suffix.lower() not in _PICTURES:
        raise InputError(f"results: --plot {str(path)!r} is not valid; valid: a name that ends in .html or .png")


def _draw(ranking: Ranking, path: Path) -> None:
    from slurmopt.sweeps import plot

    if not ranking.numbers:
        raise RunError(f"{ranking.found.standing.label} has nothing to draw: {_last_words(ranking).splitlines()[0]}")
    try:
        plot.draw(ranking, path)
    except OSError as error:
        raise InputError(f"results: --plot {str(path)!r}: {(error.strerror or str(error)).lower()}") from error
    print(f"slurmopt: drawn: {path}", file=sys.stderr)
