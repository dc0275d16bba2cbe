"""A comparison as lines for a terminal: a column for each run."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from slurmopt.errors import one_line
from slurmopt.ledger.buckets import BUCKETS
from slurmopt.report.comparison import Comparison, Side, Speed
from slurmopt.report.output import text
from slurmopt.report.output.terminal import StyledLine
from slurmopt.report.run import words
from slurmopt.units import human_seconds

_WIDEST = 40
"""Columns of one value of a config."""


def lines(comparison: Comparison, width: int) -> list[StyledLine]:
    """The whole comparison."""
    rows = [
        ("", [[one_line(side.label) for side in comparison.sides]], ""),
        ("In short", list(_short(comparison)), "value"),
        ("Metrics", list(_metrics(comparison.sides)), "metric"),
        ("Shares of the allocated time", list(_buckets(comparison.sides)), "bucket"),
        ("Config: what differs", list(_config(comparison)), "key"),
    ]
    result: list[StyledLine] = []
    names = ["", *rows[0][1][0], ""]
    for title, cells, _ in rows[1:]:
        if cells:
            result += [[], text.title(title, width)] if result else [text.title(title, width)]
            for index, line in enumerate(text.aligned([names, *[[*row, ""] for row in cells]])):
                result.append([(f"  {line}", "bold" if not index else "")])
    if comparison.notes:
        result += [[], text.title("Notes", width)]
        for note in comparison.notes:
            result += text.wrapped([("  · ", "bright_black")], one_line(note), width, 4)
    return result


def _short(comparison: Comparison) -> Iterator[list[str]]:
    sides = comparison.sides
    facts: list[tuple[str, Callable[[Side], str]]] = [
        ("state", lambda side: side.state),
        ("attempts", lambda side: f"{side.attempts}"),
        ("ran", lambda side: human_seconds(side.seconds)),
        ("allocated", lambda side: words.device_time(side.device_seconds, side.unit)),
        ("step", lambda side: "" if side.step is None else f"{side.step:,}"),
        ("speed", lambda side: shown_speed(side.speed)),
    ]
    for name, how in facts:
        cells = [how(side) for side in sides]
        if any(cells):
            yield [name, *cells]
    if any(ratio is not None for ratio in comparison.ratios[1:]):
        yield ["against the first", *("" if not at else shown_ratio(one) for at, one in enumerate(comparison.ratios))]


def shown_speed(speed: Speed | None) -> str:
    """`9.96 ± 0.02 steps/s`."""
    if speed is None:
        return ""
    error = "" if speed.error is None else f" ± {speed.error:.2g}"
    return f"{words.count(speed.mean)}{error} steps/s"


def shown_ratio(ratio: tuple[float, float | None] | None) -> str:
    """`+12.3 % ± 1.1`; and whether that could be chance."""
    if ratio is None:
        return ""
    change, error = 100 * (ratio[0] - 1), ratio[1]
    if error is None:
        return f"{change:+.1f} %"
    return f"{change:+.1f} % ± {100 * error:.1f}" + (" (no clear difference)" if abs(change) <= 100 * error else "")


def _metrics(sides: list[Side]) -> Iterator[list[str]]:
    for name in dict.fromkeys(name for side in sides for name in side.metrics):
        yield [one_line(name), *(f"{side.metrics[name]:.5g}" if name in side.metrics else "" for side in sides)]


def _buckets(sides: list[Side]) -> Iterator[list[str]]:
    by_side = [{share.bucket: share.share for share in side.shares} for side in sides]
    for bucket in BUCKETS:
        if any(shares.get(bucket) for shares in by_side):
            yield [bucket, *(words.percent(shares.get(bucket, 0.0)) for shares in by_side)]


def _config(comparison: Comparison) -> Iterator[list[str]]:
    for key, values in comparison.config.items():
        yield [one_line(key), *map(_value, values)]


def _value(value: Any) -> str:
    shown = value if isinstance(value, str) else "" if value is None else json.dumps(value, default=str)
    shown = one_line(shown)
    return shown if len(shown) <= _WIDEST else shown[: _WIDEST - 1] + "…"
