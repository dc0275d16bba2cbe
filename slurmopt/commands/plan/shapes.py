"""`slurmopt plan +experiment=NAME`: which shapes of a training fit, how long they take and what they cost.

For each number of nodes the shape to take is shown: of those that fit and are within 5 % of the fastest the simplest.

`--json` prints one object; intervals are lists of two ends, times are seconds:

    model       name, parameters
    work        sequence, global_batch, precision, optimizer
    gpu         name, memory; per_node: GPUs of a node
    shapes      one for each number of nodes that has one that fits: a list of
        nodes gpus data tensor pipeline strategy micro_batch recompute
        peak        bytes of the rank that needs most
        fits        the probability that this is within the GPU's memory
        step        of a step
        tokens_per_second
        mfu         the model's FLOPs by the peak of the GPUs
        run         of the whole training; null without plan.tokens
        run_p90     not exceeded with 90 %
        gpu_hours   kwh   of the whole training; null without plan.tokens
        money       amount (an interval), currency, date, source; null where no price is known
        wait        of the queue, if it were submitted now; null where Slurm does not tell
        wait_text   what Slurm says
        front       whether no other one is better in both time and GPU-hours
        overrides   what to launch it with: a list of KEY=VALUE
    chosen      the number of nodes to take; null where nothing fits
    why         in words
    rejected    for each number of nodes the shapes that cannot be: nodes, count, and reasons (text → count)
    notes       what was assumed
"""

from __future__ import annotations

import argparse
import contextlib
import shlex
import sys
from collections import Counter
from dataclasses import dataclass
from typing import Any

from slurmopt import command_output
from slurmopt.commands.plan.experiment import Experiment, experiment
from slurmopt.commands.plan.money import Money, money_of
from slurmopt.commands.plan.waits import Wait, waits
from slurmopt.errors import InputError, one_line
from slurmopt.option_parser import OptionParser
from slurmopt.planning.cost import Total, total
from slurmopt.planning.ranges import Range
from slurmopt.planning.shapes import (
    MORE_HOURS,
    Calibration,
    Shape,
    best_of_each_size,
    chosen,
    front,
    shapes,
)
from slurmopt.runs import options
from slurmopt.runs.text_table import table, terminal_width
from slurmopt.units import human_bytes, human_count, human_seconds

_MOST_REASONS = 3


@dataclass(frozen=True, kw_only=True)
class Row:
    """A shape that fits, and what comes with it."""

    shape: Shape
    total: Total | None
    money: Money | None
    wait: Wait | None
    is_front: bool
    overrides: list[str]


def main(argv: list[str]) -> int:
    """Runs the command and returns its exit status: 1 where nothing fits."""
    args = parser().parse_intermixed_args(argv)
    if not args.overrides:
        raise InputError("plan: no experiment; valid: slurmopt plan +experiment=NAME")
    if args.json:
        command_output.expect_json()
    with contextlib.redirect_stdout(sys.stderr):  # standard output is for the answer
        from slurmopt.launching import run_plan

        planned = run_plan.plan(args.overrides, args.config_dir)
        asked = experiment(planned.job.settings, planned.stored)
        found = shapes(asked.model, asked.work, asked.cluster, asked.choices, Calibration())
        best = best_of_each_size(found)
        rows = _rows(args, asked, best, planned.backend)
    taken = chosen(best)
    if args.json:
        command_output.print_json(_as_json(asked, found, rows, taken))
    else:
        print("\n".join(_lines(args, asked, found, rows, taken)))
    if taken is None:
        command_output.fail(f"plan: nothing fits: {_first_reason(found)}", "RunError")
    return 0 if taken is not None else 1


def parser() -> argparse.ArgumentParser:
    """The options of `slurmopt plan`."""
    parser = OptionParser(
        "slurmopt plan shapes",
        usage="slurmopt plan [OPTIONS] +experiment=NAME [KEY=VALUE ...]",
        description="Compare shapes of an experiment: whether it fits, how long it takes, what it costs.",
    )
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="as for slurmopt launch")
    parser.add_argument("--no-wait", action="store_true", help="do not ask Slurm when each would start")
    parser.add_argument("--config-dir", metavar="DIR", help="the folder of your configs (default: conf)")
    options.add_json(parser)
    return parser


def _rows(args: argparse.Namespace, asked: Experiment, best: list[Shape], backend: str) -> list[Row]:
    overrides = [asked.overrides(shape) for shape in best]
    asks = backend != "local" and not args.no_wait
    starts = waits([[*args.overrides, *each] for each in overrides], args.config_dir) if asks else [None] * len(best)
    best_ones = front(best)
    rows = []
    for shape, words, wait in zip(best, overrides, starts, strict=True):
        whole = _total(asked, shape)
        money = None if whole is None else money_of(whole.gpu_hours, asked.cluster.gpu)
        rows.append(Row(shape=shape, total=whole, money=money, wait=wait, is_front=shape in best_ones, overrides=words))
    return rows


def _total(asked: Experiment, shape: Shape) -> Total | None:
    if asked.tokens is None or shape.seconds is None:
        return None
    steps = asked.tokens / asked.work.tokens
    return total(steps, shape.seconds, shape.layout.ranks, shape.nodes, asked.cluster.gpu, None)


def _lines(
    args: argparse.Namespace, asked: Experiment, found: list[Shape], rows: list[Row], taken: Shape | None
) -> list[str]:
    gpu = asked.cluster.gpu
    lines = [
        f"{asked.model.name}: {asked.model.parameters:,} parameters; {asked.work.global_batch:,} of "
        f"{asked.work.sequence:,} tokens a step; {asked.work.precision}, {asked.work.optimizer}",
        f"{asked.cluster.gpus_per_node} {gpu.name} a node, {human_bytes(gpu.memory)} each; {len(found):,} shapes",
    ]
    if rows:
        header = ["", "NODES", "LAYOUT", "FITS", "PEAK", "STEP", "TOKENS/S", "MFU", "RUN", "GPU-H", "COST", "WAIT"]
        lines += ["", table(header, [_cells(row, row.shape is taken) for row in rows], terminal_width())]
    lines += ["", *_rejected(found)]
    if taken is not None:
        words = next(row.overrides for row in rows if row.shape is taken)
        lines += [
            "",
            f"take      {taken.nodes} nodes: {_why(rows, taken)}",
            f"next      {one_line(shlex.join(['slurmopt', 'launch', *args.overrides, *words]))}",
        ]
    return lines + [f"note      {note}" for note in _notes(asked, rows)]


def _cells(row: Row, is_taken: bool) -> list[str]:
    shape = row.shape
    assert shape.step is not None
    assert shape.peak is not None
    assert shape.seconds is not None
    whole, tokens, mfu = row.total, shape.step.tokens / shape.seconds.middle, shape.step.mfu
    return [
        "→" if is_taken else "*" if row.is_front else "",
        str(shape.nodes),
        layout_text(shape),
        f"{shape.fits:.0%}",
        _ends(shape.peak, human_bytes),
        _ends(shape.seconds, _short),
        human_count(tokens),
        f"{mfu.low:.0%}-{mfu.high:.0%}",
        "" if whole is None else _ends(whole.seconds, human_seconds),
        "" if whole is None else human_count(whole.gpu_hours.middle),
        "" if row.money is None else f"{row.money.amount.middle:,.0f} {row.money.currency}",
        "" if row.wait is None else row.wait.short,
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


def _ends(each: Range, text: Any) -> str:
    return f"{text(each.low)}-{text(each.high)}"


def _short(seconds: float) -> str:
    return f"{seconds:.3g}s" if seconds < 100 else human_seconds(seconds)


def _why(rows: list[Row], taken: Shape) -> str:
    if len(rows) == 1:
        return "the only number of nodes that has a shape that fits"
    fastest = min(rows, key=lambda row: row.shape.seconds.middle if row.shape.seconds else 0.0)
    if fastest.shape is taken:
        return f"the fastest, and within {MORE_HOURS:.0%} of the least GPU-hours"
    return f"the fastest of those within {MORE_HOURS:.0%} of the least GPU-hours"


def _reasons(found: list[Shape]) -> dict[int, Counter[str]]:
    reasons: dict[int, Counter[str]] = {}
    for shape in found:
        if shape.rejected is not None:
            reasons.setdefault(shape.nodes, Counter())[shape.rejected] += 1
    return reasons


def _rejected(found: list[Shape]) -> list[str]:
    lines = []
    for nodes, counts in sorted(_reasons(found).items()):
        fitting = sum(shape.nodes == nodes and shape.rejected is None for shape in found)
        if fitting:
            continue
        reasons = "; ".join(reason for reason, _ in counts.most_common(_MOST_REASONS))
        lines.append(f"{nodes} node{'s' if nodes > 1 else ''}: nothing fits: {reasons}")
    return lines


def _first_reason(found: list[Shape]) -> str:
    near = [shape for shape in found if shape.peak is not None]
    if near:
        return min(near, key=lambda shape: shape.peak.middle if shape.peak else 0.0).rejected or ""
    return next((shape.rejected or "" for shape in found), "no shapes")


def _notes(asked: Experiment, rows: list[Row]) -> list[str]:
    notes = ["peak and times are 90 % intervals of formulas (tier 1); the first run of this experiment will show them"]
    if asked.tokens is None:
        notes.append("plan.tokens is not set: no time, GPU-hours and money of the whole training")
    priced = next((row.money for row in rows if row.money is not None), None)
    if priced is not None:
        notes.append(f"prices of {priced.date}: {priced.source}")
    elif asked.tokens is not None and rows:
        notes.append(f"no price is known of {asked.cluster.gpu.name}; SLURMOPT_PRICES names a file with yours")
    if any(row.wait is not None for row in rows):
        notes.append("the wait is Slurm's hint (sbatch --test-only), not a promise")
    return notes


def _as_json(asked: Experiment, found: list[Shape], rows: list[Row], taken: Shape | None) -> dict[str, Any]:
    gpu = asked.cluster.gpu
    return {
        "model": {"name": asked.model.name, "parameters": asked.model.parameters},
        "work": {name: getattr(asked.work, name) for name in ("sequence", "global_batch", "precision", "optimizer")},
        "gpu": {"name": gpu.name, "memory": gpu.memory, "per_node": asked.cluster.gpus_per_node},
        "shapes": [_row_json(row) for row in rows],
        "chosen": None if taken is None else taken.nodes,
        "why": None if taken is None else _why(rows, taken),
        "rejected": [
            {"nodes": nodes, "count": counts.total(), "reasons": dict(counts)}
            for nodes, counts in sorted(_reasons(found).items())
        ],
        "notes": _notes(asked, rows),
    }


def _row_json(row: Row) -> dict[str, Any]:
    shape, whole = row.shape, row.total
    assert shape.step is not None

    def ends(each: Range | None) -> list[float] | None:
        return None if each is None else [each.low, each.high]

    return {
        "nodes": shape.nodes,
        "gpus": shape.layout.ranks,
        **{name: getattr(shape.layout, name) for name in ("data", "tensor", "pipeline")},
        "strategy": shape.strategy,
        **{name: getattr(shape.layout, name) for name in ("micro_batch", "recompute")},
        "peak": ends(shape.peak),
        "fits": shape.fits,
        "step": ends(shape.seconds),
        "tokens_per_second": ends(shape.step.tokens_per_second),
        "mfu": ends(shape.step.mfu),
        "run": None if whole is None else ends(whole.seconds),
        "run_p90": None if whole is None else whole.seconds.quantile(0.9),
        "gpu_hours": None if whole is None else ends(whole.gpu_hours),
        "kwh": None if whole is None else ends(whole.kwh),
        "money": None if row.money is None else row.money.as_json(),
        "wait": None if row.wait is None else row.wait.seconds,
        "wait_text": None if row.wait is None else row.wait.text,
        "front": row.is_front,
        "overrides": row.overrides,
    }
