"""`slurmopt tend` over sweeps: what had no room yet is submitted first, then all is as for runs."""

from __future__ import annotations

import os
from pathlib import Path

from slurmopt.folder.sweep import SweepFolder
from slurmopt.runs import tend
from slurmopt.runs.find import all_sweeps
from slurmopt.sweeps import more


def main(argv: list[str]) -> int:
    """The command; returns the exit status."""
    return tend.main(argv, _submit_what_waits)


def _submit_what_waits(folder: Path) -> None:
    for sweep in all_sweeps(folder):
        if sweep.more.exists() and _is_mine(sweep):
            more.main([str(sweep.path)])


def _is_mine(sweep: SweepFolder) -> bool:
    """Its script is submitted as it lies there: whoever could write it would run it as you."""
    try:
        return all(
            path.stat().st_uid == os.geteuid() for path in (sweep.path, sweep.script, sweep.config, sweep.events)
        )
    except OSError:  # somebody else's, or half deleted
        return False
