"""`slurmopt tend` over sweeps: what had no room yet is submitted first, then all is as for runs."""

from __future__ import annotations

from pathlib import Path

from slurmopt.folder.sweep import SweepFolder
from slurmopt.runs import arrays, tend
from slurmopt.runs.find import all_sweeps
from slurmopt.runs.mine import is_mine
from slurmopt.sweeps import more


def main(argv: list[str]) -> int:
    """The command; returns the exit status."""
    return tend.main(argv, _submit_what_waits)


def _submit_what_waits(folder: Path) -> None:
    for sweep in all_sweeps(folder):
        # Others' sweeps are theirs to tend; and one of which nothing was ever submitted, its launch broken off, is not
        # to start by itself one day.
        if is_mine(sweep.run) and sweep.more.exists() and _was_submitted(sweep):
            more.main([str(sweep.path)])


def _was_submitted(sweep: SweepFolder) -> bool:
    try:
        return bool(arrays.known(sweep))
    except OSError:  # `tend` says so itself
        return False
