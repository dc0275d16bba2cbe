"""The runs and sweeps that an argument can name: names first, then IDs and points."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from slurmopt.commands.complete.answer import FOLDERS, Answer, Candidate
from slurmopt.run_folder import events
from slurmopt.run_folder.access.files import read_start
from slurmopt.run_folder.json_values import as_int
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.sweep_layout import SweepFolder, is_sweep
from slurmopt.runs.all_runs import all_folders

_MOST_POINTS = 100
_FIRST_LINE = 4096


def answer(typed: list[str], current: str, sweeps_only: bool = False) -> Answer:
    """Names; IDs once a name stands, or where the word begins one; points of a sweep; folders where a path begins."""
    if current.startswith(("/", "./", "../")):
        return Answer(files=FOLDERS)
    runs = sorted(all_folders(_folder(typed)), key=lambda run: run.id, reverse=True)
    if sweeps_only:
        runs = [run for run in runs if is_sweep(run.path)]
    if "/" in current:
        return Answer([*_labels(runs, current), *(() if sweeps_only else _points(runs, current))])
    return Answer([*_names(runs), *(_ids(runs, current) if current else ())])


def _folder(typed: list[str]) -> Path:
    for before, word in zip(["", *typed], typed, strict=False):
        if before == "--folder" or word.startswith("--folder="):
            return Path(word.removeprefix("--folder="))
    return Path(os.environ.get("SLURMOPT_FOLDER") or "runs")


def _names(runs: list[RunFolder]) -> Iterator[Candidate]:
    by_name: dict[str, list[RunFolder]] = defaultdict(list)
    for run in runs:
        by_name[run.name].append(run)
    for name, of_name in by_name.items():
        what = "sweep" if is_sweep(of_name[0].path) else "run"
        yield Candidate(name, f"{what} {of_name[0].id}" + (f", and {len(of_name) - 1} more" if of_name[1:] else ""))


def _ids(runs: list[RunFolder], current: str) -> Iterator[Candidate]:
    return (Candidate(run.id, _what(run)) for run in runs if run.id.startswith(current))


def _labels(runs: list[RunFolder], current: str) -> Iterator[Candidate]:
    labels = ((f"{run.name}/{run.id}", run) for run in runs)
    return (Candidate(label, _what(run)) for label, run in labels if label.startswith(current))


def _what(run: RunFolder) -> str:
    return f"{'sweep' if is_sweep(run.path) else 'run'} of {run.name}"


def _points(runs: list[RunFolder], current: str) -> Iterator[Candidate]:
    """The points SWEEP/N of a sweep that is named by name and ID, or by one of them and the beginning of a number."""
    head, _, number = current.rpartition("/")
    if not (number.isdecimal() or (not number and "/" in head)):
        return
    sweep = next((run for run in runs if head in (f"{run.name}/{run.id}", run.id, run.name)), None)
    if sweep is None or not is_sweep(sweep.path):
        return
    numbers = [str(point) for point in range(_count(SweepFolder(sweep.path))) if str(point).startswith(number)]
    yield from (Candidate(f"{head}/{point}", f"point {point}") for point in numbers[:_MOST_POINTS])


def _count(sweep: SweepFolder) -> int:
    try:
        first = events.parse(read_start(sweep.events, _FIRST_LINE).splitlines())
        return next((as_int(event.get("points")) or 0 for event in first if event["event"] == "created"), 0)
    except OSError:
        return 0
