"""`slurmopt results`: prints the results of a sweep's points: their axes and metrics, the best, the effect of each
axis.

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
no finite number is null. Metrics of points that did not finish, or that a search gave up, count nowhere. `--csv` prints
a line a point, `--html` writes the page of `slurmopt.report.sweep_page`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from slurmopt import command_output
from slurmopt.errors import InputError, RunError, one_line, why_failed
from slurmopt.runs import options
from slurmopt.runs.find import Selection, select
from slurmopt.runs.text_table import cut, table, terminal_width
from slurmopt.sweeps.results import export, outcomes
from slurmopt.sweeps.results.importance import Effect, shown
from slurmopt.sweeps.results.outcomes import Row
from slurmopt.sweeps.results.ranking import Ranking, rank
from slurmopt.sweeps.status.query import sweep_states
from slurmopt.sweeps.status.view import state_counts
from slurmopt.units import human_seconds

_SHOWN = 20
_LONGEST = 40
_LEVELS = 6
_PICTURES = (".html", ".png")


def main(argv: list[str]) -> int:
    """Runs the command and returns its exit status."""
    args = parser().parse_args(argv)
    _check_picture(args.plot)
    if args.open and (args.csv or args.json or args.html == "-"):
        raise InputError("results: --open needs a page in a file; valid beside it: --html FILE")
    if args.html and args.html != "-" and not args.html.lower().endswith(".html"):
        raise InputError(
            f"results: --html {one_line(args.html)} is not valid; valid: a name that ends in .html, or -, which prints "
            "the page; the name of the sweep comes before --html"
        )
    selection = select(args.sweep, args.folder)
    if not isinstance(selection, Selection):
        raise RunError(
            f"{one_line(f'{selection.name}/{selection.id}')} is a run, not a sweep; slurmopt status shows its metrics"
        )
    outcome_table = outcomes.table(sweep_states(selection.sweep, metrics=True), selection.points)
    ranking = rank(outcome_table, args.sort, args.maximize)
    if args.plot is not None:
        _draw(ranking, args.plot)
    if args.html is not None or args.open:
        _write_page(ranking, args.html or "", args.open)
    elif args.csv:
        export.write_csv(ranking, sys.stdout)
    elif args.json:
        command_output.print_pieces(export.as_json(ranking))
    elif args.plot is None or sys.stdout.isatty():
        print(text(ranking, _SHOWN if not args.all else None, terminal_width()))
    return 0


def parser() -> argparse.ArgumentParser:
    """The options of `slurmopt results`."""
    parser = options.parser("results", "Show the best points of a sweep and the effect of each axis.")
    parser.add_argument("sweep", nargs="?", metavar="SWEEP", help=options.RUN_HELP)
    parser.add_argument("--sort", metavar="METRIC", help="a metric, an axis, or seconds (default: sweep.metric)")
    parser.add_argument(
        "--maximize", action="store_true", help="the largest value is the best (default: sweep.direction)"
    )
    parser.add_argument("--all", action="store_true", help=f"show all points, not the first {_SHOWN}")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw a plot: .html, or .png with matplotlib")
    output = parser.add_mutually_exclusive_group()
    output.add_argument("--csv", action="store_true", help="print one line per point, for spreadsheets and pandas")
    options.add_json(output)
    output.add_argument(
        "--html", nargs="?", const="", metavar="FILE", help="write one page with charts (default: ID-results.html)"
    )
    parser.add_argument("--open", action="store_true", help="write the page and open it in a browser")
    return parser


def text(ranking: Ranking, most: int | None, width: int | None) -> str:
    """The results for people, with `most` rows at most."""
    points_table, states = ranking.table, ranking.table.states
    parts = [f"{states.label}: {state_counts(states.counts())}"]
    count = len(points_table.places)
    if count:
        parts.append(_rows(ranking, most, width))
    if count > (most or count):
        parts.append(f"… and {count - (most or 0):,} more; --all shows them, --csv prints them")
    if ranking.effects:
        parts.append(_effects(ranking, width))
    parts.append(_last_words(ranking))
    return "\n\n".join(part for part in parts if part)


def _rows(ranking: Ranking, most: int | None, width: int | None) -> str:
    points_table = ranking.table
    metrics = sorted(points_table.metrics, key=lambda name: name != ranking.metric)
    head = ["POINT", *points_table.axes, *metrics, "TIME", "STATE"]
    rows = [_cells(row, points_table.axes, metrics) for row in points_table.rows(ranking.places(most))]
    return table([_cell(name) for name in head], rows, width)


def _cells(row: Row, axes: list[str], metrics: list[str]) -> list[str]:
    values = [_cell(row.values[axis]) if axis in row.values else "" for axis in axes]
    numbers = [_cell(row.metrics[name]) if name in row.metrics else "" for name in metrics]
    duration = human_seconds(row.seconds) if row.seconds is not None else ""
    error = f": {one_line(row.error)}" if row.error and row.state != "finished" else ""
    state = "pruned" if row.pruned else row.state
    return [str(row.point), *values, *numbers, duration, f"{state}{error}"]


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
    levels_text = "   ".join(f"{_cell(level.label)}: {level.mean:.4g}" for level in ordered[:_LEVELS])
    return f"{levels_text}   … {len(ordered) - _LEVELS} more" if len(ordered) > _LEVELS else levels_text


def _last_words(ranking: Ranking) -> str:
    """The last line: the best point, or what to do in order to get one."""
    points_table, states, best = ranking.table, ranking.table.states, ranking.best
    sweep = options.run_arg(states.sweep.run, states.label)
    if best is not None:
        adjective = "largest" if ranking.maximize else "smallest"
        values = " ".join(f"{key}={shown(value)}" for key, value in best.values.items())
        value = shown(outcomes.key_of(best, str(ranking.metric)))
        line = f"best: point {best.point}, {adjective} {ranking.metric} {value}, with {values}"
        return f"{one_line(line)}\nnext: slurmopt status {sweep}/{best.point}"
    if points_table.metrics and ranking.metric is None:
        return f"several metrics: --sort picks one of {', '.join(map(_cell, points_table.metrics[:12]))}"
    if not points_table.metrics:
        how = "slurmopt.progress(step, loss=…) in its code does"
        return f"no point has reported a metric yet; {how}\nnext: slurmopt status {sweep}"
    return f"no point that finished has {one_line(str(ranking.metric))}; slurmopt status {sweep}"


def _check_picture(path: Path | None) -> None:
    if path is not None and path.suffix.lower() not in _PICTURES:
        raise InputError(f"results: --plot {str(path)!r} is not valid; valid: a name that ends in .html or .png")


def _draw(ranking: Ranking, path: Path) -> None:
    from slurmopt.sweeps.results import plot

    if not ranking.numbers:
        raise RunError(f"{ranking.table.states.label} has nothing to draw: {_last_words(ranking).splitlines()[0]}")
    try:
        plot.draw(ranking, path)
    except OSError as error:
        raise InputError(f"results: --plot {str(path)!r}: {why_failed(error)}") from error
    print(f"slurmopt: drawn: {path}", file=sys.stderr)


def _write_page(ranking: Ranking, name: str, opens: bool) -> None:
    from slurmopt.report.output import page_file
    from slurmopt.report.sweep_page import page

    path = Path(name or f"{ranking.table.states.sweep.id}-results.html")
    page_file.write("results", path, page.page_of(ranking))
    if opens:
        page_file.open_in_browser(path.absolute())
