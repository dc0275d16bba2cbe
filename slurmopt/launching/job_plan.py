"""What the plans of runs and of sweeps share: backend, working directory, task, and the values of the script."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from slurmopt import __version__, command_output
from slurmopt.config.profiler import claims_cupti
from slurmopt.errors import ConfigError
from slurmopt.run_folder.layout import RunFolder

if TYPE_CHECKING:
    from slurmopt.config.schema import Settings
    from slurmopt.slurm.script.job import Job


def dependencies(typed: Settings, backend: str) -> tuple[str, ...]:
    """What sbatch is to wait for, for `launch.after`. Raises ConfigError."""
    if not typed.launch.after:
        return ()
    if backend == "local":
        raise ConfigError("only Slurm can wait for another job; launch it once that has finished", "launch.after")
    from slurmopt.sweeps.submit.dependencies import dependency

    return tuple(dependency(typed.launch, Path.cwd()))


def chosen_backend(typed: Settings) -> str:
    """The name of the backend, `auto` decided. ConfigError where it cannot run this config."""
    from slurmopt.backends import choose

    backend = choose(typed.launch.backend)
    if backend == "local" and typed.environment.container.image and typed.environment.container.runtime == "pyxis":
        raise ConfigError("pyxis is a part of Slurm; valid here: apptainer", "environment.container.runtime")
    if backend == "submitit" and typed.task._target_ is not None and claims_cupti(typed.task.profiler):
        message = f"{typed.task.profiler} cannot start what submitit starts; valid: py-spy, or launch.backend=sbatch"
        raise ConfigError(message, "task.profiler")
    return backend


def job_for(typed: Settings, run: RunFolder, name: str, source: Path, backend: str, overrides: list[str]) -> Job:
    """What the script is made from; `source` is the working directory, or what a snapshot is taken of."""
    from slurmopt.config.task_command.startable import with_per
    from slurmopt.slurm.script.job import Job

    return Job(
        name=name,
        folder=run,
        settings=with_per(typed, source),
        workdir=run.code if typed.environment.snapshot != "off" else source,
        python=sys.executable,
        version=__version__,
        made_from=" ".join(word for word in overrides if not word.lstrip("+~").startswith("launch.")),
        local=backend == "local",
    )


def workdir(typed: Settings, home: Path) -> Path:
    """Where the job is to run, as the launch sees it; `home` is where that was typed."""
    folder = home / Path(typed.environment.workdir or "").expanduser()
    try:
        if folder.is_dir():
            return folder
    except OSError as error:  # too long, or below a folder that is closed
        raise ConfigError(f"{str(folder)!r}: {(error.strerror or '').lower()}", "environment.workdir") from error
    raise ConfigError(f"{str(folder)!r} is not a folder", "environment.workdir")


def checked_task(typed: Settings, source: Path) -> Settings:
    """`typed` with `task.per` decided. ConfigError where there is nothing to run, or it is not there."""
    from slurmopt.config.checkpoint import check_packages
    from slurmopt.config.profile import check_ranks
    from slurmopt.config.stage_check import check_per_job, check_sources, check_stage_packages
    from slurmopt.config.task_command.startable import check_command, check_python, check_task, launcher, with_per
    from slurmopt.config.task_command.target import check_target

    check_task(typed.task)
    if typed.launch.check:
        for line in check_sources(typed):
            command_output.warn(line)
        check_python(typed, source)
    if typed.task._target_ is not None:
        check_target(typed.task._target_, source)
        check_ranks(typed.profile, typed.resources.most_nodes * typed.resources.ranks_per_node)
        environment = typed.environment
        if not (typed.task.python or environment.container.image or environment.modules or environment.setup):
            check_packages(typed.checkpoint)  # the job has this very Python
            check_stage_packages(typed)
        return typed
    if typed.launch.check:
        check_command(typed, source)
    decided = with_per(typed, source)
    check_per_job(decided)
    if typed.task.per == "auto" and (starter := launcher(typed, source)) is not None:
        what = f"{starter.name} in {starter.script}" if starter.script else starter.name
        print(f"slurmopt: task.per={starter.per}: {what} starts the ranks", file=sys.stderr)
    return decided
