"""`slurmopt plan storage +experiment=NAME`: which storage the checkpoints of a training need.

`--json` prints one object; sizes are bytes, times are seconds:

    checkpoint    size, copies (kept in the shared tier), nodes, node_bytes (of each node)
    asked         within: of a save to the file system; data: bytes beside the checkpoints; days: of an object in S3
    needs         capacity, throughput (a second), node_throughput
    file_systems  of each type the smallest that is enough: name, tib, write (bytes a second), limit (capacity or
                  throughput), a_month (null where the file of prices has no rate of that name); the first is to take
    buckets       of each class of S3: name, billed_days, cost of one checkpoint over its days; bucket: the one to take
    currency      of the costs
    notes         what to mind
"""

from __future__ import annotations

import argparse
import contextlib
import math
import sys
import time
from dataclasses import asdict, dataclass
from typing import Any

from slurmopt import command_output
from slurmopt.errors import InputError, one_line
from slurmopt.estimates.experiment import experiment
from slurmopt.estimates.kept import kept
from slurmopt.option_parser import OptionParser
from slurmopt.planning.states import checkpoint_bytes
from slurmopt.planning.storage import (
    FILE_SYSTEMS,
    S3_CLASSES,
    Bucket,
    FileSystem,
    buckets,
    class_by_lifetime,
    file_systems,
)
from slurmopt.report.run.price_file import read_prices
from slurmopt.runs import options
from slurmopt.runs.text_table import table, terminal_width
from slurmopt.units import byte_count, human_bytes, human_seconds, seconds

_MOST_DAYS = 36_500.0
_LOCAL = "the disks of nodes are the fastest tier and lost with the node, at a stop and at the end of a Capacity Block"
_READS = "each read from a class other than s3-standard costs extra"


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What is printed."""

    size: float
    copies: int
    nodes: int
    within: float
    data: float
    days: float
    systems: list[FileSystem]
    classes: list[Bucket]
    currency: str

    @property
    def needs(self) -> tuple[float, float]:
        """Bytes, and bytes per second."""
        return self.data + self.copies * self.size, self.size / self.within

    @property
    def bucket(self) -> str:
        """The class to take: the cheapest that is in several zones, where rates are known."""
        priced = [each.name for each in self.classes if each.cost is not None and each.name != "s3-onezone-ia"]
        return priced[0] if priced else class_by_lifetime(self.days)


def main(argv: list[str]) -> int:
    """Runs the command and returns its exit status."""
    args = parser().parse_intermixed_args(argv)
    if not args.overrides:
        raise InputError("plan storage: no experiment; valid: slurmopt plan storage +experiment=NAME")
    if args.json:
        command_output.expect_json()
    with contextlib.redirect_stdout(sys.stderr):  # standard output is for the answer
        answer = _answer(args)
    if args.json:
        command_output.print_json(_as_json(answer))
    else:
        print("\n".join(_lines(answer)))
    return 0


def parser() -> argparse.ArgumentParser:
    """The options of `slurmopt plan storage`."""
    parser = OptionParser(
        "slurmopt plan storage",
        usage="slurmopt plan storage [OPTIONS] +experiment=NAME [KEY=VALUE ...]",
        description="Size a file system for the checkpoints of a training, and choose a class of S3.",
    )
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="as for slurmopt launch")
    parser.add_argument("--within", default="60s", metavar="TIME", help="how long a save may take (default: 60s)")
    parser.add_argument("--data", default="0", metavar="SIZE", help="what else the file system holds, such as 20T")
    parser.add_argument("--days", default="30", metavar="N", help="how long a checkpoint stays in S3 (default: 30)")
    parser.add_argument("--config-dir", metavar="DIR", help="the folder of your configs (default: conf)")
    options.add_json(parser)
    return parser


def _answer(args: argparse.Namespace) -> Answer:
    from slurmopt.launching import run_plan

    within, data, days = _time(args.within), _size(args.data), _days(args.days)
    settings, stored = (planned := run_plan.plan(args.overrides, args.config_dir)).job.settings, planned.stored
    asked = experiment(settings.plan, settings.resources, stored)
    size = checkpoint_bytes(asked.model.parameters, asked.work.precision, asked.work.optimizer)
    steps = 0.0 if asked.tokens is None else asked.tokens / asked.work.tokens
    tiers = {each.tier: each for each in kept(settings.checkpoint, asked.model, asked.work, steps)}
    copies = tiers["shared"].copies if "shared" in tiers else 0
    prices, today = read_prices(), time.strftime("%Y-%m-%d", time.gmtime())
    named = {name: prices.storage_of(name, today) for name in (*FILE_SYSTEMS, *S3_CLASSES)}
    rates = {name: rate.per_gb_month for name, rate in named.items() if rate is not None}
    return Answer(
        size=size,
        copies=copies,
        nodes=settings.resources.most_nodes,
        within=within,
        data=data,
        days=days,
        systems=file_systems(data + copies * size, size / within, rates),
        classes=buckets(size, days, rates),
        currency=prices.currency,
    )


def _time(word: str) -> float:
    try:
        return seconds(word)
    except ValueError as error:
        raise InputError(f"plan storage: --within: {one_line(str(error))}") from error


def _size(word: str) -> float:
    try:
        return byte_count(word)
    except ValueError as error:
        raise InputError(f"plan storage: --data: {one_line(str(error))}") from error


def _days(word: str) -> float:
    try:
        found = float(word)
    except ValueError:
        found = math.nan
    if not 0 < found <= _MOST_DAYS:
        raise InputError(
            f"plan storage: --days {one_line(word)[:40]!r} is not valid; valid: above 0, to {_MOST_DAYS:,.0f}"
        )
    return found


def _notes(answer: Answer) -> list[str]:
    notes = [_LOCAL]
    missing = [each.name for each in answer.systems if each.a_month is None]
    missing += [each.name for each in answer.classes if each.cost is None]
    if missing:
        names = ", ".join(missing)
        notes.append(f"the file of prices (SLURMOPT_PRICES) has no rates of storage that are valid today for {names}")
    if answer.bucket != "s3-standard":
        notes.append(_READS)
    return notes


def _lines(answer: Answer) -> list[str]:
    room, speed = answer.needs
    systems = [
        [each.name, f"{each.tib:,.1f} TiB", f"{human_bytes(each.write)}/s", each.limit, _money(each.a_month)]
        for each in answer.systems
    ]
    classes = [[each.name, f"{each.billed_days:g}", _money(each.cost)] for each in answer.classes]
    money = f"{answer.currency} A MONTH"
    first = answer.systems[0]
    which = _which([each.a_month for each in answer.systems])
    return [
        f"a checkpoint has {human_bytes(answer.size)}, {human_bytes(answer.size / answer.nodes)} of each of "
        f"{answer.nodes} node{'s' if answer.nodes > 1 else ''}; {answer.copies} are kept on the shared file system",
        f"a save within {human_seconds(answer.within)} needs {human_bytes(speed)}/s, and room for {human_bytes(room)}",
        "",
        table(["FILE SYSTEM", "SIZE", "WRITE", "SIZE BY", money], systems, terminal_width()),
        "",
        table(["CLASS OF S3", "DAYS BILLED", f"{answer.currency} A CHECKPOINT"], classes, terminal_width()),
        "",
        f"take      {first.name} of {first.tib:,.1f} TiB, {which}; {answer.bucket} for {answer.days:g} days",
        *(f"note      {note}" for note in _notes(answer)),
    ]


def _which(costs: list[float | None]) -> str:
    """By what the first one is the one to take."""
    priced = sum(cost is not None for cost in costs)
    if priced == 0:
        return "the smallest"
    if priced == 1:
        return "the only one with a rate"
    return "the cheapest" if priced == len(costs) else f"the cheapest of the {priced} with a rate"


def _money(amount: float | None) -> str:
    return "" if amount is None else f"{amount:,.2f}"


def _as_json(answer: Answer) -> dict[str, Any]:
    room, speed = answer.needs
    return {
        "checkpoint": {
            "size": answer.size,
            "copies": answer.copies,
            "nodes": answer.nodes,
            "node_bytes": answer.size / answer.nodes,
        },
        "asked": {"within": answer.within, "data": answer.data, "days": answer.days},
        "needs": {"capacity": room, "throughput": speed, "node_throughput": speed / answer.nodes},
        "file_systems": [asdict(each) for each in answer.systems],
        "buckets": [asdict(each) for each in answer.classes],
        "bucket": answer.bucket,
        "currency": answer.currency,
        "notes": _notes(answer),
    }
