"""One point of a multirun, in its job: composed by Hydra itself and run as Hydra's own launcher would run it.

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
    """Runs the point as one Hydra job; returns the function's value where JSON can hold it, or raises what it raised.

    `config` is the point's as slurmopt keeps it; the application's own is composed here.
    """
    here = current_run()
    point = point_number(here.folder)
    if point is None:
        raise JobError(f"{here.folder.path} is no point of a sweep: this function is for hydra/launcher=slurmopt")
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
    """Whether the point's journal can hold it too, for `slurmopt results`."""
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        return False
    return True


def prepare_points(points: Iterable[int]) -> None:
    """Does in a parent what the points that it forks would each have to do: composes their config files."""
    context = contexts.load(_context_file())
    _copy_variables(context.config)
    _bases().prepare(context.jobs[point] for point in points)


run.makes_process_group = True  # type: ignore[attr-defined]  # an application that wants one knows nothing of ours
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
        # A snapshot is where the code is; what is relative to the launch stays where that was typed.
        config.hydra.runtime.cwd = context.config.hydra.runtime.cwd
        if os.getcwd() != context.cwd:
            config.hydra.sweep.dir = os.path.join(context.cwd, config.hydra.sweep.dir)
    return config


@functools.cache
def _bases() -> BaseConfigs:
    context = contexts.load(_context_file())
    return BaseConfigs(context.hydra.config_loader, context.config)


def _copy_variables(config: DictConfig) -> None:
    """`hydra.job.env_copy` means the environment of the launch, which the job need not have."""
    os.environ.update({name: str(config.hydra.job.env_set[name]) for name in config.hydra.job.env_copy})


def _job_id(number: int) -> str:
    """Slurm's id of the array task; with the job's number where points share one."""
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
    """Loads what all points share when this module is imported, so that a parent that forks them does it for all."""
    if not os.environ.get(_SWEEP) or not os.path.exists(_context_file()):
        return
    contexts.load(_context_file())


_prepare()
