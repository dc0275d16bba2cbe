"""`slurmopt list`: lists all runs and sweeps, newest first; a sweep is one line, however many points it has.

`--json` prints a list of objects with `name`, `id`, `folder`, `owner` (of another user's, else null),
`state` and `created` (seconds since the epoch); those of sweeps have `points`, how many there are, and `states`, how
many are in each.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from slurmopt.errors import RunError, one_line
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.sweep_layout import SweepFolder
from slurmopt.runs import options
from slurmopt.runs.all_runs import all_runs, all_sweeps, created
from slurmopt.runs.ownership import owner_of
from slurmopt.runs.status.query import Status, gather
from slurmopt.runs.status.state import age
from slurmopt.runs.status.view import whose
from slurmopt.runs.text_table import table, terminal_width
from slurmopt.runs.unreadable_folders import refuse_unreadable
from slurmopt.sweeps.status.point_states import SweepStates
from slurmopt.sweeps.status.query import sweep_states_or_none
from slurmopt.sweeps.status.view import state_counts

_HEADER = ["NAME", "ID", "STATE", "LAUNCHED"]


def main(argv: list[str]) -> int:
    """Runs the command and returns its exit status."""
    args = parser().parse_args(argv)
    statuses, problem = gather(all_runs(args.folder))
    entries: dict[RunFolder, tuple[list[str], dict[str, Any]]] = {
        status.folder: (_run_row(status), _run_dict(status)) for status in statuses
    }
    problems = [problem]
    for sweep in all_sweeps(args.folder):
        states = sweep_states_or_none(sweep)
        problems.append(states.problem if states else None)
        entries[sweep.run] = (_sweep_row(states), _sweep_dict(states)) if states else _unreadable(sweep)
    if problem := next(filter(None, problems), None):
        print(f"slurmopt: Slurm was not asked: {problem}", file=sys.stderr)
    _print([entries[run] for run in sorted(entries, key=created, reverse=True)], args)
    return 0


def parser() -> argparse.ArgumentParser:
    """The options of `slurmopt list`."""
    parser = options.parser("list", "All runs and sweeps, newest first.")
    options.add_json(parser)
    return parser


def _print(entries: list[tuple[list[str], dict[str, Any]]], args: argparse.Namespace) -> None:
    if args.json:
        print(json.dumps([as_dict for _, as_dict in entries]))
    elif entries:
        print(table(_HEADER, [cells for cells, _ in entries], terminal_width()))
    else:
        try:
            refuse_unreadable(None, [], args.folder)
        except RunError as error:  # the closed runs are other users': the command itself succeeds
            print(f"slurmopt: {error}", file=sys.stderr)
        print(f"no runs in {str(args.folder)!r}; start one with `slurmopt launch`", file=sys.stderr)


def _run_row(status: Status) -> list[str]:
    launched = (age(status.journal.created, status.now), whose(status.owner), status.journal.problem)
    return [one_line(status.folder.name), one_line(status.folder.id), status.state, "  ".join(filter(None, launched))]


def _run_dict(status: Status) -> dict[str, Any]:
    folder = status.folder
    return {
        "name": folder.name,
        "id": folder.id,
        "folder": str(folder.path),
        "owner": status.owner,
        "state": status.state,
        "created": status.journal.created,
    }


def _sweep_row(states: SweepStates) -> list[str]:
    launched = [age(states.created, states.now), whose(owner_of(states.sweep.run))]
    launched.append(f"{states.count:,} points: {state_counts(states.counts())}")
    return [one_line(states.sweep.name), one_line(states.sweep.id), states.state, "  ".join(filter(None, launched))]


def _sweep_dict(states: SweepStates) -> dict[str, Any]:
    sweep = states.sweep
    return {
        "name": sweep.name,
        "id": sweep.id,
        "folder": str(sweep.path),
        "owner": owner_of(sweep.run),
        "state": states.state,
        "created": states.created,
        "points": states.count,
        "states": states.counts(),
    }


def _unreadable(sweep: SweepFolder) -> tuple[list[str], dict[str, Any]]:
    """The row and the object of a sweep that cannot be read."""
    owner = owner_of(sweep.run)
    row = [one_line(sweep.name), one_line(sweep.id), "unknown", whose(owner) or "-"]
    known = {"name": sweep.name, "id": sweep.id, "folder": str(sweep.path), "owner": owner}
    return row, {**known, "state": "unknown", "created": None, "points": None, "states": {}}
