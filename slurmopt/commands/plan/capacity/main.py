"""`slurmopt plan capacity`: how many GPUs to commit to, out of what jobs have used, and the wait that it costs.

`--json` prints one object; times are seconds, prices those of a GPU-hour:

    history     jobs, hours, gpu_hours, mean (GPUs in use), most (GPUs at one time), gpus_per_node (null: not known)
    commitment  share (q: of the hours that it is to cover), needed (GPUs at that quantile), gpus, nodes; null without
                prices
    bills       a list of what (nothing, on demand, spot, everything: what is committed, or how the rest is bought),
                committed (GPUs), fee, inside (GPU-hours used within it), idle (GPU-hours paid and not used), beyond
                (GPU-hours bought besides), bought (their cost), total, utilisation, amortised (the fee by the
                GPU-hours used within it), average (the total by all GPU-hours); null where there are none
    marginal    of a further GPU-hour: inside (0), beyond (the price of the rest); null without prices
    waits       a list of what (recorded, committed, peak), gpus, jobs, never (jobs that need more), mean, p90 (null:
                no job can start)
    week        from Monday on, for each of 24 hours the GPUs that were enough in 90 % of the weeks; null: not seen
    currency    of the prices; null where it was not given
    notes       what was assumed
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

from slurmopt import command_output
from slurmopt.commands.plan.capacity.answer import Answer, Prices, as_json, lines
from slurmopt.commands.plan.capacity.own_jobs import own_jobs
from slurmopt.commands.plan.rates import add_currency, currency_of, of_file, price
from slurmopt.errors import InputError, one_line
from slurmopt.estimates.job_history import FIELDS, History, read
from slurmopt.option_parser import OptionParser
from slurmopt.planning.capacity.demand import Job, demand, peak
from slurmopt.runs import options
from slurmopt.slow_notice import slow_notice

_MOST_DAYS, _MOST_PER_NODE = 3660, 1024
_DAY = 86400


def main(argv: list[str]) -> int:
    """Runs the command and returns its exit status."""
    args = parser().parse_args(argv)
    prices = _prices(args)
    _check(args)
    with slow_notice("reading what jobs have used"):
        history = own_jobs(options.default_folder()) if args.jobs is None else read(Path(args.jobs))
        answer = _answer(args, history, prices)
    if args.json:
        command_output.print_json(as_json(answer))
    else:
        print("\n".join(lines(answer)))
    return 0


def parser() -> argparse.ArgumentParser:
    """The options of `slurmopt plan capacity`."""
    parser = OptionParser(
        "slurmopt plan capacity", description="How many GPUs to commit to, out of what jobs have used, and the wait."
    )
    add = parser.add_argument
    add("--jobs", metavar="FILE", help=f"the output of sacct -P -o {','.join(FIELDS)} (default: your own runs)")
    add("--days", type=int, default=31, metavar="N", help="how far back from the newest time (default: 31)")
    add("--gpu", metavar="NAME", help="take the prices of this GPU from the file of prices, such as h100")
    add("--committed", metavar="PRICE", help="of a GPU-hour that is committed to")
    add("--on-demand", metavar="PRICE", help="of a GPU-hour on demand")
    add("--spot", metavar="PRICE", help="of a GPU-hour on spot")
    add_currency(parser)
    add("--gpus-per-node", type=int, metavar="N", help="nodes are committed whole (default: the most of a job on one)")
    options.add_json(parser)
    return parser


def _prices(args: argparse.Namespace) -> Prices | None:
    committed, on_demand, spot = (
        price(getattr(args, name), f"plan capacity: --{name.replace('_', '-')}")
        for name in ("committed", "on_demand", "spot")
    )
    currency = currency_of(args, "plan capacity")
    if args.gpu is not None:
        if currency or (committed, on_demand, spot) != (None, None, None):
            raise InputError("plan capacity: --gpu has the prices of the file; valid: it alone, or prices as options")
        return _of_file(args.gpu)
    if committed is None and on_demand is None and spot is None:
        return None
    if committed is None or on_demand is None:
        raise InputError("plan capacity: one price alone tells nothing; valid: --committed and --on-demand, or none")
    return Prices(committed=committed, on_demand=on_demand, spot=spot, currency=currency)


def _of_file(gpu: str) -> Prices:
    found, currency = of_file(gpu, "plan capacity")
    if missing := [word for word in ("committed", "on-demand") if word not in found]:
        kinds = "rows of the kinds on-demand and reserved or savings-plan, or prices as options"
        raise InputError(
            f"plan capacity: --gpu {one_line(gpu)}: the file of prices has none {' and none '.join(missing)} that is "
            f"valid today; valid: {kinds}"
        )
    spot = found["spot"].per_hour if "spot" in found else None
    said = "; ".join(f"{price.kind} of {price.date}: {price.source}" for price in found.values())
    return Prices(
        committed=found["committed"].per_hour,
        on_demand=found["on-demand"].per_hour,
        spot=spot,
        currency=currency,
        source=said,
    )


def _check(args: argparse.Namespace) -> None:
    if not 1 <= args.days <= _MOST_DAYS:
        raise InputError(f"plan capacity: --days {str(args.days)[:40]} is not valid; valid: 1 to {_MOST_DAYS:,}")
    if args.gpus_per_node is not None and not 1 <= args.gpus_per_node <= _MOST_PER_NODE:
        shown = str(args.gpus_per_node)[:40]
        raise InputError(f"plan capacity: --gpus-per-node {shown} is not valid; valid: 1 to {_MOST_PER_NODE:,}")


def _answer(args: argparse.Namespace, history: History, prices: Prices | None) -> Answer:
    newest = max(job.ended for job in history.jobs)
    since = newest - args.days * _DAY
    jobs = [job for job in history.jobs if job.ended > since]
    if not any(job.seconds > 0 for job in jobs):
        raise InputError("plan capacity: no job held its GPUs for any time; valid: a history of jobs that have run")
    return Answer(
        jobs=jobs,
        demand=demand(jobs, since),
        peak=max(1, peak(_within(jobs, since))),
        per_node=args.gpus_per_node or history.gpus_per_node,
        prices=prices,
        notes=history.notes,
        older=len(history.jobs) - len(jobs),
    )


def _within(jobs: list[Job], since: float) -> list[Job]:
    """The parts of the jobs from then on."""
    floor = math.floor(since)
    return [Job(job.submitted, max(job.started, floor), job.ended, job.gpus) for job in jobs]
