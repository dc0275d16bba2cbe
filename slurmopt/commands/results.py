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
                       median, best), the largest share first: see `slurmopt.sweeps.results.importance`

A metric is what the point's rank 0 gave to `progress` last, or a number in what its function returned; a metric that is
no finite number is null. `--csv` prints a line a point. Metrics of points that did not finish, or that a search gave
up, count nowhere.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from slurmopt.errors import InputError, RunError, one_line, why_failed
from slurmopt.runs import options
from slurmopt.runs.find import Selection, pick
from slurmopt.runs.table import cut, table, terminal_width
from slurmopt.sweeps.results import export, outcomes
from slurmopt.sweeps.results.importance import Effect, shown
from slurmopt.sweeps.results.outcomes import Row
from slurmopt.sweeps.results.ranking import Ranking, rank
from slurmopt.sweeps.status.query import standing
from slurmopt.sweeps.status.view import state_counts
from slurmopt.units import human_seconds

_SHOWN = 20
_LONGEST = 40
_LEVELS = 6
_PICTURES = (".html", ".png")


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
        export.write_csv(ranking, sys.stdout)
    elif given.json:
        sys.stdout.writelines(export.as_json(ranking))
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


def text(ranking: Ranking, most: int | None, width: int | None) -> str:
    """For people."""
    found, seen = ranking.found, ranking.found.standing
    parts = [f"{seen.label}: {state_counts(seen.counts())}"]
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
    rows = [_cells(row, found.axes, metrics) for row in found.rows(ranking.places(most))]
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


def _check_picture(path: Path | None) -> None:
    if path is not None and path.suffix.lower() not in _PICTURES:
        raise InputError(f"results: --plot {str(path)!r} is not valid; valid: a name that ends in .html or .png")


def _draw(ranking: Ranking, path: Path) -> None:
    from slurmopt.sweeps.results import plot

    if not ranking.numbers:
        raise RunError(f"{ranking.found.standing.label} has nothing to draw: {_last_words(ranking).splitlines()[0]}")
    try:
        plot.draw(ranking, path)
    except OSError as error:
        raise InputError(f"results: --plot {str(path)!r}: {why_failed(error)}") from error
    print(f"slurmopt: drawn: {path}", file=sys.stderr)
