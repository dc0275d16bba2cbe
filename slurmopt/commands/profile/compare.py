"""`slurmopt profile compare A B`: what became slower from one profile to another.

`--json` prints one object:

    before after    label and folder of the traces, and the rank that is compared
    by_step         whether times are those of a step; else of all the time
    step            before, after (seconds)
    shares          name, before, after, more (seconds); the greatest slowdown first
    operations      the same, with calls_before and calls_after
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from slurmopt import command_output
from slurmopt.commands.profile.show import tell
from slurmopt.errors import InputError
from slurmopt.profiling.comparison import Change, Comparison, compare
from slurmopt.profiling.wording import duration, shown
from slurmopt.runs import options
from slurmopt.runs.find import find
from slurmopt.runs.profiling.traces import Source, captures_of, read_all, source_of
from slurmopt.runs.text_table import table, terminal_width

_TOP = 10
_NOTABLE = 0.02
"""A change below this part of the step is not shown."""


def main(argv: list[str]) -> int:
    """Runs the command and returns its exit status."""
    args = parser().parse_args(argv)
    before, after = _sources(args)
    found = compare(read_all(before, tell), read_all(after, tell))
    if args.json:
        command_output.print_json(_as_json(before, after, found))
    else:
        print("\n".join(_lines(before, after, found)))
    return 0


def parser() -> argparse.ArgumentParser:
    """The options of `slurmopt profile compare`."""
    parser = options.parser("profile compare", "Say what became slower from one profile to another.")
    parser.add_argument("before", metavar="A", help="a run (its newest capture), a folder of traces, or a trace")
    parser.add_argument("after", metavar="B", nargs="?", help="default: the run's newest capture with its oldest")
    options.add_json(parser)
    return parser


def _sources(args: argparse.Namespace) -> tuple[Source, Source]:
    if args.after is not None:
        return source_of(args.before, args.folder), source_of(args.after, args.folder)
    run = find(args.before, args.folder)
    found = [one for one in captures_of(run) if one.files]
    if len(found) < 2:
        raise InputError(
            f"profile compare: {run.name}/{run.id} has {len(found) or 'no'} capture{'s' * (not found)}; valid: two"
        )
    return source_of(args.before, args.folder, found[-1].folder.name), source_of(args.before, args.folder)


def _lines(before: Source, after: Source, found: Comparison) -> list[str]:
    step = "a step" if found.by_step else "all of the time"
    ratio = found.step.after / found.step.before if found.step.before else float("inf")
    change = f"{abs(ratio - 1):.1%} {'slower' if ratio > 1 else 'faster'}"
    return [
        f"before  {before.label}, rank {found.rank_before}",
        f"after   {after.label}, rank {found.rank_after}",
        f"{step}: {duration(found.step.before)} before, {duration(found.step.after)} after: {change}",
        *_table("WHERE", found.shares, found),
        *_table("OPERATION", found.operations, found),
    ]


def _table(title: str, changes: Sequence[Change], found: Comparison) -> list[str]:
    slower = [change for change in changes if change.more > _NOTABLE * found.step.before][:_TOP]
    if not slower:
        return [f"{title}: nothing became slower by {_NOTABLE:.0%} of the time or more"]
    rows = [[duration(one.before), duration(one.after), f"+{duration(one.more)}", _named(one)] for one in slower]
    return [table(["BEFORE", "AFTER", "MORE", title], rows, terminal_width())]


def _named(change: Change) -> str:
    if change.calls_before is None or change.calls_after is None:
        return shown(change.name)
    calls = f"{change.calls_before:,.0f} calls"
    if round(change.calls_before) != round(change.calls_after):
        calls = f"{change.calls_before:,.0f} → {change.calls_after:,.0f} calls"
    return f"{shown(change.name)}  {calls}"


def _as_json(before: Source, after: Source, found: Comparison) -> dict[str, Any]:
    return {
        "before": {"label": before.label, "folder": str(before.folder), "rank": found.rank_before},
        "after": {"label": after.label, "folder": str(after.folder), "rank": found.rank_after},
        "by_step": found.by_step,
        "step": {"before": found.step.before, "after": found.step.after},
        "shares": [_change(one) for one in found.shares],
        "operations": [_change(one) for one in found.operations],
    }


def _change(change: Change) -> dict[str, Any]:
    values = {**asdict(change), "more": change.more}
    return {key: value for key, value in values.items() if value is not None}
