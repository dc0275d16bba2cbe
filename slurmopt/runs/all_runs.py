"""Lists the runs and sweeps in a folder."""

from __future__ import annotations

import os
import re
from pathlib import Path

from slurmopt.errors import RunError, RunNotFound, one_line, why_failed
from slurmopt.run_folder.access.files import read_start
from slurmopt.run_folder.layout import RunFolder, is_run
from slurmopt.run_folder.sweep_layout import SweepFolder, is_sweep
from slurmopt.runs.ownership import owner_of
from slurmopt.runs.unreadable_folders import refuse_unreadable

_FIRST_LINE = 4096


def all_runs(folder: Path) -> list[RunFolder]:
    """Every run in `folder`, unordered. Sweeps, other folders, and folders that this user may not read are left out."""
    return [run for run in all_folders(folder) if not is_sweep(run.path)]


def all_sweeps(folder: Path) -> list[SweepFolder]:
    """Every sweep in `folder`, unordered."""
    return [SweepFolder(run.path) for run in all_folders(folder) if is_sweep(run.path)]


def all_folders(folder: Path) -> list[RunFolder]:
    """The folders of runs and sweeps. RunError where `folder` cannot be read."""
    base = folder.absolute()
    try:
        names = _folders(base)
    except OSError as error:
        refuse_unreadable(None, [base], base)
        raise RunError(f"cannot read {shown_path(folder)}: {why_failed(error)}") from error
    return [run for name in names for run in runs_of_name(base / name)]


def runs_of_name(name_folder: Path) -> list[RunFolder]:
    """The folders of runs and sweeps in runs/NAME."""
    try:
        paths = [name_folder / name for name in _folders(name_folder)]
    except OSError:
        return []
    return [RunFolder(path) for path in paths if is_run_folder(path)]


def is_run_folder(path: Path) -> bool:
    """Whether `path` is a run's or a sweep's folder; False where it cannot be read."""
    try:
        return is_run(path)
    except OSError:
        return False


def _folders(path: Path) -> list[str]:
    try:
        with os.scandir(path) as entries:
            return [entry.name for entry in entries if not entry.name.startswith(".") and _is_folder(entry)]
    except (FileNotFoundError, NotADirectoryError):
        return []


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # such as a link to itself
        return False


def latest(runs: list[RunFolder], otherwise: str) -> RunFolder:
    """The newest of this user's own runs, else of all. RunNotFound(`otherwise`) where there is none.

    Where others may write to the folder, a newer run of theirs must not be taken for one's own.
    """
    if not runs:
        raise RunNotFound(
            f"{otherwise}; start one with `slurmopt launch`, or name the folder of your runs with --folder"
        )
    return max([run for run in runs if owner_of(run) is None] or runs, key=created)


def created(run: RunFolder) -> tuple[float, str]:
    """The sort key of runs: the time of the launch, then the ID."""
    try:
        first = read_start(run.events, _FIRST_LINE).split(b"\n", 1)[0]
    except OSError:  # an unreadable run counts as the oldest; its status says why
        return 0.0, run.id
    match = re.search(rb'"time": *(\d{1,15}(?:\.\d{1,9})?)[,}]', first)
    return float(match[1]) if match else 0.0, run.id


def shown_path(folder: Path) -> str:
    """The path for messages: quoted, relative to the working directory where it is below that."""
    return repr(one_line(os.path.relpath(folder) if folder.is_relative_to(Path.cwd()) else str(folder)))
