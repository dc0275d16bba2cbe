"""`slurmopt compare`: runs, or attempts of runs, side by side: what differs in their configs, metrics, ledger, speed.

RUN@K is attempt K of a run. `--json` prints one object:

    sides      a list of label, state, unit, device_seconds, shares (bucket, seconds, share), speed, seconds,
               attempts, step, metrics; `speed` is null, or mean, error (half of the 95 % interval, null where it is
               not known) and rows (of the series)
    config     key → a list of its values, one for each side; only keys whose values differ
    ratios     of each side: its speed as a multiple of the first one's and half of the 95 % interval of that; or null
    notes      lines
"""

from __future__ import annotations

import argparse
import re
from dataclasses import asdict
from pathlib import Path

from slurmopt import command_output
from slurmopt.errors import InputError
from slurmopt.report.comparison import compared
from slurmopt.report.gather import gather
from slurmopt.report.output import comparison_text, terminal
from slurmopt.report.run.fine_series import refine
from slurmopt.report.run_record import RunRecord
from slurmopt.runs import options
from slurmopt.runs.find import find
from slurmopt.slow_notice import slow_notice

_ATTEMPT = re.compile(r"(.+)@(\d{1,6})")


def main(argv: list[str]) -> int:
    """Runs the command and returns its exit status."""
    args = parser().parse_args(argv)
    if len(args.runs) < 2:
        raise InputError("compare: name at least two runs, or attempts of runs such as RUN@0 RUN@2")
    records: dict[str, RunRecord] = {}
    with slow_notice("reading the runs"):
        comparison = compared([_side(name, args.folder, records) for name in args.runs])
    if args.json:
        command_output.print_json(asdict(comparison))
    else:
        terminal.show(comparison_text.lines(comparison, terminal.width()))
    return 0


def parser() -> argparse.ArgumentParser:
    """The options of `slurmopt compare`."""
    parser = options.parser("compare", "Show runs side by side: what differs in their configs, metrics, ledger, speed.")
    parser.add_argument("runs", nargs="+", metavar="RUN", help=f"{options.RUN_HELP}; RUN@K is attempt K of a run")
    options.add_json(parser)
    return parser


def _side(name: str, folder: Path, records: dict[str, RunRecord]) -> tuple[RunRecord, int | None]:
    match = _ATTEMPT.fullmatch(name)
    run = find(match[1] if match else name, folder)
    key = str(run.path)
    if key not in records:
        records[key] = gather(run)
        refine(records[key])
    return records[key], int(match[2]) if match else None
