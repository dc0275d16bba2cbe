"""`slurmopt metrics`: gives out what the sampler of each node measured during an attempt.

The table has a line for each quantity: its mean over all GPUs, ranks or nodes, where the lowest and the highest mean
were, and the largest value of an interval. Where a quantity has no values, the line says why: not supported, not
allowed, not measured.

`--json` prints one object: `run`, `attempt`, `nodes` and `problems`, a line for each node whose series cannot be read.
`nodes` is a list of objects:

    node facts absent events       as in the series: see docs/monitoring.md
    times seconds                  when each interval ended (seconds since the epoch), and its length
    values                         column → a list with a value for each interval; null where it was not measured
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from pathlib import Path

from slurmopt import command_output
from slurmopt.errors import InputError, one_line
from slurmopt.runs import options
from slurmopt.runs.metrics.files import json_pieces, write_csv, write_parquet
from slurmopt.runs.metrics.query import AttemptSeries, find_measured, load
from slurmopt.runs.metrics.table import page
from slurmopt.runs.text_table import terminal_width
from slurmopt.slow_notice import slow_notice
from slurmopt.units import seconds


def main(argv: list[str]) -> int:
    """Runs the command and returns its exit status."""
    args = parser().parse_args(argv)
    # rows that run over a terminal tell by themselves that it goes on
    streams = (args.json or args.csv) and sys.stdout.isatty()
    with contextlib.nullcontext() if streams else slow_notice("reading what was measured"):
        found = load(find_measured(args.run, args.folder), args.attempt, args.node, args.gpu, args.since)
        _give_out(found, args)
    for problem in found.problems:
        command_output.warn(f"{problem}")
    return 0


def _give_out(found: AttemptSeries, args: argparse.Namespace) -> None:
    if args.json:
        command_output.print_pieces(json_pieces(found))
    elif args.csv:
        write_csv(found, sys.stdout)
    elif args.parquet is not None:
        try:
            write_parquet(found, args.parquet)
        except OSError as error:
            raise InputError(f"{one_line(str(args.parquet))} cannot be written: {error.strerror or error}") from error
    else:
        print(page(found, terminal_width()))


def parser() -> argparse.ArgumentParser:
    """The options of `slurmopt metrics`."""
    parser = options.parser("metrics", "Give out what was measured on the nodes of a run: means and peaks, or rows.")
    options.add_run(parser)
    parser.add_argument("--attempt", type=_count, metavar="K", help="an attempt (default: the latest with a series)")
    parser.add_argument("--node", metavar="NAME", help="only this node")
    parser.add_argument("--gpu", type=_count, metavar="N", help="only the GPU with this index on its node")
    parser.add_argument("--since", type=_span, metavar="TIME", help="only the last 1h, 30m or 2d until the newest row")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--csv", action="store_true", help="print CSV: a row for each interval of each node")
    options.add_json(form)
    form.add_argument("--parquet", type=Path, metavar="FILE", help="write a Parquet file; needs pyarrow")
    return parser


def _count(word: str) -> int:
    if not word.isascii() or not word.isdecimal() or len(word) > 9:
        raise argparse.ArgumentTypeError(f"{word!r} is no whole number from 0 on")
    return int(word)


def _span(word: str) -> int:
    try:
        return seconds(word)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
