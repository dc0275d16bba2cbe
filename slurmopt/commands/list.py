"""`slurmopt list`: all runs and sweeps, newest first; a sweep is one line, however many points it has.

`--json` prints a list of objects with `name`, `id`, `folder`, `owner` (of another user's, else null),
`state` and `created` (seconds since the epoch); those of sweeps have `points`, how many there are, and `states`, how
many are in each.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from slurmopt.errors import RunError, one_line
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.sweep_layout import SweepFolder
from slurmopt.runs.find import all_runs, all_sweeps, created
from slurmopt.runs.ownership import owner_of
from slurmopt.runs.status.list_row import as_dict, parser, row
from slurmopt.runs.status.query import gather
from slurmopt.runs.status.state import age
from slurmopt.runs.status.view import whose
from slurmopt.runs.table import table, terminal_width
from slurmopt.runs.unreadable_folders import refuse_closed
from slurmopt.sweeps.status.point_states import SweepStates
from slurmopt.sweeps.status.query import readable
from slurmopt.sweeps.status.view import states

__all__ = ["main", "parser"]

_HEADER = ["NAME", "ID", "STATE", "LAUNCHED"]


def main(argv: list[str]) -> int:
    """The command; returns the exit status."""
    given = parser().parse_args(argv)
    runs, sweeps = all_runs(given.folder), all_sweeps(given.folder)
    statuses, problem = gather(runs)
    shown: dict[RunFolder, tuple[list[str], dict[str, Any]]] = {
        status.folder: (row(status), as_dict(status)) for status in statuses
    }
    problems = [problem]
    for sweep in sweeps:
        seen = readable(sweep)
        problems.append(seen.problem if seen else None)
        shown[sweep.run] = (_row(seen), _as_dict(seen)) if seen else (_broken_row(sweep), _broken(sweep))
    if problem := next(filter(None, problems), None):
        print(f"slurmopt: Slurm was not asked: {problem}", file=sys.stderr)
    ordered = [shown[run] for run in sorted(shown, key=created, reverse=True)]
    if given.json:
        print(json.dumps([found for _, found in ordered]))
    elif ordered:
        print(table(_HEADER, [cells for cells, _ in ordered], terminal_width()))
    else:
        try:
            refuse_closed(None, [], given.folder)
        except RunError as error:  # others' runs: nobody has asked for one of them
            print(f"slurmopt: {error}", file=sys.stderr)
        print(f"no runs in {str(given.folder)!r}; start one with `slurmopt launch`", file=sys.stderr)
    return 0


def _row(seen: SweepStates) -> list[str]:
    launched = [age(seen.created, seen.now), whose(owner_of(seen.sweep.run))]
    launched.append(f"{seen.count:,} points: {states(seen.counts())}")
    return [one_line(seen.sweep.name), one_line(seen.sweep.id), seen.state, "  ".join(filter(None, launched))]


def _as_dict(seen: SweepStates) -> dict[str, Any]:
    sweep = seen.sweep
    return {
        "name": sweep.name,
        "id": sweep.id,
        "folder": str(sweep.path),
        "owner": owner_of(sweep.run),
        "state": seen.state,
        "created": seen.created,
        "points": seen.count,
        "states": seen.counts(),
    }


def _broken_row(sweep: SweepFolder) -> list[str]:
    return [one_line(sweep.name), one_line(sweep.id), "unknown", whose(owner_of(sweep.run)) or "-"]


def _broken(sweep: SweepFolder) -> dict[str, Any]:
    found = {"name": sweep.name, "id": sweep.id, "folder": str(sweep.path), "owner": owner_of(sweep.run)}
    return {**found, "state": "unknown", "created": None, "points": None, "states": {}}
