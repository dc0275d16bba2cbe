"""`slurmopt network explain`: why the ranks of a job get which variables, and by which document.

`--json` prints one object: `kind`, `reason`, `warnings`, and `variables`, a list of `name`, `value`, `own` (the user's
value, which counts; null: none), `reason`, `source` and `versions` (for which it holds; empty: all).
"""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Iterator
from dataclasses import asdict

from slurmopt import command_output
from slurmopt.commands.network import facts_of
from slurmopt.commands.network.facts_of import Explained
from slurmopt.errors import one_line
from slurmopt.network.settings import Applied
from slurmopt.runs.text_table import terminal_width

_WIDEST = 100


def main(argv: list[str]) -> int:
    """Runs the command and returns its exit status."""
    args = parser().parse_args(argv)
    facts_of.refuse_words(args.overrides)
    found = facts_of.explained(args)
    for warning in found.choice.warnings:
        command_output.warn(one_line(warning))
    if args.json:
        choice = {"kind": found.choice.kind, "reason": found.choice.reason, "warnings": list(found.choice.warnings)}
        variables = [{**asdict(each.setting), "own": each.own} for each in found.variables]
        command_output.print_json({**choice, "variables": variables})
    else:
        print("\n".join(_lines(found)))
    return 0


def parser() -> argparse.ArgumentParser:
    """The options of `slurmopt network explain`."""
    return facts_of.parser("explain", "Explain the variables that the ranks of a job get for the network of a node.")


def _lines(found: Explained) -> Iterator[str]:
    yield one_line(f"network {found.choice.kind}: {found.choice.reason}")
    for each in found.variables:
        yield ""
        yield from _variable(each)
    if not found.variables:
        yield "no variable is set"
    if found.own:
        yield ""
        yield one_line(f"yours, left as they are: {', '.join(found.own)}; slurmopt network lint says what is wrong")


def _variable(each: Applied) -> Iterator[str]:
    setting = each.setting
    counts = "" if each.own is None else f"  (yours, {each.own!r}, counts)"
    yield one_line(f"{setting.name}={setting.value}{counts}")
    yield from _wrapped(setting.reason)
    if setting.versions:
        yield from _wrapped(f"for {setting.versions}")
    yield f"  {setting.source}"


def _wrapped(text: str) -> list[str]:
    width = min(terminal_width() or _WIDEST, _WIDEST)
    return textwrap.wrap(one_line(text), width, initial_indent="  ", subsequent_indent="  ")
