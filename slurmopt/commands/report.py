"""`slurmopt report`: where the GPU-hours of a run went, and what to change.

`--json` prints one object, the fields of `slurmopt.report.run.run_report.RunReport`: durations are seconds, times
seconds since the epoch, sizes bytes, shares 0 to 1, energy joules. Unknown values are null. A reading is a number, or a
word that tells why there is none: `not supported`, `not allowed`, `not measured`.

    label state detail experiment folder owner backend jobs created now
    unit               GPU, or CPU where no GPU was allocated; `device` is its name
    nodes devices      of the latest attempt
    wall ran queued    since the launch, in attempts, in the queue
    step total_steps step_rate rates
    device_seconds     allocated, over all attempts
    shares             the ledger: a list of bucket, seconds (of devices), share; they sum to device_seconds
    provisional        whether the ledger may still change
    planned            what slurmopt plan says of the config beside what was measured: peak, planned_peak (bytes, two
                       ends), step, planned_step; null where the config has no plan
    accounting         charged, counted, difference (seconds of devices), unit: the ledger against sacct; else null
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
import re
import time
from dataclasses import asdict
from pathlib import Path

from slurmopt import command_output
from slurmopt.errors import ConfigError, InputError, RunError, one_line
from slurmopt.report import user_runs
from slurmopt.report.foreign import foreign_job
from slurmopt.report.gather import gather_sweep
from slurmopt.report.output import page, page_file, rollup_text, terminal, text
from slurmopt.report.rollup import RollUp, of_sweep
from slurmopt.report.run import build
from slurmopt.report.run.run_report import RunReport
from slurmopt.run_folder.layout import RunFolder
from slurmopt.runs import options
from slurmopt.runs.find import Selection, by_job, select, started_point
from slurmopt.slow_notice import slow_notice
from slurmopt.units import seconds

_JOB = re.compile(r"\d+(_\d+)?")
"""Also of a job that slurmopt did not launch."""
_ATTEMPT = re.compile(r"(.+)@\d+")
_DATE = len("20261124")
"""The digits with which the ID of a run begins."""


def main(argv: list[str]) -> int:
    """Runs the command and returns its exit status."""
    args = parser().parse_args(argv)
    if args.user and args.run is not None:
        raise InputError("report: name a run, or use --user for all of yours")
    if args.since is not None and not args.user:
        raise InputError("report: --since belongs to --user")
    if args.open and args.html in (None, "-"):
        raise InputError("report: --open belongs to --html, which writes the page to a file")
    with slow_notice("making the report"):
        report = _of_user(args.folder, args.since) if args.user else _of_run(args.run, args.folder)
        html = page.page_of(report) if args.html is not None else ""
    if args.json:
        command_output.print_json(asdict(report))
    elif args.html is not None:
        path = Path(args.html or f"{_file_name(report)}.html")
        page_file.write("report", path, html)
        if args.open:
            page_file.open_in_browser(path.absolute())
    elif isinstance(report, RunReport):
        terminal.show(text.lines(report, terminal.width()))
    else:
        terminal.show(rollup_text.lines(report, terminal.width()))
    return 0


def parser() -> argparse.ArgumentParser:
    """The options of `slurmopt report`."""
    parser = options.parser("report", "Show where the GPU-hours of a run, a sweep or a user went, and what to change.")
    options.add_run(parser)
    parser.add_argument("--user", action="store_true", help="all your runs and sweeps in the folder together")
    parser.add_argument(
        "--since", metavar="TIME", help="with --user: only those launched in the last TIME, such as 30d"
    )
    output = parser.add_mutually_exclusive_group()
    options.add_json(output)
    output.add_argument(
        "--html", nargs="?", const="", metavar="FILE", help="write one page that needs no network (default: ID.html)"
    )
    parser.add_argument("--open", action="store_true", help="with --html: open the page in a browser")
    return parser


def _of_run(name: str | None, folder: Path) -> RunReport | RollUp:
    selected = _selected(name, folder)
    if isinstance(selected, str):
        return foreign_job.report_on_job(selected)
    if isinstance(selected, RunFolder):
        return build.report_on(selected, accounting=True)
    if selected.point is not None:
        return build.report_on(started_point(selected), accounting=True)
    return of_sweep(gather_sweep(selected.sweep, selected.points))


def _selected(name: str | None, folder: Path) -> RunFolder | Selection | str:
    """What `name` selects; a job id that is of no run here."""
    if name is None or not _JOB.fullmatch(name):
        return _select(name, folder)
    if len(name) < _DATE:  # `select` would take a short number for the start of a date
        return by_job(name, folder) or name
    try:
        return select(name, folder)
    except RunError:
        return name


def _select(name: str | None, folder: Path) -> RunFolder | Selection:
    """As `select`; RUN@K, which `slurmopt compare` takes, is refused with what to name instead."""
    try:
        return select(name, folder)
    except RunError as error:
        attempt = _ATTEMPT.fullmatch(name or "")
        if attempt is None:
            raise
        raise InputError(
            f"report: {one_line(str(name))} names one attempt, as only slurmopt compare takes it; "
            f"the report of {one_line(attempt[1])} shows them all"
        ) from error


def _of_user(folder: Path, since: str | None) -> RollUp:
    return user_runs.report_on_user(folder, None if since is None else time.time() - _span(since))


def _span(since: str) -> int:
    try:
        return seconds(since)
    except (ValueError, ConfigError) as error:
        raise InputError(f"report: --since: {error}") from error


def _file_name(report: RunReport | RollUp) -> str:
    return Path(report.label).name if isinstance(report, RunReport) else "report"
