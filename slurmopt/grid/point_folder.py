"""Makes the folder of a point when the point is about to start."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

from slurmopt.errors import ConfigError
from slurmopt.grid.points import Points
from slurmopt.grid.records import Records
from slurmopt.grid.yaml_dump import dump
from slurmopt.run_folder import events
from slurmopt.run_folder.access.files import replace_text
from slurmopt.run_folder.access.open_folders import held
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.sweep_layout import SweepFolder

_TRIES = 5
"""Tries to make a link whose name another point takes and gives back at the same time."""


def make_point(
    sweep: SweepFolder,
    points: Points,
    point: int,
    job: str,
    token: str | None,
    values: dict[str, Any] | None = None,
    task: str | None = None,
    records: Records | None = None,
) -> RunFolder:
    """Makes the folder of `point`: config.yaml, the journal's first lines, and the link in by-name/.

    Existing files stay, also those of a process that was killed in the middle. `job` is the array task (A_a), `token`
    its submission's; `values` are those that a search chose. `task`: the array task, such as 0-3, that starts the point
    and keeps its records; `records` are those of all points. Raises ConfigError where the point has no config."""
    if points.kind == "search" and values is None:
        raise ConfigError(f"point {point} of a search needs the values that were chosen for it")
    run = sweep.point(point) if task is None else sweep.packed_point(point, task)
    _make_folders(sweep, run)
    if records is not None:
        records.inherit(point, run)
    if not held(run.config).exists():
        replace_text(run.config, dump(points.config(point, run.path, values)))
    _note(run, points, job, token, values)
    if (name := points.name(point, values)) is not None:
        _link(sweep, run, name)
    return run


def _make_folders(sweep: SweepFolder, run: RunFolder) -> None:
    """Makes the folders, private or readable by the group as the sweep's own folder is."""
    mode = held(sweep.path).stat().st_mode & 0o750
    for folder in (sweep.points, run.path, run.kept.parent, run.kept, run.logs, run.heartbeats):
        held(folder).mkdir(mode=mode, exist_ok=True)


def _note(run: RunFolder, points: Points, job: str, token: str | None, values: dict[str, Any] | None) -> None:
    journal = events.read(run.events)
    chosen_values = {} if values is None else {"values": values}  # of a search only this event has them
    if not any(event["event"] == "created" for event in journal):  # an array task's shell may have written before
        events.append(run.events, "created", name=run.name, id=run.id, cwd=points.cwd, **chosen_values)
    submitted = [event for event in journal if event["event"] == "submitted"]
    if not submitted or (submitted[-1].get("job"), submitted[-1].get("token")) != (job, token):
        backend = "local" if job.startswith("local-") else "sbatch"
        events.append(run.events, "submitted", token=token, backend=backend, job=job)


def unlink(sweep: SweepFolder, run: RunFolder, name: str | None) -> None:
    """Removes the link that `make_point` made, when the folder is removed."""
    to = os.path.join("..", sweep.points.name, run.path.name)
    for candidate in () if name is None else (name, f"{name}-{run.path.name}"):
        link = held(sweep.by_name) / candidate
        with contextlib.suppress(OSError):  # it is another point's, or none
            if os.readlink(link) == to:
                link.unlink()


def _link(sweep: SweepFolder, run: RunFolder, name: str) -> None:
    """Makes the link by-name/NAME → ../points/00017; where NAME belongs to another point, NAME-00017."""
    held(sweep.by_name).mkdir(mode=held(sweep.path).stat().st_mode & 0o750, exist_ok=True)
    to = os.path.join("..", sweep.points.name, run.path.name)
    for candidate in (name, f"{name}-{run.path.name}"):
        link = held(sweep.by_name) / candidate
        if _leads(link, to):
            return


def _leads(link: Path, to: str) -> bool:
    """Makes the link, unless it leads elsewhere; returns whether it leads to `to`. Another point may remove its own
    link at the same time."""
    for _ in range(_TRIES):
        try:
            link.symlink_to(to)
            return True
        except FileExistsError:
            with contextlib.suppress(FileNotFoundError):
                return not link.is_symlink() or os.readlink(link) == to
    return False
