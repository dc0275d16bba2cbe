"""The results of a sweep as one HTML page that needs nothing else, with charts by Apache ECharts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from slurmopt.grid.point_ranges import Ranges
from slurmopt.report.output.page import render
from slurmopt.report.sweep_page.columns import MOST_AXES, MOST_METRICS, PageColumn, columns, text
from slurmopt.report.sweep_page.command import command
from slurmopt.report.sweep_page.effects import axis_effects
from slurmopt.runs.options import run_arg
from slurmopt.runs.status.state import ALIVE, FAILED
from slurmopt.runs.text_table import cut
from slurmopt.sweeps.results.outcomes import Row, key_of
from slurmopt.sweeps.results.ranking import Ranking
from slurmopt.sweeps.status import failures
from slurmopt.sweeps.status.point_states import SweepStates
from slurmopt.sweeps.status.view import state_counts
from slurmopt.units import human_seconds

MOST_POINTS = 5000
"""On the page; of more there are the best, and an even share of the others."""
_MOST_BEST = 1000
_MOST_BYTES = 1_500_000
"""Of the data; with more there are fewer points on the page."""
_LEAST_POINTS = 50
_STATIC_ROWS = 100
"""Rows of the table that are there without JavaScript."""
_MOST_FAILURES = 12
_LONGEST_RANGES = 80
"""Characters of the numbers of the points that failed of the same."""
_STYLES = ("report.css", "results.css")
_SCRIPTS = (
    "echarts.js", "results-data.js", "results-charts.js", "results-table.js", "results-metric.js", "results.js",
    "copy.js",
)  # fmt: skip


@dataclass(frozen=True)
class Content:
    """What is on the page of each point."""

    rows: list[Row]
    columns: list[PageColumn]
    data: dict[str, Any]
    """What the page's script reads."""


def page_of(ranking: Ranking) -> str:
    """The page."""
    table, states, best = ranking.table, ranking.table.states, ranking.best
    content = _content(ranking)
    counts = states.counts(table.selected)
    return render(
        "results.html.j2",
        _STYLES,
        _SCRIPTS,
        label=states.label,
        folder=str(states.sweep.path),
        example=content.rows[0].point if content.rows else 0,
        counts=state_counts(counts),
        tiles=_tiles(ranking, best),
        best=best,
        best_values=[] if best is None else [(text(key), text(value)) for key, value in best.values.items()],
        command=None if best is None else command(table.points, best),
        of_an_application=table.points.kind == "hydra",
        metric=None if ranking.metric is None else text(ranking.metric),
        maximize=ranking.maximize,
        effects=[] if best is None else axis_effects(ranking),
        failures=list(_failures(states, table.selected)),
        failed=sum(counts.get(state, 0) for state in FAILED),
        head=["point", *(column.name for column in content.columns), "state"],
        lines=[_line(content, at) for at in range(min(_STATIC_ROWS, len(content.rows)))],
        data=content.data,
        on_page=len(content.rows),
        started=len(table.places),
        notes=list(_notes(ranking, content)),
    )


def _content(ranking: Ranking) -> Content:
    """As many points as fit onto the page."""
    most = MOST_POINTS
    while True:
        content = _content_of(ranking, most)
        if most <= _LEAST_POINTS or len(json.dumps(content.data)) <= _MOST_BYTES:
            return content
        most //= 2


def _content_of(ranking: Ranking, most: int) -> Content:
    rows = list(ranking.table.rows(thinned(ranking.places(), most)))
    found = columns(ranking.table, rows)
    words = [_state(row) for row in rows]
    names = list(dict.fromkeys(words))
    metric = None if ranking.metric is None else text(ranking.metric)
    best = ranking.best
    data = {
        "columns": [_column_data(column) for column in found],
        "points": [row.point for row in rows],
        "states": {"names": names, "kinds": list(map(_kind, names)), "cells": list(map(names.index, words))},
        "errors": {at: text(row.error) for at, row in enumerate(rows) if row.error and row.state != "finished"},
        "metric": _place(found, metric),
        "maximize": ranking.maximize,
        "best": None if best is None else best.point,
        "order": [one.axis for one in axis_effects(ranking)],
    }
    return Content(rows, found, data)


def _place(found: list[PageColumn], metric: str | None) -> int | None:
    """The column of the metric, which goes before an axis of the same name."""
    places = [at for at, column in enumerate(found) if column.name == metric]
    return max(places, key=lambda at: found[at].role == "metric", default=None)


def thinned(places: Sequence[int], most: int) -> list[int]:
    """The places, the best first: all, or the best and an even share of the others."""
    if len(places) <= most:
        return list(places)
    first = min(_MOST_BEST, most // 2)
    step = (len(places) - first) / (most - first)
    return [*places[:first], *(places[first + int(at * step)] for at in range(most - first))]


def _state(row: Row) -> str:
    return "pruned" if row.pruned else row.state


def _kind(state: str) -> str:
    """The CSS class of a state."""
    if state == "finished":
        return "good"
    return "bad" if state in FAILED else "runs" if state in ALIVE else "site"


def _column_data(column: PageColumn) -> dict[str, Any]:
    return {
        "name": column.name, "role": column.role, "names": column.names, "log": column.log, "cells": column.cells,
        "odd": column.odd,
    }  # fmt: skip


def _tiles(ranking: Ranking, best: Row | None) -> list[tuple[str, str]]:
    """The numbers that come first: value, and what it is."""
    counts = ranking.table.states.counts(ranking.table.selected)
    found = []
    if best is not None:
        word = "largest" if ranking.maximize else "smallest"
        value = key_of(best, str(ranking.metric))
        found.append((f"{value:.5g}", f"{word} {text(ranking.metric)}, of point {best.point}"))
    found.append((f"{counts.get('finished', 0):,}", f"of {sum(counts.values()):,} points finished"))
    found += [(f"{counts[state]:,}", state) for state in FAILED if counts.get(state)]
    alive = sum(counts.get(state, 0) for state in ALIVE)
    if alive:
        found.append((f"{alive:,}", "running or pending"))
    return found


def _line(content: Content, at: int) -> tuple[int, list[tuple[str, bool]], str, str]:
    """A row of the table: the point, its cells and whether they are numbers, its state, and the CSS class of that."""
    row = content.rows[at]
    state = _state(row)
    error = f": {text(row.error)}" if row.error and row.state != "finished" else ""
    return row.point, [_cell(column, at) for column in content.columns], f"{state}{error}", _kind(state)


def _cell(column: PageColumn, at: int) -> tuple[str, bool]:
    cell = column.cells[at]
    if column.names is not None:
        return ("" if cell is None else column.names[int(cell)]), False
    if cell is None:
        return column.odd.get(at, ""), True
    return (human_seconds(float(cell)) if column.role == "time" else text(cell)), True


def _failures(states: SweepStates, selected: Ranges | None) -> Iterator[tuple[str, str]]:
    """The failed points and what they failed of, the most frequent first."""
    groups = failures.groups(states, selected)
    for group in groups[:_MOST_FAILURES]:
        word = "point" if len(group.points) == 1 else f"{len(group.points):,} points,"
        yield f"{word} {cut(str(group.points), _LONGEST_RANGES)}", text(group.error)
    if rest := groups[_MOST_FAILURES:]:
        yield f"{sum(len(group.points) for group in rest):,} points", f"{len(rest):,} other failures"


def _notes(ranking: Ranking, content: Content) -> list[str]:
    table, states = ranking.table, ranking.table.states
    found = []
    if len(content.rows) < len(table.places):
        found.append(
            f"{len(content.rows):,} of {len(table.places):,} points are on this page: the best, and an even share of "
            f"the others. slurmopt results {run_arg(states.sweep.run, states.label)} --csv prints all."
        )
    if waiting := states.count - len(table.places) if table.selected is None else 0:
        found.append(f"{'1 point has' if waiting == 1 else f'{waiting:,} points have'} not started: not on this page.")
    for name, all_names, most in (("axes", table.axes, MOST_AXES), ("metrics", table.metrics, MOST_METRICS)):
        if len(all_names) > most:
            found.append(f"The first {most} of {len(all_names)} {name} are on this page; --csv prints all.")
    if ranking.metric is None and len(table.metrics) > 1:
        found.append("There are several metrics, and the sweep does not say which counts: --sort METRIC chooses one.")
    elif not table.metrics:
        found.append("No point has reported a metric; slurmopt.progress(step, loss=…) reports one.")
    if states.problem:
        found.append(f"Slurm was not asked, so this is what journals say: {text(states.problem)}")
    return found
