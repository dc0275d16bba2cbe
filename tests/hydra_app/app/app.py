"""An application that knows Hydra and nothing of slurmopt."""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import pickle
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hydra
from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from hydra.utils import to_absolute_path
from neighbour import twice
from omegaconf import MISSING, OmegaConf

log = logging.getLogger(__name__)
OmegaConf.register_new_resolver("plus", lambda one, other: one + other)


@dataclass
class Db:
    port: int = MISSING


@dataclass
class Config:
    db: Db = field(default_factory=Db)
    lr: float = 0.1
    seed: int = 0
    fail: str = "no"
    sum: int = 0
    note: Any = None


class OutOfIdeas(Exception):
    """Of __main__, with arguments of its own: pickled exceptions of this kind fail on arrival."""

    def __init__(self, what: str, why: str) -> None:
        super().__init__(f"{what}: {why}")


@dataclass
class Score:
    value: float


def in_pools(number: int) -> list[Score]:
    """From a forked process, and from one that imports the script again."""
    found = []
    for method in ("fork", "spawn"):
        with multiprocessing.get_context(method).Pool(1) as pool:
            found += pool.map(Score, [number])
    return found


ConfigStore.instance().store(name="schema", node=Config)


@hydra.main(config_path="conf", config_name="config", version_base=None)
def main(config: Config) -> Any:
    job = HydraConfig.get().job
    log.info("job %s with lr %s", job.num, config.lr)
    if config.fail == "value":
        raise ValueError(f"lr {config.lr} is no good")
    if config.fail == "own":
        raise OutOfIdeas("lr", "too many")
    if config.fail == "kill":
        os.kill(os.getpid(), 9)
    if config.fail == "exit":
        raise SystemExit(0)
    if config.fail == "generator":
        return (one for one in "has no pickle")
    seen = {
        "num": job.num,
        "mode": HydraConfig.get().mode.name,
        "cwd": os.getcwd(),
        "original": HydraConfig.get().runtime.cwd,
        "output": HydraConfig.get().runtime.output_dir,
        "data": Path(to_absolute_path("data.txt")).read_text(),
        "env": os.environ.get("FROM_HYDRA"),
        "copied": os.environ.get("COPIED"),
        "port": config.db.port,
        "sum": config.sum,
        "note": config.note,
        "twice": twice(config.seed),
        "typed": isinstance(OmegaConf.to_object(config), Config),  # type: ignore[arg-type]
        "pickled": pickle.loads(pickle.dumps(Score(config.lr))) == Score(config.lr),
        "overrides": list(HydraConfig.get().overrides.task),
    }
    if config.fail == "pools":
        seen["pools"] = in_pools(config.seed) == 2 * [Score(config.seed)]
    Path("seen.json").write_text(json.dumps(seen))
    return Score(config.lr)


if __name__ == "__main__":
    returned = main()
