"""The file of a sweep that names the points which must not start."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from slurmopt.errors import RunError
from slurmopt.grid.point_ranges import Ranges
from slurmopt.grid.submissions import cancelled
from slurmopt.run_folder.access.files import replace_text
from slurmopt.run_folder.access.temporary import clear
from slurmopt.run_folder.sweep_layout import SweepFolder
from slurmopt.runs.submit.lock_file import claimed

_TIMEOUT = 10.0  # seconds


def add(sweep: SweepFolder, points: Ranges) -> None:
    """These points must not start. Several may change it at the same moment; RunError where one of them takes long."""
    with _claimed(sweep):
        replace_text(sweep.cancelled, f"{cancelled(sweep).union(points)}\n")


def remove(sweep: SweepFolder, points: Ranges) -> None:
    """These points may start again; RunError as `add`."""
    with _claimed(sweep):
        replace_text(sweep.cancelled, f"{cancelled(sweep).difference(points)}\n")


@contextlib.contextmanager
def _claimed(sweep: SweepFolder) -> Iterator[None]:
    # Not the sweep's lock, which a submission to a slow Slurm holds for long.
    with claimed(sweep.path / ".cancelling", _TIMEOUT) as is_ours:
        if not is_ours:
            raise RunError(f"another cancel of {sweep.path} is under way")
        clear(sweep.path)
        yield
