"""Checks the options of the shipped benchmark before it waits in the queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slurmopt.errors import ConfigError

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from slurmopt.config.schema import Settings

_BENCHMARK = "slurmopt.benchmarks.collectives.run"


def check_benchmark(config: DictConfig, typed: Settings) -> None:
    """ConfigError where the task is the benchmark of collectives, and `bench` or the number of ranks is not valid."""
    if typed.task._target_ != _BENCHMARK:
        return
    from omegaconf import OmegaConf

    from slurmopt.collectives.options import options_of

    given = config.get("bench")
    if given is not None and not OmegaConf.is_dict(given):
        raise ConfigError("is not a mapping; see conf/experiment/bench_collectives.yaml", "bench")
    plain = OmegaConf.to_container(given, resolve=True) if given is not None else {}
    options_of({str(key): value for key, value in plain.items()} if isinstance(plain, dict) else {})
    if typed.resources.most_nodes * typed.resources.ranks_per_node == 1:
        raise ConfigError("one rank has nobody to talk to; valid: two ranks or more", "resources.tasks_per_node")
