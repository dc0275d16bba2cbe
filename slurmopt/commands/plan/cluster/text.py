"""The answer of `slurmopt plan cluster` as lines for a terminal."""

from __future__ import annotations

import shlex

from slurmopt.commands.plan.cluster.answer import Answer, Row
from slurmopt.commands.plan.shapes.text import layout_text
from slurmopt.errors import one_line
from slurmopt.planning.clusters.bandwidth import bisection, network_of_gpu
from slurmopt.planning.ranges import Range
from slurmopt.runs.text_table import table, terminal_width
from slurmopt.units import human_count, human_seconds

_HEADER = [
    "", "CLUSTER", "NODES", "LAYOUT", "FITS", "STEP", "TOKENS/S", "RUN", "GPU-H", "COST", "BISECTION", "PER GPU",
    "SAVE",
]  # fmt: skip


def lines(answer: Answer) -> list[str]:
    """The table, why some clusters cannot be, what to take, and the notes."""
    asked, taken, front = answer.asked, answer.taken, answer.front
    rows = [_cells(row, row is taken, row.on.preset.name in front) for row in answer.rows]
    found = [
        f"{asked.model.name}: {asked.model.parameters:,} parameters; {asked.work.global_batch:,} of "
        f"{asked.work.sequence:,} tokens a step; {asked.work.optimizer}",
        "",
        table(_HEADER, rows, terminal_width()),
    ]
    reasons = [f"{row.on.preset.name}: {row.on.why_not}" for row in answer.rows if row.on.why_not is not None]
    found += ["", *reasons] if reasons else []
    if taken is not None:
        found += ["", f"take      {taken.on.preset.name}, {_nodes(taken)} of it: {answer.why}"]
        if answer.launch is not None and answer.launch.words is not None:
            found.append(f"next      {one_line(shlex.join(['slurmopt', 'launch', *answer.launch.words]))}")
    return found + [f"note      {note}" for note in answer.notes]


def _nodes(row: Row) -> str:
    count = 0 if row.on.taken is None else row.on.taken.nodes
    return f"{count} node{'s' if count != 1 else ''}"


def _cells(row: Row, is_taken: bool, is_front: bool) -> list[str]:
    preset, shape, whole, saved = row.on.preset, row.on.taken, row.total, row.on.save
    name = ["→" if is_taken else "*" if is_front else "", preset.name]
    network = [_rate(bisection(preset)), _rate(network_of_gpu(preset))]
    if shape is None or shape.seconds is None or saved is None:
        return [*name, f"-/{preset.nodes}", "nothing fits", "", "", "", "", "", "", *network, ""]
    return [
        *name,
        f"{shape.nodes}/{preset.nodes}",
        layout_text(shape),
        f"{shape.fits:.0%}",
        f"{_short(shape.seconds.low)}-{_short(shape.seconds.high)}",
        human_count(row.on.asked.work.tokens / shape.seconds.middle),
        "" if whole is None else _times(whole.seconds),
        "" if whole is None else human_count(whole.gpu_hours.middle),
        _cost(row),
        *network,
        _short(saved.seconds),
    ]


def _cost(row: Row) -> str:
    if row.money is None:
        return "no price"
    return "" if row.total is None else f"{row.money.amount.middle:,.0f} {row.money.currency}"


def _times(each: Range) -> str:
    return f"{human_seconds(each.low)}-{human_seconds(each.high)}"


def _short(seconds: float) -> str:
    return f"{seconds:.3g}s" if seconds < 100 else human_seconds(seconds)


def _rate(each: float) -> str:
    """In powers of 1000, as networks are sold."""
    for unit, size in (("TB/s", 1e12), ("GB/s", 1e9)):
        if each >= size:
            return f"{each / size:.3g} {unit}"
    return f"{each / 1e6:.3g} MB/s"
