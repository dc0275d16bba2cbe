"""The columns of the board: what each shows of a row, and which of them fit into the width of the terminal."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from slurmopt.board.rows.row import GONE, Row
from slurmopt.errors import one_line
from slurmopt.runs.sparkline import sparkline
from slurmopt.units import human_count, human_seconds

Span = tuple[str, str]
"""A text and its style: words of `slurmopt.board.styles`."""
Line = list[Span]

_STATE_STYLES = {
    "running": "cyan",
    "stopping": "yellow",
    "requeued": "yellow",
    "pending": "yellow",
    "finished": "green",
    "failed": "red",
    "killed": "red",
    "lost": "red",
    "cancelled": "dim",
    "unsubmitted": "dim",
    "unknown": "magenta",
    GONE: "dim",
}
_BUSY = 50.0
"""Percent from which a GPU counts as busy."""
_LONGEST = 300
"""Characters of a text that are looked at."""


@dataclass(frozen=True)
class Column:
    """One column. `order`: the order of rows that a click on its head asks for."""

    head: str
    width: int
    show: Callable[[Row, float, int], Line]
    """From the row, the time and the width."""
    order: str
    right: bool = False


def state_style(state: str) -> str:
    return _STATE_STYLES.get(state, "dim")


def _plain(text: Callable[[Row, float], str], style: str = "") -> Callable[[Row, float, int], Line]:
    return lambda row, now, width: [(text(row, now), style)]


def _name(row: Row, now: float, width: int) -> Line:
    mark = "▸ " if row.is_sweep else ""
    style = "" if row.alive else "dim" if row.state == GONE else ""
    return [(mark + clean(row.name), style)]


def _state(row: Row, now: float, width: int) -> Line:
    return [(row.state, state_style(row.state))]


def _done(row: Row, now: float, width: int) -> Line:
    share = row.share
    if share is None:
        return [("" if row.step is None else f"{row.step:,}".rjust(width), "" if row.alive else "dim")]
    percent = f"{int(share * 100)}%"
    if not row.alive:
        return [(percent.rjust(width), "dim")]
    full, rest = bar(share, max(0, width - 5))
    return [(full, "cyan"), (rest, "dim"), (percent.rjust(5), "")]


def bar(share: float, size: int) -> tuple[str, str]:
    """`━━╸` and `───`: the share, and the rest."""
    halves = int(share * size * 2)
    full = "━" * (halves // 2) + "╸" * (halves % 2)
    return full, "─" * (size - len(full))


def _left(row: Row, now: float) -> str:
    return human_seconds(row.left) if row.left is not None and row.alive else ""


def age(then: float | None, now: float) -> str:
    """`<1m`, `12m`, `5h`, `3d`: coarse, so that a board of old runs seldom changes."""
    if then is None:
        return ""
    minutes = max(0.0, now - then) / 60
    if minutes < 1:
        return "<1m"
    if minutes < 60:
        return f"{minutes:.0f}m"
    return f"{minutes / 60:.0f}h" if minutes < 2880 else f"{min(99999.0, minutes / 1440):.0f}d"


def _metric(row: Row, now: float, width: int) -> Line:
    if row.metric is None:
        return []
    name, value = row.metric
    number = f"{value:.4g}".rjust(6)
    style = "bold red" if not math.isfinite(value) else "" if row.alive else "dim"
    return [*fitted([(clean(name), "dim")], max(0, width - len(number) - 1)), (f" {number}", style)]


def _curve(row: Row, now: float, width: int) -> Line:
    return [(sparkline(row.curve[-width:]), "cyan")]


def _rate(row: Row, now: float) -> str:
    if row.rate is None or not math.isfinite(row.rate):
        return ""
    return f"{human_count(row.rate)}/{'m' if row.is_sweep else 's'}"


def _gpu(row: Row, now: float, width: int) -> Line:
    last = row.gpu[-1] if row.gpu and row.alive else None
    if last is None:
        return []
    number = f"{last:3.0f}%"
    style = "green" if last >= _BUSY else "yellow"
    curve = sparkline(row.gpu[-(width - 5) :], 0.0, 100.0) if width > 8 else ""
    return [(f"{curve} ".rjust(width - 4) if curve else "", "dim"), (number, style)]


def _step(row: Row, now: float) -> str:
    if row.step is None:
        return ""
    return f"{row.step:,}" if row.total is None else f"{row.step:,}/{row.total:,}"


def _detail(row: Row, now: float, width: int) -> Line:
    attempt = f"attempt {row.attempt}" if row.attempt and row.alive else ""
    owner = f"of {row.owner}" if row.owner else ""
    style = "red" if row.state in ("failed", "killed", "lost") else "dim"
    return [("; ".join(filter(None, (owner, clean(row.detail), attempt))), style)]


def _elapsed(row: Row, now: float) -> str:
    return "" if row.elapsed is None else human_seconds(row.elapsed)


_ALL = (
    Column("NAME", 10, _name, "name"),
    Column("STATE", 9, _state, "state"),
    Column("DONE", 9, _done, "done"),
    Column("LEFT", 6, _plain(_left), "left", right=True),
    Column("METRIC", 15, _metric, "metric"),
    Column("CURVE", 8, _curve, "metric"),
    Column("GPU", 4, _gpu, "gpu", right=True),
    Column("AGE", 4, _plain(lambda row, now: age(row.created, now)), "age", right=True),
    Column("RATE", 7, _plain(_rate), "rate", right=True),
    Column("TIME", 6, _plain(_elapsed), "age", right=True),
    Column("DETAIL", 24, _detail, "state"),
    Column("STEP", 15, _plain(_step), "done", right=True),
    Column("JOB", 9, _plain(lambda row, now: clean(row.job)), "age"),
    Column("NODES", 12, _plain(lambda row, now: clean(row.nodes)), "age"),
    Column("ID", 20, _plain(lambda row, now: clean(row.id), "dim"), "age"),
)
"""The most important first: a narrow terminal shows the first ones."""
_PLACES = (
    "NAME", "ID", "STATE", "DONE", "STEP", "RATE", "LEFT", "TIME", "AGE", "METRIC", "CURVE", "GPU", "JOB", "NODES",
    "DETAIL",
)  # fmt: skip
"""From left to right."""
_WIDEST_NAME = 32
_NAME = 17
"""The width of the name before the columns that are less important than that fit in."""
_AFTER_NAME = {column.head for column in _ALL[4:]}
_DETAIL = 48
"""The width of the detail before the columns that are less important than that fit in: of an error's first words nobody
learns what went wrong."""
_AFTER_DETAIL = {column.head for column in _ALL[[column.head for column in _ALL].index("DETAIL") + 1 :]}
_WIDER = {"CURVE": 16, "GPU": 16, "DONE": 14, "METRIC": 18}
"""The widths of columns where there is room."""


@dataclass(frozen=True)
class Placed:
    """A column with its place in the line."""

    column: Column
    start: int
    width: int


def layout(width: int, name: int, with_gpu: bool) -> list[Placed]:
    """The columns that fit, with their places. `name`: characters of the longest name."""
    chosen = dict[str, int]()
    left = width + 1  # there is no blank behind the last one
    for column in _ALL:
        if column.head == "GPU" and not with_gpu:
            continue
        reserved = _NAME - _ALL[0].width if column.head in _AFTER_NAME else 0
        reserved += _DETAIL - chosen["DETAIL"] if column.head in _AFTER_DETAIL else 0
        if column.width + 1 > left - reserved and chosen:
            break
        chosen[column.head] = column.width
        left -= column.width + 1
    return _placed(_widened(chosen, left, name))


def _widened(chosen: dict[str, int], left: int, name: int) -> dict[str, int]:
    """Gives what is left to the name, to the detail, to curves and bars, then to the detail again."""
    if len(chosen) < 2:
        return {name: size + left for name, size in chosen.items()}
    for head, size in (("NAME", max(_NAME, min(_WIDEST_NAME, name + 2))), ("DETAIL", _DETAIL)):
        if head in chosen:
            more = min(left, size - chosen[head])
            chosen[head] += more
            left -= more
    for head, size in _WIDER.items():
        if head in chosen and left >= size - chosen[head]:
            left -= size - chosen[head]
            chosen[head] = size
    chosen["DETAIL" if "DETAIL" in chosen else "NAME"] += left
    return chosen


def _placed(chosen: dict[str, int]) -> list[Placed]:
    columns = {column.head: column for column in _ALL}
    placed, start = [], 0
    for head in _PLACES:
        if head in chosen:
            placed.append(Placed(columns[head], start, chosen[head]))
            start += chosen[head] + 1
    return placed


def heads(columns: Sequence[Placed], order: str, backwards: bool) -> Line:
    """The line of heads; the one of the order has a mark."""
    spans: Line = []
    for place in columns:
        head = place.column.head
        is_marked = place.column.order == order and head.lower() == order
        shown = f"{head}{'▲' if backwards else '▼'}" if is_marked and len(head) < place.width else head
        text = shown.rjust(place.width) if place.column.right else shown.ljust(place.width)
        spans.append((text[: place.width] + " ", "bold"))
    return spans


def cells(row: Row, columns: Sequence[Placed], now: float) -> Line:
    """The line of a row. What does not fit into a cell ends with `…`."""
    spans: Line = []
    for place in columns:
        spans += fitted(place.column.show(row, now, place.width), place.width, place.column.right)
        spans.append((" ", ""))
    return spans[:-1]


def fitted(spans: Line, width: int, right: bool = False) -> Line:
    """The spans, cut or padded to that many terminal cells."""
    total = sum(_cells(text) for text, _ in spans)
    if total <= width:
        pad = (" " * (width - total), "")
        return [pad, *spans] if right else [*spans, pad]
    cut, left = Line(), width - 1
    for text, style in spans:
        size = min(left, _cells(text))
        if size > 0:
            cut.append((_cut(text, size), style))
            left -= size
    return [*cut, ("…" if width > 0 else "", "")]


def _cells(text: str) -> int:
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def _cut(text: str, size: int) -> str:
    if text.isascii():
        return text[:size]
    from rich.cells import set_cell_size

    return set_cell_size(text, size)


def clean(text: str) -> str:
    """One line without control characters, and not too long to be looked at."""
    return one_line(text[:_LONGEST])
