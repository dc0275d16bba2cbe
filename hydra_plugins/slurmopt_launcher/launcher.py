"""`hydra/launcher=slurmopt`. Hydra imports this at the start of every application: the work is in `_launch`."""

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
        """`options` are `hydra.launcher.*`, which is read again where `oc.env` is still to be seen."""

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Keeps what Hydra gives. Raises a CompactHydraException where the sweeper needs what would not come back."""
        from hydra_plugins.slurmopt_launcher._launch import check_sweeper

        self.hydra_context, self.task_function, self.config = hydra_context, task_function, config
        check_sweeper(config)

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Submits the jobs and, unless `hydra.launcher.wait=false`, waits for them."""
        from hydra_plugins.slurmopt_launcher._launch import Multirun, launch

        jobs = [list(words) for words in job_overrides]
        multirun = Multirun(self.config, self.hydra_context, self.task_function, jobs, initial_job_idx)
        return launch(multirun)
