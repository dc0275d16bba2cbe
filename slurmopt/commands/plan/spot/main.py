"""`slurmopt plan spot TRACE`: a training on spot instances, replayed over a recording of how many could be had.

`--json` prints one object; times are seconds:

    trace       seconds, counts (how many), most (instances at one time), available (the share of the time in which the
                gang can run), uptimes (how many), mean_up, median_up (null where nothing interrupts), mean_wait (from
                one to the next)
    job         work, save, restart, drain, nodes
    starts      starting points of each row
    rows        one for each interval, the one to take first: interval, roles (a list of best, daly, asked), and over
                the starting points p50, p90, mean (from asking for the instances to the last save), and the means of
                interruptions, lost (training that is done again), billed_hours, free_hours (of instances), cost; null
                where it never finishes
    search      what `best` was chosen from: a list of interval and mean (null: never)
    formula     for an exponential life and the interval to take: mtbf, seconds; null where nothing interrupts
    on_demand   without interruptions: seconds, hours (of instances), cost
    currency    of the costs; null where it was not given
    notes       what was assumed
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from slurmopt import command_output
from slurmopt.commands.plan.rates import add_currency, currency_of, price
from slurmopt.commands.plan.spot.answer import Answer, Row, as_json, lines
from slurmopt.errors import InputError
from slurmopt.estimates.spot_trace import read
from slurmopt.option_parser import OptionParser
from slurmopt.planning.spot.replay import FREE, Job, Outlook, best_of, daly_interval, intervals, outlook
from slurmopt.planning.spot.trace import Uptimes, uptimes
from slurmopt.runs import options
from slurmopt.slow_notice import slow_notice
from slurmopt.units import seconds

_MOST_NODES = 100_000
_ZERO = re.compile(r"0+(s|sec|m|min|h)?")
_BILLING = {"aws": FREE, "seconds": 0.0}
"""What an instance that is taken back costs: nothing within its first hour, or each second."""


def main(argv: list[str]) -> int:
    """Runs the command and returns its exit status: 1 where the training never finishes."""
    args = parser().parse_args(argv)
    job, prices = _job(args), (price(args.spot, "plan spot: --spot"), price(args.on_demand, "plan spot: --on-demand"))
    asked = None if args.every is None else min(job.work, _seconds(args.every, "--every"))
    currency, recording = currency_of(args, "plan spot"), read(Path(args.trace))
    up = uptimes(recording.trace, args.nodes)
    with slow_notice("replaying the trace"):
        search = _search(up, job, _BILLING[args.billing], asked)
        rows = _rows(up, job, search, asked)
    answer = Answer(
        recording=recording, job=job, up=up, search=search, rows=rows, spot=prices[0], on_demand=prices[1],
        currency=currency, free=_BILLING[args.billing],
    )  # fmt: skip
    if args.json:
        command_output.print_json(as_json(answer))
    else:
        print("\n".join(lines(answer)))
    if answer.taken is None:
        command_output.fail(f"plan spot: {answer.why_never}", "RunError")
        return 1
    return 0


def parser() -> argparse.ArgumentParser:
    """The options of `slurmopt plan spot`."""
    parser = OptionParser(
        "slurmopt plan spot",
        description="Replay a training over a trace of how many spot instances could be had.",
    )
    add = parser.add_argument
    add("trace", metavar="TRACE", help="JSON as of github.com/skypilot-org/spot-traces, or CSV with time,available")
    add("--work", required=True, metavar="TIME", help="seconds of training in all, such as 40h")
    add("--save", required=True, metavar="TIME", help="what a save blocks the training for, such as 2min")
    add("--restart", required=True, metavar="TIME", help="from the instances to the first step, such as 10min, or 0")
    add("--drain", default="0", metavar="TIME", help="until a save in the background is safe (default: 0)")
    add("--every", metavar="TIME", help="show this interval between saves too")
    add("--nodes", type=int, default=1, metavar="N", help="instances; it runs with all of them or not (default: 1)")
    add("--spot", metavar="PRICE", help="of an instance-hour")
    add("--on-demand", metavar="PRICE", help="of an instance-hour")
    add_currency(parser)
    add(
        "--billing", choices=list(_BILLING), default="aws",
        help="aws: what is taken back in its first hour is free; seconds: each second counts (default: aws)",
    )  # fmt: skip
    options.add_json(parser)
    return parser


def _job(args: argparse.Namespace) -> Job:
    if not 1 <= args.nodes <= _MOST_NODES:
        raise InputError(f"plan spot: --nodes {str(args.nodes)[:40]} is not valid; valid: 1 to {_MOST_NODES:,}")
    return Job(
        work=_seconds(args.work, "--work"),
        blocked=_seconds(args.save, "--save"),
        restart=_or_zero(args.restart, "--restart"),
        drain=_or_zero(args.drain, "--drain"),
    )


def _seconds(text: str, option: str) -> float:
    try:
        return float(seconds(text))
    except ValueError as error:
        raise InputError(f"plan spot: {option}: {error}") from error


def _or_zero(text: str, option: str) -> float:
    return 0.0 if _ZERO.fullmatch(text.strip()) else _seconds(text, option)


def _search(up: Uptimes, job: Job, free: float, asked: float | None) -> list[tuple[float, Outlook | None]]:
    if not up.each:
        return []
    tried = {*intervals(up, job)} | ({asked} if asked is not None else set())
    return [(interval, outlook(up, job, interval, free)) for interval in sorted(tried)]


def _rows(up: Uptimes, job: Job, search: list[tuple[float, Outlook | None]], asked: float | None) -> list[Row]:
    """The best interval of the search, Daly's, and the one that was asked for; the same one once."""
    known, roles = dict(search), dict[float, list[str]]()
    if finishing := [found for found in known.values() if found is not None]:
        roles[best_of(finishing).interval] = ["best"]
    if up.each and not up.always:
        roles.setdefault(daly_interval(up, job), []).append("daly")
    if up.each and asked is not None:
        roles.setdefault(asked, []).append("asked")
    return [Row(interval=interval, roles=names, found=known[interval]) for interval, names in roles.items()]
