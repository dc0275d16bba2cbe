"""Prepares a point of a sweep in one of its ranks: makes its config, and reads from it what to run.

python -m slurmopt.job.worker.point FOLDER: makes it beforehand, for a rank whose Python may lack what that needs.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, MutableMapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from slurmopt.errors import JobError, SlurmoptError
from slurmopt.job.rank_args import RankArgs
from slurmopt.run_folder.access.files import read_json, replace_json
from slurmopt.run_folder.access.open_folders import held
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.private import hold_run
from slurmopt.run_folder.sweep_layout import point_number, sweep_of
from slurmopt.run_folder.variables import Unset, fill

_PATIENCE = 120.0
"""Seconds in which rank 0 must have made the config; it needs one."""


def of_point(call: RankArgs, rank: int) -> RankArgs:
    """The arguments with the point's own task, its config's variables being set; unchanged if the run is not a point.

    Rank 0 makes the point's config, and the others wait for it. Raises JobError, ConfigError.
    """
    number = point_number(call.folder)
    if number is None:
        return call
    config = read_json(call.folder.task)  # made beforehand
    if config is None and rank == 0:
        make(call.folder, number)
    elif config is None:
        _await(call.folder.config)
    if config is not None:
        set_variables(config, os.environ)
        return with_task(call, config)
    config = read(call.folder)
    set_variables(config, os.environ)
    return replace(with_task(call, config), config=config)


def make(folder: RunFolder, number: int) -> None:
    """Makes the point's config, unless an earlier attempt did, and notes its array task."""
    sweep = sweep_of(folder)
    if sweep is None:
        return
    from slurmopt.grid import points_file, submissions
    from slurmopt.grid.point_folder import make_point

    points = points_file.load(sweep.points_file)
    if points.kind == "search":  # the parent has made it; a Python of its own asks the study by itself
        from slurmopt.job.worker.trial_judge import join

        join(sweep, number)
        return
    if folder.records is not None:  # the same
        return
    array, task = os.environ.get("SLURM_ARRAY_JOB_ID"), os.environ.get("SLURM_ARRAY_TASK_ID")
    tokens = {submission.job: submission.token for submission in submissions.read(sweep.sweep_file)}
    make_point(sweep, points, number, f"{array}_{task}", tokens.get(array))


def main(argv: list[str]) -> int:
    """Makes the point's config, and writes as JSON what a rank has to know of it."""
    folder = RunFolder(Path(argv[0]).absolute())
    hold_run(folder)
    number = point_number(folder)
    if number is None:
        print(f"slurmopt: {folder.path} is not a point of a sweep", file=sys.stderr)
        return 2
    try:
        make(folder, number)
        config = read(folder)
        variables = (config.get("environment") or {}).get("variables")
        replace_json(folder.task, {"task": config.get("task"), "environment": {"variables": variables}})
    except (SlurmoptError, OSError) as error:
        print(f"slurmopt: point {number} cannot be made: {error}", file=sys.stderr)
        return 1
    print("made", flush=True)
    return 0


def _await(path: Path) -> None:
    deadline = time.monotonic() + _PATIENCE
    while not held(path).exists():
        if time.monotonic() > deadline:
            raise JobError(f"rank 0 has not made {path} within {_PATIENCE:g} s")
        time.sleep(0.05)


def read(folder: RunFolder) -> dict[str, Any]:
    """The point's config as it is stored; what reads the environment is not filled in."""
    from slurmopt.config.composition.stored_yaml import load

    config = load(folder.config, mine=True)
    if not isinstance(config, dict):
        raise JobError(f"{folder.config} is not a config")
    return config


def with_task(call: RankArgs, config: Mapping[str, Any]) -> RankArgs:
    """The arguments with the function or command of a point's config."""
    task = config.get("task") or {}
    command = task.get("command")
    if command is None:
        return replace(call, function=task.get("_target_"), command=None)
    return replace(call, function=None, command=[_word(word) for word in command])


def _word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def set_variables(config: Mapping[str, Any], environ: MutableMapping[str, str]) -> None:
    """Sets the point's `environment.variables`; the script has set those of the first point. Raises JobError."""
    variables = (config.get("environment") or {}).get("variables") or {}
    for name, value in variables.items():
        if value is None:
            continue
        try:
            environ[str(name)] = fill(_word(value), environ)
        except Unset as error:
            raise JobError(f"environment.variables.{name}: {value!r} needs {error}, which this rank lacks") from error


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
