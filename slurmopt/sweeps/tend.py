"""`slurmopt tend` over sweeps: what had no room yet is submitted first, then all is as for runs."""

from __future__ import annotations

from pathlib import Path

from slurmopt.errors import RunError
from slurmopt.folder.sweep import SweepFolder
from slurmopt.runs import tend
from slurmopt.runs.find import all_sweeps
from slurmopt.runs.mine import refuse_foreign
from slurmopt.sweeps import more


def main(argv: list[str]) -> int:
    """The command; returns the exit status."""
    return tend.main(argv, _submit_what_waits)


def _submit_what_waits(folder: Path) -> None:
    for sweep in all_sweeps(folder):
        if sweep.more.exists() and _is_mine(sweep):  # others' sweeps are theirs to tend
            more.main([str(sweep.path)])


def _is_mine(sweep: SweepFolder) -> bool:
    try:
        refuse_foreign(sweep)
    except RunError:
        return False
    return True
