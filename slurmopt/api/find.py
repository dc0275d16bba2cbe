"""Comes back to a run or a sweep, in another session of Python too."""

from __future__ import annotations

import os

from slurmopt.api.plain_errors import plain_errors
from slurmopt.api.run import Run, named
from slurmopt.api.sweep import Sweep
from slurmopt.run_folder.layout import RunFolder


@plain_errors
def find(name: str | None = None, folder: str | os.PathLike[str] | None = None) -> Run | Sweep:
    """The run or sweep that `name` names, as for the commands: a name (its latest run), NAME/ID, an ID or the start of
    one, a folder, a Slurm job ID, SWEEP/17 for a point, SWEEP/3-9 for some; None: the latest.

    `folder`: that of your runs, by default $SLURMOPT_FOLDER or `runs` in the current folder. Raises RunError, which
    says what would be valid.
    """
    found = named(name, folder)
    if isinstance(found, RunFolder) or found.point is not None:
        return Run(found)
    return Sweep(found.sweep, found.points)
