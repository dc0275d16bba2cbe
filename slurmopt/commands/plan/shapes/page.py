"""The answer of `slurmopt plan` as one HTML page that needs nothing else."""

from __future__ import annotations

import shlex

from slurmopt.commands.plan.shapes.answer import Answer, Row
from slurmopt.commands.plan.shapes.front_picture import Front, Point, picture
from slurmopt.commands.plan.shapes.text import HEADER, cells, ends_text, launch, layout_text, step_text
from slurmopt.planning.ranges import Range
from slurmopt.report.output.page import render
from slurmopt.units import human_bytes, human_count, human_seconds

_MOST_REJECTED = 256
"""Rows of the table of rejected shapes; `--json` has the reasons of all."""
_STEPS = 1000
"""Without plan.tokens, the steps whose GPU-hours are drawn."""
_ABBREVIATIONS = ("MFU", "GPU-H")
_NAMES = {"taken": "the one to take", "front": "on the front", "other": "beaten in both"}


def page_of(answer: Answer, typed: list[str]) -> str:
    """The page. `typed`: the overrides of the command line."""
    taken, gpu, work = answer.taken, answer.asked.cluster.gpu, answer.asked.work
    rejected = _rejected(answer)
    columns, table = _table(answer)
    return render(
        "plan.html.j2",
        ("report.css", "plan.css"),
        ("copy.js",),
        title=f"Plan: {answer.asked.model.name}",
        head=f"{answer.asked.model.parameters:,} parameters; {work.global_batch:,} of {work.sequence:,} tokens a step; "
        f"{work.precision}, {work.optimizer}; {answer.asked.cluster.gpus_per_node} {gpu.name} a node of "
        f"{human_bytes(gpu.memory)}; {len(answer.found):,} shapes",
        tiles=[] if taken is None else _tiles(taken),
        taken=taken,
        why=answer.why if taken is not None else answer.why_nothing,
        command=None if taken is None else launch(typed, taken),
        front=_front(answer),
        names=_names(answer),
        across="time of the training" if answer.asked.tokens is not None else "time of a step",
        up=_cost_name(answer),
        columns=columns,
        rows=table,
        rejected=rejected[:_MOST_REJECTED],
        left_out=len(rejected) - _MOST_REJECTED,
        bill=answer.bill,
        notes=answer.notes,
    )


def _table(answer: Answer) -> tuple[list[str], list[tuple[str, list[str], str]]]:
    """The columns that have something, and of each row its kind, its cells and its overrides."""
    table = [cells(row) for row in answer.rows]
    some = [at for at in range(len(HEADER)) if any(each[at] for each in table)]
    rows = [
        (_kind(answer, row), [each[at] for at in some], shlex.join(row.overrides))
        for row, each in zip(answer.rows, table, strict=True)
    ]
    return [HEADER[at] if HEADER[at] in _ABBREVIATIONS else HEADER[at].lower() for at in some], rows


def _tiles(row: Row) -> list[tuple[str, str]]:
    shape, whole = row.shape, row.total
    assert shape.seconds is not None
    found = [(f"{shape.nodes:,}", "node" if shape.nodes == 1 else "nodes"), (layout_text(shape), "layout")]
    if whole is None:
        return [*found, (ends_text(shape.seconds, step_text), "a step")]
    found += [(ends_text(whole.seconds, human_seconds), "the training")]
    found += [(human_count(whole.gpu_hours.middle), "GPU-hours")]
    if row.money is not None:
        found.append((f"{row.money.amount.middle:,.0f}", row.money.currency))
    return found


def _kind(answer: Answer, row: Row) -> str:
    return "taken" if row is answer.taken else "front" if row.is_front else "other"


def _names(answer: Answer) -> list[tuple[str, str]]:
    """The kinds of points that there are, and what they are called."""
    found = {_kind(answer, row) for row in answer.rows}
    return [(kind, name) for kind, name in _NAMES.items() if kind in found]


def _is_priced(answer: Answer) -> bool:
    """Whether each row has a price above 0: only then there is a scale of money."""
    return all(row.money is not None and row.money.amount.low > 0 for row in answer.rows)


def _cost_name(answer: Answer) -> str:
    if answer.asked.tokens is None:
        return f"GPU-hours of {_STEPS:,} steps"
    priced = answer.rows[0].money if answer.rows and _is_priced(answer) else None
    return "GPU-hours" if priced is None else f"Cost in {priced.currency}"


def _front(answer: Answer) -> Front | None:
    text = step_text if answer.asked.tokens is None else human_seconds
    return picture([_point(answer, row) for row in answer.rows], text, human_count)


def _point(answer: Answer, row: Row) -> Point:
    time, cost = _time_and_cost(row, _is_priced(answer))
    kind, text = _kind(answer, row), step_text if row.total is None else human_seconds
    words = f"{row.shape.nodes:,} nodes, {layout_text(row.shape)}: {ends_text(time, text)}; "
    words += f"{_cost_name(answer)} {ends_text(cost, human_count)}; {_NAMES[kind]}"
    return Point(row.shape.nodes, kind, time, cost, words)


def _time_and_cost(row: Row, is_priced: bool) -> tuple[Range, Range]:
    seconds = row.shape.seconds
    assert seconds is not None
    if row.total is None:
        return seconds, seconds * (_STEPS * row.shape.layout.ranks / 3600)
    if is_priced and row.money is not None:
        return row.total.seconds, row.money.amount
    return row.total.seconds, row.total.gpu_hours


def _rejected(answer: Answer) -> list[tuple[str, str, str]]:
    """Nodes, layout and reason of each shape that cannot be; those that break one rule together."""
    layouts: dict[tuple[int, str], list[str]] = {}
    for shape in answer.found:
        if shape.rejected is not None:
            layouts.setdefault((shape.nodes, shape.rejected), []).append(layout_text(shape))
    return [(f"{nodes:,}", _few(found), reason) for (nodes, reason), found in layouts.items()]


def _few(layouts: list[str]) -> str:
    more = len(layouts) - 3
    return "; ".join(layouts[:3]) + (f"; and {more:,} more" if more > 0 else "")
