"""`slurmopt report`: where the GPU-hours of a run went, and what to change.

`--json` prints one object, the fields of `slurmopt.report.run_report.RunReport`: durations are seconds, times seconds
since the epoch, sizes bytes, shares 0 to 1, energy joules. Unknown values are null. A reading is a number, or a word
that tells why there is none: `not supported`, `not allowed`, `not measured`.

    label state detail experiment folder owner backend jobs created now
    unit               GPU, or CPU where no GPU was allocated; `device` is its name
    nodes devices      of the latest attempt
    wall ran queued    since the launch, in attempts, in the queue
    step total_steps step_rate rates
    device_seconds     allocated, over all attempts
    shares             the ledger: a list of bucket, seconds (of devices), share; they sum to device_seconds
    provisional        whether the ledger may still change
    cost               amount, currency, per_hour, source, energy, co2
    usage              name, share, detail
    node_rows          node, devices, ranks, readings (a key of COLUMNS there → its reading), remark; the odd ones first
    attempts           number, job, nodes, node_count, devices, start, end, queued, restart, first_step, last_step,
                       steps_lost, cause, error, seconds, device_seconds
    findings           kind, summary, sure, evidence, cost (device-hours), change, node, rank, gpu
    abstentions        kind, missing
    helped notes       lines
    panels             title, unit, top, times, lines: label, values
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from slurmopt.run_folder.access.files import replace_text
from slurmopt.runs import options
from slurmopt.runs.find import find


def main(argv: list[str]) -> int:
    """Runs the command and returns its exit status."""
    args = parser().parse_args(argv)
    from slurmopt.report import build, page, terminal, text

    report = build.report_on(find(args.run, args.folder))
    if args.json:
        print(to_json(asdict(report)))
    elif args.html is not None:
        _write(Path(args.html or f"{Path(report.label).name}.html"), page.page(report))
    else:
        terminal.show(text.lines(report, terminal.width()))
    return 0


def parser() -> argparse.ArgumentParser:
    """The options of `slurmopt report`."""
    parser = options.parser("report", "Show where the GPU-hours of a run went, and what to change.")
    options.add_run(parser)
    output = parser.add_mutually_exclusive_group()
    options.add_json(output)
    output.add_argument(
        "--html", nargs="?", const="", metavar="FILE", help="write one page that needs no network (default: ID.html)"
    )
    return parser


def to_json(value: Any) -> str:
    """JSON of a report; a number that is not finite is null."""
    try:
        return json.dumps(value, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(value), allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and value - value != 0 else value


def _write(path: Path, page: str) -> None:
    if str(path) == "-":
        sys.stdout.write(page)
        return
    replace_text(path.absolute(), page, mode=0o600)
    print(os.path.relpath(path))
