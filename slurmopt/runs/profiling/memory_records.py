"""Reads the records of memory in a run's captures."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slurmopt.errors import RunError, one_line
from slurmopt.run_folder.access.files import read_json
from slurmopt.run_folder.access.open_folders import held
from slurmopt.run_folder.captures import MEMORY
from slurmopt.run_folder.json_values import number, text
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.traced_ranks import is_number
from slurmopt.runs import options

_FILE = re.compile(r"rank-(\d{1,9})\.memory\.json")


@dataclass(frozen=True)
class Records:
    """Of one capture."""

    name: str
    folder: Path
    ranks: dict[int, dict[str, Any]]
    reason: str | None
    requested_at: float
    step_times: dict[int, float]


def records(run: RunFolder, name: str | None = None) -> Records:
    """The newest records of a run, or those of the capture `name`. Raises RunError."""
    label = one_line(f"{run.name}/{run.id}")
    try:
        names = os.listdir(held(run.traces))
    except OSError:
        names = []
    found = [one for each in names if (one := _read(run, each)) is not None and one.ranks]
    if not found:
        raise RunError(
            f"profile memory: {label} has no record of its memory; while it runs, slurmopt profile memory "
            f"{options.run_arg(run, label)} makes one"
        )
    wanted = [one for one in found if name in (None, one.name)]
    if not wanted:
        valid = ", ".join(sorted(one.name for one in found))
        raise RunError(f"profile memory: {label} has no record {name!r}; there is: {one_line(valid)}")
    return max(wanted, key=lambda one: one.requested_at)


def _read(run: RunFolder, name: str) -> Records | None:
    folder = run.capture(name)
    try:
        told = read_json(folder / "capture.json") or {}
        names = os.listdir(held(folder)) if told.get("kind") == MEMORY else []
    except OSError:  # no capture, or one that somebody removes
        return None
    if not names:
        return None
    files = [match for each in names if (match := _FILE.fullmatch(each))]
    ranks = {int(match[1]): read_json(folder / match[0]) for match in files}
    times = told.get("step_times")
    return Records(
        name,
        folder,
        {rank: record for rank, record in sorted(ranks.items()) if record is not None},
        text(told.get("reason")),
        number(told.get("requested_at")) or 0.0,
        {
            int(rank): value
            for rank, each in (times if isinstance(times, dict) else {}).items()
            if is_number(str(rank)) and (value := number(each)) is not None
        },
    )
