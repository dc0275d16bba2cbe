"""The file of a sweep that names the points which must not start."""

from __future__ import annotations

from collections.abc import Callable

from slurmopt.errors import RunError
from slurmopt.grid.point_ranges import Ranges
from slurmopt.grid.submissions import cancelled
from slurmopt.run_folder.files import replace_text
from slurmopt.run_folder.sweep_layout import SweepFolder
from slurmopt.run_folder.temporary import clear
from slurmopt.runs.submit.lock_file import claimed

_TIMEOUT = 10.0  # seconds


def change(sweep: SweepFolder, how: Callable[[Ranges], Ranges]) -> None:
    """Changes which points must not start. Several may at the same moment; RunError where one of them takes long."""
    # Not the sweep's lock, which a submission to a slow Slurm holds for long.
    with claimed(sweep.path / ".cancelling", _TIMEOUT) as mine:
        if not mine:
            raise RunError(f"another cancel of {sweep.path} is under way")
        clear(sweep.path)
        replace_text(sweep.cancelled, f"{how(cancelled(sweep))}\n")
