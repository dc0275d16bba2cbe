"""What an experiment's config says of its training, for a plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from slurmopt.config.dotted import value_of
from slurmopt.config.schema import GROUPS
from slurmopt.errors import ConfigError, one_line
from slurmopt.estimates.model_word import model_of
from slurmopt.planning.hardware import Cluster, cluster, gpu_of
from slurmopt.planning.layout import RECOMPUTES, STRATEGIES, Work
from slurmopt.planning.models.transformer import Transformer
from slurmopt.planning.shapes import Choices, Shape
from slurmopt.units import seconds

if TYPE_CHECKING:
    from slurmopt.config.plan import Plan
    from slurmopt.config.resources import Resources

_MORE_NODES = 4
_MICRO_BATCHES = (1, 2, 4, 8, 16, 32, 64)
_POWERS = (1, 2, 4, 8, 16, 32, 64)
_WORDS: dict[str, Sequence[str]] = {"strategy": tuple(STRATEGIES), "recompute": RECOMPUTES}


@dataclass(frozen=True)
class Experiment:
    """What a plan is made from."""

    model: Transformer
    work: Work
    cluster: Cluster
    choices: Choices
    now: Choices
    """The shape that the config has now."""
    keys: dict[str, str]
    tokens: float | None
    boot: float = 0.0
    """Seconds for which nodes are billed before and after the job."""

    def as_it_is(self, nodes: int) -> Choices:
        """The shape that the config has now, on so many nodes."""
        return replace(self.now, nodes=(nodes,))

    def overrides(self, shape: Shape) -> list[str]:
        """What to launch the shape with."""
        values = {
            "micro_batch": shape.layout.micro_batch,
            "strategy": shape.strategy,
            "tensor": shape.layout.tensor,
            "pipeline": shape.layout.pipeline,
            "recompute": shape.layout.recompute,
        }
        chosen = [f"{key}={values[dimension]}" for dimension, key in self.keys.items()]
        return [f"resources.nodes={shape.nodes}", *chosen]


def experiment(plan: Plan, resources: Resources, stored: Mapping[str, Any]) -> Experiment:
    """`stored`: the whole config, for the training's own keys. Raises ConfigError where it leaves out what a plan
    needs."""
    plan = _with_values(plan, stored)
    if plan.model is None:
        raise ConfigError(
            "is not set; valid: a model such as llama-8b, a config.json, or a count such as 7B", "plan.model"
        )
    if plan.sequence is None:
        raise ConfigError("is not set; valid: the tokens of a sample, such as 4096", "plan.sequence")
    if not resources.gpus_per_node:
        raise ConfigError("is 0; valid: the GPUs of a node, for a plan", "resources.gpus_per_node")
    named, key = (plan.gpu, "plan.gpu") if plan.gpu is not None else (resources.gpu_type, "resources.gpu_type")
    if named is None:
        raise ConfigError("is not set; valid: a GPU such as h100, here or in resources.gpu_type", "plan.gpu")
    nodes = _nodes(plan, resources.least_nodes, resources.most_nodes)
    if plan.network is None and max(nodes) > 1:
        message = "is not set; valid: Gbit/s of a node such as 400; without it only one node can be planned"
        raise ConfigError(message, "plan.network")
    ranks = resources.most_nodes * resources.gpus_per_node // (plan.tensor * plan.pipeline)
    return Experiment(
        model=model_of(plan.model, "plan.model"),
        work=plan.work(plan.micro_batch * max(1, ranks)),
        cluster=cluster(gpu_of(named, key), resources.gpus_per_node, plan.network or 1.0),
        choices=_choices(plan, nodes),
        now=_choices(replace(plan, keys={}), nodes),
        keys=dict(plan.keys),
        tokens=plan.tokens,
        boot=0.0 if plan.boot is None else seconds(plan.boot),
    )


def _with_values(plan: Plan, stored: Mapping[str, Any]) -> Plan:
    """The group, with what the training's own keys say now."""
    found: dict[str, Any] = {}
    for dimension, key in plan.keys.items():
        if key.partition(".")[0] in GROUPS:
            message = (
                f"{one_line(key)} is a key of slurmopt; valid: a key of your own, by which the training is changed"
            )
            raise ConfigError(message, f"plan.keys.{dimension}")
        value = value_of(stored, key)
        if value is None:
            raise ConfigError(f"{one_line(key)!r} is not in the config; valid: a key of it", f"plan.keys.{dimension}")
        valid = _WORDS.get(dimension)
        if valid is not None and value not in valid:
            raise ConfigError(f"{_shown(key, value)}; valid: {', '.join(valid)}", f"plan.keys.{dimension}")
        if valid is None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise ConfigError(f"{_shown(key, value)}; valid: a whole number from 1", f"plan.keys.{dimension}")
        found[dimension] = value
    return replace(plan, **found)


def _shown(key: str, value: object) -> str:
    return f"{one_line(key)} is {one_line(repr(value))[:60]}"


def _nodes(plan: Plan, least: int, most: int) -> list[int]:
    if plan.nodes:
        return sorted(set(plan.nodes))
    if plan.network is None and most == 1:
        return [1]
    powers = [1 << exponent for exponent in range(20) if 1 << exponent <= _MORE_NODES * most]
    return sorted({least, most, *powers})


def _choices(plan: Plan, nodes: list[int]) -> Choices:
    """What `plan.keys` names has all its values, the rest the one that it has."""

    def of(dimension: str, values: Sequence[Any], now: Any) -> Sequence[Any]:
        return values if dimension in plan.keys else (now,)

    return Choices(
        nodes=nodes,
        strategies=of("strategy", tuple(STRATEGIES), plan.strategy),
        tensor=of("tensor", _POWERS, plan.tensor),
        pipeline=of("pipeline", _POWERS, plan.pipeline),
        micro_batch=of("micro_batch", _MICRO_BATCHES, plan.micro_batch),
        recompute=of("recompute", RECOMPUTES, plan.recompute),
        precision=plan.precision,
    )
