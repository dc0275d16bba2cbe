"""A comparison as lines for a terminal: a column for each run."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from typing import Any

from slurmopt.errors import one_line
from slurmopt.ledger.buckets import BUCKETS
from slurmopt.report.comparison import Comparison, Side, Speed
from slurmopt.report.output import text
from slurmopt.report.output.terminal import StyledLine
from slurmopt.report.run import words
from slurmopt.runs.text_table import cut
from slurmopt.units import human_seconds

_WIDEST = 40
"""Columns of one value of a config."""
_LEAST = 16
"""Columns that labels and values of a config are never cut below."""
_INDENT = 2
_GAP = 2
"""Columns between two cells."""
_CONTEXT = 6
"""Characters before the first difference that a cut value keeps."""


def lines(comparison: Comparison, width: int) -> list[StyledLine]:
    """The whole comparison, `width` columns wide: runs that do not fit beside each other are below each other."""
    names = [one_line(side.label) for side in comparison.sides]
    sections = [
        ("In short", list(_short(comparison)), False),
        ("Metrics", list(_metrics(comparison.sides)), False),
        ("Shares of the allocated time", list(_buckets(comparison.sides)), False),
        ("Config: what differs", list(_config(comparison)), True),
    ]
    result: list[StyledLine] = []
    for title, rows, may_cut in sections:
        if rows:
            result += [[], text.title(title, width)] if result else [text.title(title, width)]
            result += _table(names, rows, width, may_cut)
    if comparison.notes:
        result += [[], text.title("Notes", width)]
        for note in comparison.notes:
            result += text.wrapped([("  · ", "bright_black")], one_line(note), width, 4)
    return result


def _table(names: list[str], rows: list[list[str]], width: int, may_cut: bool) -> Iterator[StyledLine]:
    """The rows with a column for each run, in as many blocks as it takes. `may_cut`: cells may be cut; labels always
    may."""
    first = min(max(len(row[0]) for row in rows), width // 3)
    beside, most = _fitted([names, *(row[1:] for row in rows)], width - _INDENT - first, may_cut)
    heads = [_without_middle(name, most) for name in names]
    cells = [[_without_middle(row[0], first), *_cut(row[1:], most)] for row in rows]
    for at in range(0, len(names), beside):
        block = [[row[0], *row[1 + at : 1 + at + beside], ""] for row in [["", *heads], *cells]]
        if at:
            yield []
        for index, line in enumerate(text.aligned(block)):
            yield [(f"{' ' * _INDENT}{line}", "" if index else "bold")]


def _fitted(cells: list[list[str]], room: int, may_cut: bool) -> tuple[int, int]:
    """How many columns stand beside each other, and how wide one may be. The first row has the labels."""
    count = len(cells[0])
    widths = [max(len(row[column]) for row in cells) for column in range(count)]
    if sum(widths) + _GAP * count <= room:
        return count, max(widths)
    least = max([_LEAST, *(len(cell) for row in cells[1:] for cell in row if not may_cut)])
    beside = min(count, max(1, room // (least + _GAP)))
    return beside, max(1, room // beside - _GAP)


def _without_middle(label: str, most: int) -> str:
    """`label`, cut so that its end stays, by which the runs of a name are told apart."""
    if len(label) <= most:
        return label
    end = min(most - 1, max(most * 2 // 3, most - 12))
    return f"{label[: most - 1 - end]}…{label[len(label) - end :]}"


def _cut(values: list[str], most: int) -> list[str]:
    """The values in at most `most` columns, from a little before their first difference on."""
    if all(len(value) <= most for value in values):
        return values
    some = {value for value in values if value}
    same = len(os.path.commonprefix([*some])) if len(some) > 1 else 0  # noqa: RUF071 - characters are meant
    skipped = max(0, same - _CONTEXT)
    return [cut(f"…{value[skipped:]}" if skipped and value else value, most) for value in values]


def _short(comparison: Comparison) -> Iterator[list[str]]:
    sides = comparison.sides
    facts: list[tuple[str, Callable[[Side], str]]] = [
        ("state", lambda side: one_line(side.state)),
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
        clear = ["" if not at else shown_doubt(one) for at, one in enumerate(comparison.ratios)]
        if any(clear):
            yield ["", *clear]


def shown_speed(speed: Speed | None) -> str:
    """`9.96 ± 0.02 steps/s`."""
    if speed is None:
        return ""
    error = "" if speed.error is None else f" ± {speed.error:.2g}"
    return f"{words.count(speed.mean)}{error} steps/s"


def shown_ratio(ratio: tuple[float, float | None] | None) -> str:
    """`+12.3 % ± 1.1`."""
    if ratio is None:
        return ""
    change, error = 100 * (ratio[0] - 1), ratio[1]
    return f"{change:+.1f} %" + ("" if error is None else f" ± {100 * error:.1f}")


def shown_doubt(ratio: tuple[float, float | None] | None) -> str:
    """Whether a ratio could be chance."""
    return "no clear difference" if ratio and ratio[1] is not None and abs(ratio[0] - 1) <= ratio[1] else ""


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
        yield [one_line(key), *_cut([*map(_value, values)], _WIDEST)]


def _value(value: Any) -> str:
    return one_line(value if isinstance(value, str) else "" if value is None else json.dumps(value, default=str))
