"""Runs one point of a multirun in its job: Hydra composes the config and runs the job like its own launcher.

`run` is the `task._target_` of such a sweep.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slurmopt.errors import JobError, Requeue
from slurmopt.hydra_app import context as contexts
from slurmopt.hydra_app import returns
from slurmopt.hydra_app.composed_configs import BaseConfigs
from slurmopt.hydra_app.context import Context
from slurmopt.job.worker.current_run import current_run
from slurmopt.run_folder.sweep_layout import point_number

if TYPE_CHECKING:
    from hydra.core.utils import JobReturn
    from omegaconf import DictConfig

_SWEEP = "SLURMOPT_SWEEP"


def run(config: Any) -> Any:
    """Runs the point as one Hydra job. Returns the value of the function if JSON can represent it, else None; raises
    the exception of the function.

    `config`: slurmopt's config of the point. The config of the application is composed here.
    """
    here = current_run()
    point = point_number(here.folder)
    if point is None:
        raise JobError(f"{here.folder.path} is not a point of a sweep: this function is for hydra/launcher=slurmopt")
    context = contexts.load(_context_file())
    job = _run(context, _compose(context, context.first + point, context.jobs[point]))
    value = job._return_value
    if isinstance(value, Requeue):
        raise value
    if here.rank.rank == 0:
        returns.write(here.folder, here.attempt, job)
    value = job.return_value
    return value if _is_json(value) else None


def _is_json(value: Any) -> bool:
    """Whether the value can be written to the journal of the point, for `slurmopt results`."""
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        return False
    return True


def prepare_points(points: Iterable[int]) -> None:
    """Composes the config files of the points in the parent process, once before it forks them."""
    context = contexts.load(_context_file())
    _copy_variables(context.config)
    _bases().prepare(context.jobs[point] for point in points)


run.makes_process_group = True  # type: ignore[attr-defined]  # a Hydra application creates its own
run.prepare_points = prepare_points  # type: ignore[attr-defined]


def _context_file() -> Path:
    sweep = os.environ.get(_SWEEP)
    if not sweep:
        raise JobError(f"{_SWEEP} is not set: this function is for the jobs of hydra/launcher=slurmopt")
    return Path(sweep) / contexts.FILE


def _compose(context: Context, number: int, overrides: list[str]) -> DictConfig:
    from omegaconf import open_dict, read_write

    _copy_variables(context.config)
    config = _bases().config(overrides)
    with read_write(config.hydra), open_dict(config.hydra):
        config.hydra.job.num = number
        config.hydra.job.id = _job_id(number)
        # A snapshot contains only the code; relative paths stay relative to the current directory of the launch.
        config.hydra.runtime.cwd = context.config.hydra.runtime.cwd
        if os.getcwd() != context.cwd:
            config.hydra.sweep.dir = os.path.join(context.cwd, config.hydra.sweep.dir)
    return config


@functools.cache
def _bases() -> BaseConfigs:
    context = contexts.load(_context_file())
    return BaseConfigs(context.hydra.config_loader, context.config)


def _copy_variables(config: DictConfig) -> None:
    """Sets the variables of `hydra.job.env_copy` to their values at launch; the job may have other ones."""
    os.environ.update({name: str(config.hydra.job.env_set[name]) for name in config.hydra.job.env_copy})


def _job_id(number: int) -> str:
    """Returns Slurm's ID of the array task, followed by the job number if several points share the task."""
    array, task = os.environ.get("SLURM_ARRAY_JOB_ID"), os.environ.get("SLURM_ARRAY_TASK_ID")
    if array is None:
        return str(number)
    return f"{array}_{task}" if task == str(number) else f"{array}_{task}.{number}"


def _run(context: Context, config: DictConfig) -> JobReturn:
    from hydra.core.utils import run_job

    return run_job(
        hydra_context=context.hydra,
        task_function=context.function,
        config=config,
        job_dir_key="hydra.sweep.dir",
        job_subdir_key="hydra.sweep.subdir",
    )


def _prepare() -> None:
    """Loads the context when this module is imported, so that a parent process loads it once for all points."""
    if not os.environ.get(_SWEEP) or not os.path.exists(_context_file()):
        return
    contexts.load(_context_file())


_prepare()
