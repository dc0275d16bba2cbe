"""`hydra/launcher=slurmopt`. Hydra imports this module at the start of every application; `_launch` has the code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hydra.plugins.launcher import Launcher

if TYPE_CHECKING:
    from hydra.core.utils import JobReturn
    from hydra.types import HydraContext, TaskFunction
    from omegaconf import DictConfig


class SlurmoptLauncher(Launcher):
    """Runs the jobs of a multirun as the points of one slurmopt sweep."""

    def __init__(self, **options: Any) -> None:
        """`options`: `hydra.launcher.*`. They are not used: `launch` reads them from the config, where `oc.env` is not
        resolved."""

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Stores the arguments. Raises CompactHydraException if the sweeper needs the returned values and
        `hydra.launcher.wait` is false."""
        from hydra_plugins.slurmopt_launcher._launch import check_sweeper

        self.hydra_context, self.task_function, self.config = hydra_context, task_function, config
        check_sweeper(config)

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Submits the jobs and, unless `hydra.launcher.wait=false`, waits for them. Returns one JobReturn per job."""
        from hydra_plugins.slurmopt_launcher._launch import Multirun, launch

        jobs = [list(words) for words in job_overrides]
        multirun = Multirun(self.config, self.hydra_context, self.task_function, jobs, initial_job_idx)
        return launch(multirun)
