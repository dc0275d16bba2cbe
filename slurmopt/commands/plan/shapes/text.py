"""The answer of `slurmopt plan` as lines for a terminal."""

from __future__ import annotations

import shlex
from collections.abc import Callable

from slurmopt.commands.plan.shapes.answer import Answer, Row
from slurmopt.commands.plan.shapes.waits import Option
from slurmopt.errors import one_line
from slurmopt.launching.override_words import merged
from slurmopt.planning.ranges import Range
from slurmopt.planning.shapes import Shape
from slurmopt.runs.text_table import table, terminal_width
from slurmopt.units import human_bytes, human_count, human_seconds

HEADER = ["NODES", "LAYOUT", "FITS", "PEAK", "STEP", "TOKENS/S", "MFU", "RUN", "GPU-H", "COST", "WAIT"]


def lines(answer: Answer, typed: list[str]) -> list[str]:
    """The table, what to take, and the notes. `typed`: the overrides of the command line."""
    asked, gpu, taken = answer.asked, answer.asked.cluster.gpu, answer.taken
    found = [
        f"{asked.model.name}: {asked.model.parameters:,} parameters; {asked.work.global_batch:,} of "
        f"{asked.work.sequence:,} tokens a step; {asked.work.precision}, {asked.work.optimizer}",
        f"{asked.cluster.gpus_per_node} {gpu.name} a node of {human_bytes(gpu.memory)}; {len(answer.found):,} shapes",
    ]
    if answer.rows:
        rows = [["→" if row is taken else "*" if row.is_front else "", *cells(row)] for row in answer.rows]
        found += ["", table(["", *HEADER], rows, terminal_width())]
    if rejected := _rejected(answer):
        found += ["", *rejected]
    if taken is not None:
        found += [
            "",
            f"take      {taken.shape.nodes} nodes: {answer.why}{_finish(taken)}",
            f"next      {launch(typed, taken)}",
        ]
    if answer.bill is not None:
        found += answer.bill.lines()
    return found + [f"note      {note}" for note in answer.notes]


def launch(typed: list[str], row: Row) -> str:
    """The command that launches a row."""
    return one_line(shlex.join(["slurmopt", "launch", *merged(typed, row.overrides)]))


def _asked(option: Option) -> str:
    return f"({one_line(option.ask.text)})" if option.ask.text else ""


def _finish(row: Row) -> str:
    found = None if row.option is None else row.finish(row.option)
    if found is None:
        return ""
    return f"; it would end in {human_seconds(found[0])}, with 90 % in {human_seconds(found[1])}, waits included"


def cells(row: Row) -> list[str]:
    """One for each of `HEADER`."""
    shape = row.shape
    assert shape.step is not None
    assert shape.peak is not None
    assert shape.seconds is not None
    whole, tokens, mfu = row.total, shape.step.tokens / shape.seconds.middle, shape.step.mfu
    return [
        str(shape.nodes),
        layout_text(shape),
        f"{shape.fits:.0%}",
        ends_text(shape.peak, human_bytes),
        ends_text(shape.seconds, step_text),
        human_count(tokens),
        f"{mfu.low:.0%}-{mfu.high:.0%}",
        "" if whole is None else ends_text(whole.seconds, human_seconds),
        "" if whole is None else human_count(whole.gpu_hours.middle),
        "" if row.money is None else f"{row.money.amount.middle:,.0f} {row.money.currency}",
        "" if row.option is None else " ".join(filter(None, (row.option.wait.short, _asked(row.option)))),
    ]


def layout_text(shape: Shape) -> str:
    """The layout in short, such as `fsdp t4 p2 b1 full`."""
    layout = shape.layout
    parts = [shape.strategy]
    parts += [f"t{layout.tensor}"] if layout.tensor > 1 else []
    parts += [f"p{layout.pipeline}"] if layout.pipeline > 1 else []
    parts += [f"b{layout.micro_batch}"]
    parts += [layout.recompute] if layout.recompute != "no" else []
    return " ".join(parts)


def ends_text(each: Range, text: Callable[[float], str]) -> str:
    """Both ends of an interval."""
    return f"{text(each.low)}-{text(each.high)}"


def step_text(seconds: float) -> str:
    """The time of a step."""
    return f"{seconds:.3g}s" if seconds < 100 else human_seconds(seconds)


def _rejected(answer: Answer) -> list[str]:
    """A line for each number of nodes of which nothing fits: what comes nearest, or the rule that all others break."""
    fitting = {shape.nodes for shape in answer.found if shape.rejected is None}
    found = []
    for nodes, counts in answer.reasons.items():
        if nodes in fitting:
            continue
        near = answer.nearest(nodes)
        reason = counts.most_common(1)[0][0] if near is None else f"of {layout_text(near)}, {near.rejected}"
        found.append(f"{nodes} node{'s' if nodes > 1 else ''}: nothing fits: {reason}")
    return found
