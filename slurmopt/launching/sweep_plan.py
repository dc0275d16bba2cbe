"""Makes the plan of a sweep from overrides: describes its points; composes each choice of config groups once."""

from __future__ import annotations

import os
import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from slurmopt import command_output
from slurmopt.errors import ConfigError
from slurmopt.run_folder.layout import RunFolder
from slurmopt.sweeps.submit.plan import SweepPlan

if TYPE_CHECKING:
    from slurmopt.config.schema import Settings
    from slurmopt.grid.points import Points


from slurmopt.launching.failure_rate import with_known_rate
from slurmopt.launching.job_plan import checked_task, chosen_backend, dependencies, job_for, workdir
from slurmopt.launching.run_name import new_run_folder, run_name, tell_another_name
from slurmopt.launching.run_plan import plan


def plan_sweep(overrides: list[str], config_dir: str | None = None) -> SweepPlan:
    """`plan` for many runs: the points are described, each choice of config groups composed once."""
    from slurmopt.config.composition.settings import typed_group
    from slurmopt.sweeps.definition.describe import describe_sweep

    described = describe_sweep(overrides, config_dir)
    if (known := with_known_rate(overrides, described.settings)) is not None:
        return plan_sweep(known, config_dir)
    first = typed_group(described.config, "launch")
    if first.run is not None:
        raise ConfigError("is one run, and -m is for many; to go on with points: slurmopt retry", "launch.run")
    if described.settings.task.profiler is not None:
        raise ConfigError("profiles one run; leave out -m, or the profiler", "task.profiler")
    name = run_name(described.config, first)
    run = new_run_folder(name, first)
    tell_another_name(first, run)
    source = workdir(described.settings, Path.cwd())
    return sweep_plan(checked_task(described.settings, source), described.points, run, name, source, overrides)


def sweep_plan(
    typed: Settings, points: Points, run: RunFolder, name: str, source: Path, overrides: list[str]
) -> SweepPlan:
    """The plan for `points` that are described already. ConfigError where they cannot be run so."""
    from slurmopt.slurm.script.job import Array
    from slurmopt.sweeps.definition.search import check_search
    from slurmopt.sweeps.submit.plan import not_packable

    backend = chosen_backend(typed)
    if backend == "submitit":
        raise ConfigError("sweeps go to Slurm by sbatch, not by submitit; valid: sbatch, local", "launch.backend")
    if typed.sweep.packed and (why := not_packable(typed, backend)) is not None:
        raise ConfigError(why, "sweep.search" if typed.sweep.search else "sweep.per_task")
    check_search(typed, points.axes)
    _check_then(typed, backend)
    if typed.notify.to_json_arg():
        command_output.warn("notify is not for points of a sweep; a run after it may tell: sweep.then")
    if backend == "local":
        _tell_hidden_gpus(typed)
    array = Array(typed.sweep.packed, typed.sweep.side_by_side, typed.sweep.search is not None)
    job = replace(
        job_for(typed, run, name, source, backend, overrides), sweep=array, after=dependencies(typed, backend)
    )
    return SweepPlan(job, backend, points.config(0, run.path), overrides, source, points=points)


def _tell_hidden_gpus(typed: Settings) -> None:
    """A point on this machine sees the GPUs that it asks for, as on Slurm; a single run sees all."""
    from slurmopt.backends.array.machine import gpus

    if (count := len(gpus(os.environ))) and not typed.resources.gpus_per_node:
        command_output.warn(
            f"the points see none of this machine's GPUs ({count}); to give each one: resources.gpus_per_node=1"
        )


def _check_then(typed: Settings, backend: str) -> None:
    """What follows the sweep is composed now, so that a mistake in it shows before anything is submitted."""
    if typed.sweep.then is None:
        return
    try:
        how = "launch.backend=local" if backend == "local" else "launch.after_failure=true"
        follows = plan([*shlex.split(typed.sweep.then), how])
    except (ConfigError, ValueError) as error:
        raise ConfigError(str(error), "sweep.then") from error
    options = follows.job.settings.launch
    wrong = {
        "backend": (follows.backend == "local") != (backend == "local"),
        "dry_run": bool(options.dry_run),
        "wait": options.wait,
        "run": follows.existing,
    }
    for name, is_set in wrong.items():
        if is_set:
            raise ConfigError(f"launch.{name} is not for what follows a sweep; leave it out", "sweep.then")
