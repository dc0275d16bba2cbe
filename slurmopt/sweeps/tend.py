"""`slurmopt tend` over sweeps: what had no room yet is submitted first, then all is as for runs."""

from __future__ import annotations

import os
from pathlib import Path

from slurmopt.runs import tend
from slurmopt.runs.find import all_sweeps
from slurmopt.sweeps import more


def main(argv: list[str]) -> int:
    """The command; returns the exit status."""
    return tend.main(argv, _submit_what_waits)


def _submit_what_waits(folder: Path) -> None:
    for sweep in all_sweeps(folder):
        # Its script is submitted as it lies there: whoever could write it would run it as you.
        if sweep.more.exists() and sweep.script.stat().st_uid == os.geteuid():
            more.main([str(sweep.path)])
