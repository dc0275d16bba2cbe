"""What an experiment's training comes to on clusters that its config does not name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from slurmopt.errors import ConfigError
from slurmopt.estimates.experiment import Experiment, experiment
from slurmopt.planning.clusters.bandwidth import Save, save
from slurmopt.planning.clusters.preset import Preset
from slurmopt.planning.shapes import Calibration, Shape, best_of_each_size, chosen, shapes

if TYPE_CHECKING:
    from slurmopt.config.plan import Plan
    from slurmopt.config.resources import Resources


def workload(plan: Plan, resources: Resources, stored: Mapping[str, Any], first: Preset) -> Experiment:
    """What holds of the experiment on any cluster: its GPU, network and nodes are those of `first` until `on` replaces
    them. Raises ConfigError where the config leaves out what a comparison needs."""
    if not resources.gpus_per_node:
        if plan.global_batch is None:
            message = "is not set, and resources.gpus_per_node is 0; valid: samples of a step, the same on all clusters"
            raise ConfigError(message, "plan.global_batch")
        resources = replace(resources, gpus_per_node=first.node.gpus)
    return experiment(replace(plan, gpu=first.node.gpu.name, network=first.network.gbits), resources, stored)


def on(asked: Experiment, preset: Preset, nodes: list[int]) -> Experiment:
    """The experiment on one cluster. `nodes`: plan.nodes; if empty, 1, 2, 4, … up to all of the cluster's. No numbers
    of nodes where the cluster has fewer than each of plan.nodes."""
    powers = [1 << exponent for exponent in range(preset.nodes.bit_length())]
    counts = sorted({count for count in nodes or [*powers, preset.nodes] if count <= preset.nodes})
    return replace(asked, cluster=preset.hardware(1), choices=replace(asked.choices, nodes=counts))


@dataclass(frozen=True, kw_only=True)
class OnCluster:
    """The training on one cluster."""

    preset: Preset
    asked: Experiment
    found: list[Shape]
    """All shapes, those that cannot be too."""
    taken: Shape | None
    """The one to take there; None where nothing fits."""
    save: Save | None
    """Of a checkpoint of that one."""

    @property
    def why_not(self) -> str | None:
        """Why nothing fits; None where something does."""
        if self.taken is not None:
            return None
        if not self.found:
            return f"it has {self.preset.nodes} nodes, fewer than plan.nodes"
        some = [one for one in self.found if one.peak is not None]
        near = min(some, key=lambda one: one.peak.low if one.peak else 0.0, default=self.found[0])
        return f"on {near.nodes} node{'s' if near.nodes > 1 else ''} {near.rejected}"


def fitted(asked: Experiment, preset: Preset, learned: Calibration) -> OnCluster:
    """The shape to take of an experiment that `on` made: the rule of `slurmopt plan`. Nodes below one leaf have the
    whole rate of the network, more of them what the links between leaves leave."""
    found: list[Shape] = []
    for nodes in asked.choices.nodes:
        choices = replace(asked.choices, nodes=(nodes,))
        found += shapes(asked.model, asked.work, preset.hardware(nodes), choices, learned)
    taken = chosen(best_of_each_size(found))
    saved = None
    if taken is not None:
        work = asked.choices.of_strategy(asked.work, taken.strategy)
        saved = save(preset, taken.nodes, asked.model.parameters, work.precision, work.optimizer)
    return OnCluster(preset=preset, asked=asked, found=found, taken=taken, save=saved)
