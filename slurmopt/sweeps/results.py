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
import io
import json
import math
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

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
    seen = outcomes.table(standing(found.sweep))
    if found.points is not None:
        seen.rows = [row for row in seen.rows if row.point.number in found.points]
    ranking = rank(seen, given.sort, given.maximize)
    if given.plot is not None:
        _draw(ranking, given.plot)
    if given.csv:
        sys.stdout.write(as_csv(ranking))
    elif given.json:
        print(json.dumps(as_dict(ranking), allow_nan=False, default=str))
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
        finished = [row for row in found.rows if _counts(row)]
        others = [row for row in found.rows if not _counts(row)]
        if metric is not None:
            finished = outcomes.in_order(finished, metric, maximize)
        self.rows = [*finished, *others]
        self.finished = finished
        self.effects = self._effects()

    @property
    def best(self) -> Row | None:
        """The best point that finished."""
        first = self.finished[0] if self.finished and self.metric else None
        return first if first is not None and is_number(outcomes.key_of(first, str(self.metric))) else None

    @property
    def numbers(self) -> list[tuple[Row, float]]:
        """The finished points that have the metric as a finite number."""
        if self.metric is None:
            return []
        pairs = [(row, outcomes.key_of(row, self.metric)) for row in self.finished]
        return [(row, float(value)) for row, value in pairs if is_number(value)]

    def _effects(self) -> list[Effect]:
        axes = [axis for axis in self.found.axes if axis != self.metric]
        pairs = sorted(self.numbers, key=lambda pair: pair[0].point.number)  # so that words keep the order of the axis
        return effects([(row.values, value) for row, value in pairs], axes, self.maximize)


def _counts(row: Row) -> bool:
    """Whether the point came to its end: what a search gave up had no time to become good."""
    return row.point.state == "finished" and not row.point.pruned


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
    if found.rows:
        parts.append(_rows(ranking, most, width))
    if len(found.rows) > (most or len(found.rows)):
        parts.append(f"… and {len(found.rows) - (most or 0):,} more; --all shows them, --csv prints them")
    if ranking.effects:
        parts.append(_effects(ranking, width))
    parts.append(_last_words(ranking))
    return "\n\n".join(part for part in parts if part)


def _rows(ranking: Ranking, most: int | None, width: int | None) -> str:
    found = ranking.found
    metrics = sorted(found.metrics, key=lambda name: name != ranking.metric)
    head = ["POINT", *found.axes, *metrics, "TIME", "STATE"]
    rows = [_cells(row, found.axes, metrics) for row in ranking.rows[:most]]
    return table([_cell(name) for name in head], rows, width)


def _cells(row: Row, axes: list[str], metrics: list[str]) -> list[str]:
    values = [_cell(row.values[axis]) if axis in row.values else "" for axis in axes]
    numbers = [_cell(row.metrics[name]) if name in row.metrics else "" for name in metrics]
    took = human_seconds(row.point.seconds) if row.point.seconds is not None else ""
    error = f": {one_line(row.point.error)}" if row.point.error and row.point.state != "finished" else ""
    state = "pruned" if row.point.pruned else row.point.state
    return [str(row.point.number), *values, *numbers, took, f"{state}{error}"]


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
        said = f"best: point {best.point.number}, {word} {ranking.metric} {value}, with {values}"
        return one_line(said) + f"\nnext: slurmopt status {seen.label}/{best.point.number}"
    if found.metrics and ranking.metric is None:
        return f"several metrics: --sort picks one of {', '.join(map(one_line, found.metrics[:12]))}"
    if not found.metrics:
        return f"no point has told a metric yet; slurmopt status {seen.label}"
    return f"no point that finished has {one_line(str(ranking.metric))}; slurmopt status {seen.label}"


def as_csv(ranking: Ranking) -> str:
    """A line a point. A text that a spreadsheet would run as a formula gets an apostrophe in front."""
    found = ranking.found
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(map(_harmless, ["point", *found.axes, *found.metrics, "seconds", "state", "attempt", "error"]))
    for row in ranking.rows:
        values = [row.values.get(axis) for axis in found.axes]
        numbers = [row.metrics.get(name) for name in found.metrics]
        point = row.point
        tail = [point.seconds, point.state, point.attempt, point.error]
        writer.writerow([point.number, *map(_harmless, values), *numbers, *map(_harmless, tail)])
    return out.getvalue()


def _harmless(value: Any) -> Any:
    if isinstance(value, (bool, list, dict)):
        value = json.dumps(value, default=str)
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


def as_dict(ranking: Ranking) -> dict[str, Any]:
    """What `--json` prints."""
    found, seen = ranking.found, ranking.found.standing
    return {
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
        "best": ranking.best.point.number if ranking.best else None,
        "rows": [_row_dict(row) for row in ranking.rows],
        "effects": [_effect_dict(effect) for effect in ranking.effects],
    }


def _row_dict(row: Row) -> dict[str, Any]:
    return {
        "point": row.point.number,
        "state": row.point.state,
        "pruned": row.point.pruned,
        "values": {key: _finite(value) for key, value in row.values.items()},
        "metrics": {key: _finite(value) for key, value in row.metrics.items()},
        "seconds": row.point.seconds,
        "attempt": row.point.attempt,
        "error": row.point.error,
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
