"""The name and the folder of a new run, from its config."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from slurmopt import command_output
from slurmopt.errors import ConfigError, one_line
from slurmopt.run_folder.layout import RunFolder, folder_name

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from slurmopt.config.launch import Launch


def new_run_folder(name: str, first: Launch) -> RunFolder:
    """The folder that the run is to have; nothing is made. ConfigError where Slurm could not write its log there."""
    folder = Path(first.folder).expanduser().absolute()
    if not str(folder).isprintable() or "\\" in str(folder):
        # Slurm could not be told where the log belongs: a directive is one line, a backslash ends its file patterns.
        raise ConfigError(f"{str(folder)!r} has control characters or backslashes", "launch.folder")
    run_id = first.id or f"{time.strftime('%Y%m%d-%H%M%S')}-{os.urandom(2).hex()}"
    return RunFolder(folder / folder_name(name) / run_id)


def tell_another_name(first: Launch, run: RunFolder) -> None:
    """Says so where `launch.name` cannot be a folder's."""
    if first.name and first.name != run.name:
        command_output.warn(
            f"launch.name: {one_line(first.name)!r} cannot be a folder's name (valid: up to 100 letters, "
            f"digits, '.', '_' and '-'): the run is named {run.name}"
        )


def run_name(config: DictConfig, first: Launch) -> str:
    """`launch.name`, else the experiment's, else the task's: that of its function, or of the module of a `main`."""
    if first.name:
        return first.name
    experiment = config.hydra.runtime.choices.get("experiment")
    if experiment:
        return str(experiment).rpartition("/")[2]
    *modules, function = _target(config).rpartition("/")[2].split(".")
    return modules[-1] if function == "main" and modules and modules[-1] != "__main__" else function


def _target(config: DictConfig) -> str:
    from omegaconf.errors import OmegaConfBaseException

    from slurmopt.config.composition.error_messages import translate

    try:
        return str(config.task.get("_target_") or "run")
    except OmegaConfBaseException as error:
        raise translate(error) from error
