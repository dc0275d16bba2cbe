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
        run         of the whole training, with saves and restarts where the user's runs tell of failures; null without
                    plan.tokens
        mtbf        the mean time between failures of the whole job; save_every: the best time between two saves; null
                    where the user's runs tell of too few
        run_p90     not exceeded with 90 %
        gpu_hours   kwh   of the whole training; null without plan.tokens
        money       amount (an interval), currency, date, source; null where no price is known
        wait        of the queue, if it were submitted now; null where Slurm does not tell
        wait_text   what Slurm says
        finish      from now until the training has ended, p50 and p90, the waits included; null where these are not
                    known, or without plan.tokens
        options     for each partition and time limit that was compared: partition, time (null: as in the config),
                    wait, wait_text, finish; the one that finishes first is that of the row
        front       whether no other one is better in both time and GPU-hours
        overrides   what to launch it with: a list of KEY=VALUE
    chosen      the number of nodes to take; null where nothing fits
    cost        of those; null without plan.tokens: currency, storage_amount (an interval), and
        ways        for each price that is known: kind, terms, per_hour, date, source, amount, remark, and with storage
                    and transfers total and its median; null where it cannot be paid so
        storage     for each tier of plan.storage that is on: tier, copies, size, rate, per_gb_month, date, source,
                    a_month
        transfers   size, per_gb, date, source, amount; null without plan.transfers
    why         in words
    tier        memory and step: 1 by formulas, 3 corrected by earlier runs; runs: how many
    rejected    for each number of nodes the shapes that cannot be: nodes, count, and reasons (text → count)
    notes       what was assumed
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from dataclasses import replace
from pathlib import Path

from slurmopt import command_output
from slurmopt.commands.plan.money import money_of
from slurmopt.commands.plan.shapes import waits
from slurmopt.commands.plan.shapes.answer import Answer, Row
from slurmopt.commands.plan.shapes.bill import bill
from slurmopt.commands.plan.shapes.text import lines
from slurmopt.commands.plan.shapes.waits import Option
from slurmopt.config.schema import Settings
from slurmopt.errors import InputError, one_line
from slurmopt.estimates.experiment import Experiment, experiment
from slurmopt.estimates.failures import history
from slurmopt.estimates.past_runs import calibration
from slurmopt.launching.override_words import merged
from slurmopt.option_parser import OptionParser
from slurmopt.planning.cost import Failures, Total, total
from slurmopt.planning.shapes import Shape, best_of_each_size, front, shapes
from slurmopt.planning.speed.measured_collectives import corrected
from slurmopt.runs import options, recordings
from slurmopt.slow_notice import slow_notice


def main(argv: list[str]) -> int:
    """Runs the command and returns its exit status: 1 where nothing fits."""
    args = parser().parse_intermixed_args(argv)
    if not args.overrides:
        raise InputError("plan: no experiment; valid: slurmopt plan +experiment=NAME")
    if args.html is not None and args.html.suffix.lower() != ".html":
        shown = one_line(str(args.html))[:80]
        raise InputError(f"plan: --html {shown!r} is not valid; valid: a name that ends in .html")
    if args.json:
        command_output.expect_json()
    with contextlib.redirect_stdout(sys.stderr):  # standard output is for the answer
        answer = _answer(args)
    if args.html is not None:
        _write_page(answer, args)
    if args.json:
        command_output.print_json(answer.as_json())
    else:
        print("\n".join(lines(answer, args.overrides)))
    if answer.taken is None:
        command_output.fail(f"plan: nothing fits: {answer.why_nothing}", "RunError")
        return 1
    return 0


def parser() -> argparse.ArgumentParser:
    """The options of `slurmopt plan`."""
    parser = OptionParser(
        "slurmopt plan shapes",
        usage="slurmopt plan [OPTIONS] +experiment=NAME [KEY=VALUE ...]",
        description="Compare shapes of an experiment: whether it fits, how long it takes, what it costs.",
    )
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="as for slurmopt launch")
    parser.add_argument("--no-wait", action="store_true", help="do not ask Slurm when each would start")
    parser.add_argument(
        "--collectives", metavar="FILE|RUN", help="correct NCCL's model by this recording of slurmopt bench collectives"
    )
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a page with a picture, too: a name in .html")
    parser.add_argument("--config-dir", metavar="DIR", help="the folder of your configs (default: conf)")
    options.add_json(parser)
    return parser


def _answer(args: argparse.Namespace) -> Answer:
    from slurmopt.launching import run_plan

    planned = run_plan.plan(args.overrides, args.config_dir)
    settings = planned.job.settings
    asked = experiment(settings.plan, settings.resources, planned.stored)
    with slow_notice("reading what earlier runs have measured"):
        learned, failed = calibration(asked, options.default_folder()), history(options.default_folder())
    if args.collectives is not None:
        recording = recordings.read(args.collectives, options.default_folder())
        asked = replace(asked, cluster=corrected(asked.cluster, recording, one_line(args.collectives)))
    found = shapes(asked.model, asked.work, asked.cluster, asked.choices, learned)
    asks = planned.backend != "local" and not args.no_wait
    rows = _rows(args, asked, best_of_each_size(found), settings if asks else None, failed.rate)
    answer = Answer(asked=asked, found=found, rows=rows, learned=learned, failed=failed)
    taken = answer.taken
    if taken is None or taken.total is None:
        return answer
    return replace(answer, bill=bill(asked, settings.plan, settings.checkpoint, taken.shape, taken.total))


def _write_page(answer: Answer, args: argparse.Namespace) -> None:
    from slurmopt.commands.plan.shapes import page
    from slurmopt.report.output import page_file

    page_file.save("plan", args.html, page.page_of(answer, args.overrides))
    print(f"slurmopt: written: {one_line(str(args.html))}", file=sys.stderr)


def _rows(
    args: argparse.Namespace,
    asked: Experiment,
    best: list[Shape],
    settings: Settings | None,
    failures: Failures | None,
) -> list[Row]:
    """`settings`: those of the experiment, if Slurm is to be asked."""
    overrides = [asked.overrides(shape) for shape in best]
    found: list[list[Option]] = [[] for _ in best]
    if settings is not None:
        launches = [merged(args.overrides, each) for each in overrides]
        found = waits.options(launches, settings.plan, settings.resources, args.config_dir)
    best_ones = front(best)
    rows = []
    for shape, words, starts in zip(best, overrides, found, strict=True):
        whole = _total(asked, shape, failures)
        money = None if whole is None else money_of(whole, shape.nodes, shape.layout.ranks, asked.cluster.gpu)
        is_front = shape in best_ones
        rows.append(Row(shape=shape, total=whole, money=money, options=starts, is_front=is_front, shaped=words))
    return rows


def _total(asked: Experiment, shape: Shape, failures: Failures | None) -> Total | None:
    if asked.tokens is None or shape.seconds is None:
        return None
    steps = asked.tokens / asked.work.tokens
    return total(steps, shape.seconds, shape.layout.ranks, shape.nodes, asked.cluster.gpu, failures, asked.boot)
