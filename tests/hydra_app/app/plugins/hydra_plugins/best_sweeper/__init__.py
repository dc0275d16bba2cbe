"""A third-party sweeper that needs what its jobs return: the second batch depends on the values of the first."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.plugins import Plugins
from hydra.plugins.sweeper import Sweeper


@dataclass
class Conf:
    _target_: str = "hydra_plugins.best_sweeper.BestSweeper"


ConfigStore.instance().store(group="hydra/sweeper", name="best", node=Conf)


class BestSweeper(Sweeper):
    def setup(self, **given: Any) -> None:
        self.launcher = Plugins.instance().instantiate_launcher(**given)

    def sweep(self, arguments: list[str]) -> Any:
        first = self.launcher.launch([[*arguments, f"lr={lr}"] for lr in (0.5, 0.25)], initial_job_idx=0)
        best = min(job.return_value.value for job in first)
        second = self.launcher.launch([[*arguments, f"lr={best / 2}"]], initial_job_idx=len(first))
        told = [self._told(job) for job in (*first, *second)]
        Path("best.json").write_text(json.dumps(told))

    def _told(self, job: Any) -> dict[str, Any]:
        return {
            "value": job.return_value.value,
            "own class": isinstance(job.return_value, sys.modules["__main__"].Score),
            "status": job.status.name,
            "overrides": job.overrides,
            "num": job.hydra_cfg.hydra.job.num,
            "lr": job.cfg.lr,
            "task": job.task_name,
            "folder": Path(job.working_dir).name,
        }
