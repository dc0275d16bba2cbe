"""A run as `slurmopt list` shows it; `slurmopt.commands.list` is the command."""

from __future__ import annotations

import argparse

from slurmopt.errors import one_line
from slurmopt.runs import options
from slurmopt.runs.status.query import Status
from slurmopt.runs.status.state import age
from slurmopt.runs.status.view import whose


def parser() -> argparse.ArgumentParser:
    """The options of `slurmopt list`."""
    made = options.parser("list", "All runs and sweeps, newest first.")
    options.add_json(made)
    return made


def row(status: Status) -> list[str]:
    """A run's line."""
    known = (age(status.journal.created, status.now), whose(status.owner), status.journal.problem)
    launched = "  ".join(filter(None, known))
    return [one_line(status.folder.name), one_line(status.folder.id), status.state, launched]


def as_dict(status: Status) -> dict[str, object]:
    """What `--json` prints of a run."""
    folder = status.folder
    return {
        "name": folder.name,
        "id": folder.id,
        "folder": str(folder.path),
        "owner": status.owner,
        "state": status.state,
        "created": status.journal.created,
    }
