"""`slurmopt list`: lists all runs and sweeps, newest first; a sweep is one line, however many points it has.

`--json` prints a list of objects with `name`, `id`, `folder`, `owner` (of another user's, else null), `state`,
`created` (seconds since the epoch), `detail` (a line for people on the state), `job` and `jobs` (the latest one, and
all), `step`, `total_steps` and `metrics`. Those of runs have `ended` and `elapsed` (seconds), those of sweeps `points`,
how many there are, and `states`, how many are in each.
"""

from __future__ import annotations

import argparse
import os
import sys
import time

from slurmopt import command_output
from slurmopt.errors import InputError, RunError
from slurmopt.run_folder.layout import RunFolder
from slurmopt.runs import colour, options
from slurmopt.runs.all_runs import all_folders
from slurmopt.runs.elsewhere import own_folders
from slurmopt.runs.index import known_folders
from slurmopt.runs.text_table import terminal_width
from slurmopt.runs.unreadable_folders import refuse_unreadable
from slurmopt.sweeps.listing import columns, filters
from slurmopt.sweeps.listing.rows import Row, rows
from slurmopt.units import seconds


def main(argv: list[str]) -> int:
    """Runs the command and returns its exit status."""
    args = parser().parse_args(argv)
    states = filters.states(args.state) if args.state is not None else None
    first = None if args.since is None else time.time() - _span(args.since)
    is_everywhere = _is_everywhere(args)
    folders = filters.of_name(own_folders() if is_everywhere else all_folders(args.folder), args.name)
    listed, problem = rows(folders)
    if problem:
        command_output.warn(f"Slurm was not asked: {problem}")
    chosen = [row for row in listed if _is_chosen(row, states, first)]
    _print(filters.ordered(chosen, args.sort), is_everywhere, args)
    if not chosen and not args.json:
        _say_none(folders, args)
    return 0


def parser() -> argparse.ArgumentParser:
    """The options of `slurmopt list`."""
    parser = options.parser("list", "All runs and sweeps, newest first.")
    parser.add_argument("--everywhere", action="store_true", help="your runs in all folders in which you have launched")
    parser.add_argument("--state", metavar="STATES", help="only these, such as failed,killed")
    parser.add_argument("--name", metavar="GLOB", help="only these names, such as 'llama-*'")
    parser.add_argument("--since", metavar="TIME", help="only those launched in the last TIME, such as 2d")
    parser.add_argument(
        "--sort",
        metavar="KEY",
        default="launched",
        help="launched (the default, newest first), name, state, job, progress, or a metric, the smallest first",
    )
    options.add_color(parser)
    options.add_json(parser)
    return parser


def _span(since: str) -> int:
    try:
        return seconds(since)
    except ValueError as error:
        raise InputError(f"list: --since: {error}") from error


def _is_everywhere(args: argparse.Namespace) -> bool:
    """Whether to list the runs of all known folders: where that is asked for, and outside of any project."""
    is_default = isinstance(args.folder, options.DefaultFolder)
    if args.everywhere and not is_default:
        raise InputError("list: --everywhere and --folder exclude each other; give one of them")
    is_outside = is_default and "SLURMOPT_FOLDER" not in os.environ and not args.folder.exists()
    return bool(args.everywhere or (is_outside and known_folders()))


def _is_chosen(row: Row, states: frozenset[str] | None, first: float | None) -> bool:
    return (states is None or row.state in states) and (first is None or (row.created or 0.0) >= first)


def _print(chosen: list[Row], is_everywhere: bool, args: argparse.Namespace) -> None:
    if args.json:
        command_output.print_json([row.as_dict() for row in chosen])
    elif chosen:
        is_coloured = colour.wanted(args.color, sys.stdout)
        print(columns.text(chosen, terminal_width(narrowest=1), is_everywhere, is_coloured))


def _say_none(folders: list[RunFolder], args: argparse.Namespace) -> None:
    """Says on standard error why the list is empty."""
    if folders or args.name is not None:
        print("no runs match; `slurmopt list` shows all", file=sys.stderr)
        return
    try:
        refuse_unreadable(None, [], args.folder)
    except RunError as error:  # the closed runs are other users': the command itself succeeds
        command_output.warn(str(error))
    where = "" if args.everywhere else f" in {str(args.folder)!r}"
    print(f"no runs{where}; start one with `slurmopt launch`", file=sys.stderr)
