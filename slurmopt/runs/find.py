"""Which run is meant by RUN: a name, NAME/ID, an ID or the start of one, a folder, a Slurm job id, or nothing."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from slurmopt.config.check import did_you_mean
from slurmopt.errors import RunError, one_line
from slurmopt.folder.layout import RunFolder, folder_name, is_run
from slurmopt.runs import journal

_JOB = re.compile(r"\d+(_\d+)?|local-\d+")
_FIRST_LINE = 4096


def find(word: str | None, folder: Path) -> RunFolder:
    """The run that `word` means among those in `folder`. Raises RunError saying what would be valid.

    In this order: nothing is the latest run; NAME/ID; a name is its latest run; a folder; an ID; a job id; the
    start of an ID.
    """
    if word is None:
        return latest(all_runs(folder), f"no runs in {_shown(folder)}")
    if not word or "\0" in word:
        raise RunError(f"{word!r} names no run; valid: a name, NAME/ID, an ID, a folder, a job id")
    return _by_path(word, folder) or _by_id(word, folder) or _by_job(word, folder) or _by_prefix(word, folder)


def all_runs(folder: Path) -> list[RunFolder]:
    """Every run in `folder`, in no order. Other folders that lie there, and what others keep private, are left out."""
    base = folder.absolute()
    try:
        names = _folders(base)
    except OSError as error:
        raise RunError(f"cannot read {_shown(folder)}: {error.strerror}") from error
    return [run for name in names for run in _runs_of(base / name)]


def _runs_of(name_folder: Path) -> list[RunFolder]:
    try:
        paths = [name_folder / name for name in _folders(name_folder)]
    except OSError:
        return []
    return [RunFolder(path) for path in paths if _is_run(path)]


def _is_run(path: Path) -> bool:
    try:
        return is_run(path)
    except OSError:
        return False


def _folders(path: Path) -> list[str]:
    try:
        with os.scandir(path) as entries:
            return [entry.name for entry in entries if entry.is_dir() and not entry.name.startswith(".")]
    except (FileNotFoundError, NotADirectoryError):
        return []


def latest(runs: list[RunFolder], otherwise: str) -> RunFolder:
    """The run made last; RunError(`otherwise`) where there is none."""
    if not runs:
        raise RunError(f"{otherwise}; start one with `slurmopt launch`, or name the folder of your runs with --folder")
    return max(runs, key=created)


def created(run: RunFolder) -> tuple[float, str]:
    """What runs are ordered by: when the launch made it, then its ID."""
    try:
        with open(run.events, "rb") as file:
            first = file.read(_FIRST_LINE).split(b"\n", 1)[0]
    except OSError:  # not readable: it counts as the oldest, and its status says why
        return 0.0, run.id
    match = re.search(rb'"time": *(\d{1,15}(?:\.\d{1,9})?)[,}]', first)
    return float(match[1]) if match else 0.0, run.id


def _by_path(word: str, folder: Path) -> RunFolder | None:
    for path in _paths(word, folder):
        if _is_run(path):
            return RunFolder(Path(os.path.abspath(path)))
        if runs := _runs_of(path):
            return latest(runs, "")
    return _by_typed_name(word, folder)


def _by_typed_name(word: str, folder: Path) -> RunFolder | None:
    """The latest run whose name was `word` before it became a folder's."""
    runs = [run for run in _runs_of(folder.absolute() / folder_name(word)) if journal.read(run).name == word]
    return latest(runs, "") if runs else None


def _paths(word: str, folder: Path) -> Iterator[Path]:
    """A name, or NAME/ID, then any path."""
    if not word.startswith(("/", ".")):
        yield folder.absolute() / word.strip("/")
    yield Path(word).absolute()


def _by_id(word: str, folder: Path) -> RunFolder | None:
    same = [run for run in all_runs(folder) if run.id == word]
    if len(same) > 1:
        raise _ambiguous(word, same)
    return same[0] if same else None


def _by_job(word: str, folder: Path) -> RunFolder | None:
    if not _JOB.fullmatch(word):
        return None
    # Slurm's counter starts again one day, and process ids do so daily: the latest run is meant.
    for run in sorted(all_runs(folder), key=created, reverse=True):
        jobs = journal.read(run).jobs
        if word in jobs or any(job.startswith(f"{word}_") for job in jobs):
            return run
    return None


def _by_prefix(word: str, folder: Path) -> RunFolder:
    runs = all_runs(folder)
    name, _, start = word.rpartition("/")
    close = [run for run in runs if run.id.startswith(start or word) and name in ("", run.name)]
    if len(close) == 1:
        return close[0]
    if close:
        raise _ambiguous(word, close)
    if not runs:
        return latest(runs, f"no runs in {_shown(folder)}")
    valid = sorted({run.name for run in runs}) + [run.id for run in runs] + [f"{run.name}/{run.id}" for run in runs]
    raise RunError(f"no run {word!r} in {_shown(folder)}{did_you_mean(word, valid)}; `slurmopt list` shows all")


def _ambiguous(word: str, runs: list[RunFolder]) -> RunError:
    labels = [f"{run.name}/{run.id}" for run in sorted(runs, key=created, reverse=True)]
    more = f" and {len(labels) - 3} more" if len(labels) > 3 else ""
    return RunError(f"{word!r} can be {', '.join(labels[:3])}{more}; write more of it")


def _shown(folder: Path) -> str:
    return repr(one_line(os.path.relpath(folder) if folder.is_relative_to(Path.cwd()) else str(folder)))
