"""`slurmopt list`: all runs, newest first.

`--json` prints a list of objects with `name`, `id`, `folder`, `state` and `created` (seconds since the epoch).
"""

from __future__ import annotations

import argparse
import json
import sys

from slurmopt.errors import one_line
from slurmopt.runs import options
from slurmopt.runs.find import all_runs, created
from slurmopt.runs.gather import Status, gather
from slurmopt.runs.state import age
from slurmopt.runs.table import table, terminal_width


def main(argv: list[str]) -> int:
    """The command; returns the exit status."""
    given = parser().parse_args(argv)
    folders = sorted(all_runs(given.folder), key=created, reverse=True)
    statuses, problem = gather(folders)
    if problem:
        print(f"slurmopt: Slurm was not asked: {problem}", file=sys.stderr)
    if given.json:
        print(json.dumps([_as_dict(status) for status in statuses]))
    elif statuses:
        print(table(["NAME", "ID", "STATE", "LAUNCHED"], [_row(status) for status in statuses], terminal_width()))
    else:
        print(f"no runs in {str(given.folder)!r}; start one with `slurmopt launch`", file=sys.stderr)
    return 0


def parser() -> argparse.ArgumentParser:
    """The options of `slurmopt list`."""
    made = options.parser("list", "All runs, newest first.")
    options.add_json(made)
    return made


def _row(status: Status) -> list[str]:
    launched = age(status.journal.created, status.now)
    return [one_line(status.folder.name), one_line(status.folder.id), status.state, launched]


def _as_dict(status: Status) -> dict[str, object]:
    folder = status.folder
    return {
        "name": folder.name,
        "id": folder.id,
        "folder": str(folder.path),
        "state": status.state,
        "created": status.journal.created,
    }
