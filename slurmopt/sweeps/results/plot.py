"""Plots a sweep's results: the metric over each axis, and the best so far. Writes HTML itself, PNG through
matplotlib."""

from __future__ import annotations

import html
import io
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slurmopt.errors import InputError, one_line
from slurmopt.run_folder.access.files import replace_bytes, replace_text
from slurmopt.sweeps.results.importance import is_number, shown
from slurmopt.sweeps.status.view import state_counts

if TYPE_CHECKING:
    from slurmopt.sweeps.results.ranking import Ranking

_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _EDGE = 420, 280, 64, 44, 14
_MOST_PANELS = 12
_MOST_DOTS = 5000
"""Dots in one panel at most; of more points an even share is drawn."""
_BEST_ROWS = 50
_DECADES = 100.0
"""Numbers that span a larger factor than this have a logarithmic scale."""
_STYLE = """
body { font: 14px system-ui, sans-serif; margin: 2em auto; max-width: 1320px; padding: 0 1em; color: #1b1f24; }
h1 { font-size: 1.3em; } figure { display: inline-block; margin: 0 1em 1em 0; vertical-align: top; }
figcaption { font-weight: 600; } figcaption small { font-weight: 400; color: #57606a; }
table { border-collapse: collapse; } th, td { padding: .25em .8em; text-align: left; border-bottom: 1px solid #d8dee4; }
svg text { font: 11px system-ui, sans-serif; fill: #57606a; }
svg .dot { fill: #0969da; fill-opacity: .45; } svg .best { fill: #cf222e; }
svg .line { stroke: #cf222e; fill: none; stroke-width: 2; }
svg .axis { stroke: #8c959f; } svg .grid { stroke: #eaeef2; }
"""


@dataclass(frozen=True)
class Panel:
    """One panel: dots, and a line through some positions."""

    title: str
    remark: str
    xs: list[float]
    ys: list[float]
    hints: list[str]
    line: list[tuple[float, float]]
    ticks: list[tuple[float, str]] | None
    """Where x is not a number: the positions of its values and their labels."""
    log: bool = False
    """Whether the x axis has a logarithmic scale."""


def draw(ranking: Ranking, path: Path) -> None:
    """Writes the picture to `path`, by its ending. OSError where it cannot be written."""
    panels = list(_panels(ranking))
    if path.suffix.lower() == ".png":
        _png(ranking, panels, path)
    else:
        replace_text(path, page(ranking, panels), mode=0o644)


def _panels(ranking: Ranking) -> Iterable[Panel]:
    shares = {effect.axis: effect.share for effect in ranking.effects}
    yield _progress(ranking)
    ordered = sorted((axis for axis in ranking.table.axes if axis in shares), key=lambda axis: -shares[axis])
    for axis in ordered[: _MOST_PANELS - 1]:
        yield _of_axis(ranking, axis, shares[axis])


def _progress(ranking: Ranking) -> Panel:
    """The panel of the points in the order in which they ended, with the best so far."""
    pairs = sorted(ranking.numbers, key=lambda pair: (pair[0].ended or 0.0, pair[0].point))
    better = max if ranking.maximize else min
    best = pairs[0][1]
    line: list[tuple[float, float]] = []
    for place, (_, value) in enumerate(pairs):
        best = better(best, value)
        if not line or line[-1][1] != best or place == len(pairs) - 1:
            line += [(float(place), line[-1][1])] if line else []
            line.append((float(place), best))
    drawn = _even(list(enumerate(pairs)))
    xs, ys = [float(place) for place, _ in drawn], [value for _, (_, value) in drawn]
    hints = [f"point {row.point}: {shown(value)}" for _, (row, value) in drawn]
    return Panel("in the order they ended", "the line is the best so far", xs, ys, hints, line, None)


def _of_axis(ranking: Ranking, axis: str, share: float) -> Panel:
    pairs = [(row, value) for row, value in _even(ranking.numbers) if axis in row.values]
    values = [row.values[axis] for row, _ in pairs]
    hints = [f"point {row.point}: {axis}={shown(row.values[axis])}, {shown(value)}" for row, value in pairs]
    ys, remark = [value for _, value in pairs], f"explains {share:.0%}; the line is the mean"
    levels = next(effect.levels for effect in ranking.effects if effect.axis == axis)
    if all(is_number(value) for value in values):
        log = min(values) > 0 and max(values) / min(values) > _DECADES
        scale: Callable[[float], float] = math.log10 if log else float
        line = [((scale(level.value) + scale(level.last)) / 2, level.mean) for level in levels]
        return Panel(axis, remark, [scale(value) for value in values], ys, hints, line, None, log)
    places = {shown(level.value): float(at) for at, level in enumerate(levels)}
    line = [(places[shown(level.value)], level.mean) for level in levels]
    ticks = [(at, name) for name, at in places.items()]
    return Panel(axis, remark, [places[shown(value)] for value in values], ys, hints, line, ticks)


def _even(pairs: Sequence[Any]) -> list[Any]:
    step = max(1.0, len(pairs) / _MOST_DOTS)
    return [pairs[int(at * step)] for at in range(min(len(pairs), _MOST_DOTS))]


def page(ranking: Ranking, panels: list[Panel]) -> str:
    """One HTML file that loads nothing from other hosts."""
    states = ranking.table.states
    title = _text(f"{states.label}: {ranking.metric}")
    figures = "\n".join(_figure(panel, str(ranking.metric)) for panel in panels)
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<style>{_STYLE}</style></head>
<body><h1>{title}</h1>
<p>{_text(state_counts(states.counts()))}; the {"largest" if ranking.maximize else "smallest"} is the best.</p>
{figures}
<h2>The best points</h2>
{_best(ranking)}
</body></html>
"""


def _text(value: Any) -> str:
    return html.escape(one_line(shown(value)))


def _best(ranking: Ranking) -> str:
    metrics = sorted(ranking.table.metrics, key=lambda name: name != ranking.metric)
    names = ["point", *ranking.table.axes, *metrics]
    head = "".join(f"<th>{_text(name)}</th>" for name in names)
    lines = []
    for row in islice(ranking.finished, _BEST_ROWS):
        cells = [row.point, *[row.values.get(axis, "") for axis in ranking.table.axes]]
        cells += [row.metrics.get(name, "") for name in metrics]
        lines.append(f"<tr>{''.join(f'<td>{_text(cell)}</td>' for cell in cells)}</tr>")
    return f"<table><tr>{head}</tr>\n{chr(10).join(lines)}</table>"


@dataclass(frozen=True)
class _Scale:
    """Maps numbers to positions in the panel."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)

    @property
    def ticks(self) -> list[float]:
        """Round numbers in the range, as ticks."""
        step = 10 ** math.floor(math.log10((self.high - self.low) / 4))
        step *= next(factor for factor in (1, 2, 5, 10) if (self.high - self.low) / (step * factor) <= 6)
        first = math.ceil(self.low / step)
        return [at * step for at in range(first, math.floor(self.high / step + 1e-9) + 1)]


def _scale(values: list[float], start: float, end: float) -> _Scale:
    low, high = min(values), max(values)
    margin = (high - low) * 0.04 or abs(high) * 0.1 or 1.0
    return _Scale(low - margin, high + margin, start, end)


def _figure(panel: Panel, metric: str) -> str:
    x = _scale([*panel.xs, *[at for at, _ in panel.line]], _LEFT, _WIDTH - _EDGE)
    y = _scale([*panel.ys, *[at for _, at in panel.line]], _HEIGHT - _BOTTOM, _EDGE)
    dots = "".join(
        f'<circle class="dot" cx="{x(a):.1f}" cy="{y(b):.1f}" r="3"><title>{_text(hint)}</title></circle>'
        for a, b, hint in zip(panel.xs, panel.ys, panel.hints, strict=True)
    )
    line = " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in panel.line)
    return f"""<figure><figcaption>{_text(panel.title)} <small>{_text(panel.remark)}</small></figcaption>
<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}" role="img">
{_axes(panel, x, y)}
{dots}
<polyline class="line" points="{line}"/>
<text x="4" y="{_EDGE - 2}">{_text(metric)}</text></svg></figure>"""


def _axes(panel: Panel, x: _Scale, y: _Scale) -> str:
    floor, right = _HEIGHT - _BOTTOM, _WIDTH - _EDGE
    parts = [f'<line class="axis" x1="{_LEFT}" x2="{right}" y1="{floor}" y2="{floor}"/>']
    for value in y.ticks:
        at = f"{y(value):.1f}"
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{right}" y1="{at}" y2="{at}"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{at}" text-anchor="end" dominant-baseline="middle">{value:.4g}</text>')
    for place, name in _x_ticks(panel, x):
        short = name if len(name) <= 14 else name[:13] + "…"
        parts.append(f'<text x="{x(place):.1f}" y="{floor + 16}" text-anchor="middle">{_text(short)}</text>')
    return "\n".join(parts)


def _x_ticks(panel: Panel, x: _Scale) -> list[tuple[float, str]]:
    if panel.ticks is not None:
        step = max(1, len(panel.ticks) // 8)
        return panel.ticks[::step]
    return [(place, f"{10**place:.3g}" if panel.log else f"{place:.4g}") for place in x.ticks]


def _png(ranking: Ranking, panels: list[Panel], path: Path) -> None:
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise InputError(
            f"results: --plot {str(path)!r} needs matplotlib, which is not installed here ({error}); "
            "a name that ends in .html needs nothing"
        ) from error
    columns = min(3, len(panels))
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(5 * columns, 3.6 * rows), layout="constrained")
    FigureCanvasAgg(figure)
    for at, panel in enumerate(panels):
        _png_panel(figure.add_subplot(rows, columns, at + 1), panel, str(ranking.metric))
    figure.suptitle(_plain(f"{ranking.table.states.label}: {ranking.metric}"))
    picture = io.BytesIO()
    figure.savefig(picture, dpi=120, format="png")
    replace_bytes(path, picture.getvalue(), mode=0o644)


def _png_panel(axes: Any, panel: Panel, metric: str) -> None:
    axes.plot(panel.xs, panel.ys, "o", markersize=3, alpha=0.45, color="#0969da")
    axes.plot([x for x, _ in panel.line], [y for _, y in panel.line], color="#cf222e", linewidth=2)
    axes.set_title(_plain(f"{panel.title}\n{panel.remark}"), fontsize=9)
    axes.set_ylabel(_plain(metric), fontsize=8)
    if panel.ticks is not None:
        places, names = zip(*_x_ticks(panel, _scale(panel.xs, 0, 1)), strict=True)
        axes.set_xticks(places, [_plain(name)[:14] for name in names], fontsize=8)
    elif panel.log:
        axes.xaxis.set_major_formatter(lambda place, _: f"{10**place:.3g}")


def _plain(text: str) -> str:
    """The text with `$` escaped, which matplotlib takes for mathematics."""
    return "\n".join(map(one_line, text.split("\n"))).replace("$", r"\$")
