"""How to launch a training on the cluster that a comparison took."""

from __future__ import annotations

from dataclasses import dataclass

from slurmopt.config.network import AUTO, NONE
from slurmopt.config.plan import Plan
from slurmopt.config.resources import Resources
from slurmopt.errors import ConfigError, SlurmoptError, one_line
from slurmopt.estimates.on_clusters import OnCluster
from slurmopt.launching.override_words import merged
from slurmopt.planning.clusters.preset import Preset
from slurmopt.planning.hardware import gpu_of


@dataclass(frozen=True)
class Launch:
    """The words after `slurmopt launch`, or why there are none."""

    words: list[str] | None
    problem: str | None = None


def launch_on(there: OnCluster, typed: list[str], config_dir: str | None) -> Launch:
    """Composes the launch and adds what the experiment itself says otherwise than the cluster is: its values take
    precedence over those of a profile. `typed`: the overrides of the command line."""
    from slurmopt.launching import run_plan

    preset, taken = there.preset, there.taken
    assert taken is not None
    if preset.profile is None:
        return Launch(None, f"no profile of conf/cluster/ goes with {preset.name}: write one, and launch with cluster=")
    words = merged(typed, [f"cluster={preset.profile}", *there.asked.overrides(taken)])
    try:
        settings = run_plan.plan(words, config_dir).job.settings
    except SlurmoptError as error:
        return Launch(None, f"cluster={preset.profile} cannot be composed: {one_line(str(error))}")
    more = differences(preset, settings.resources, settings.plan, settings.network.kind)
    return Launch(merged(words, more))


def differences(preset: Preset, resources: Resources, plan: Plan, network: str) -> list[str]:
    """The overrides by which a config agrees with a cluster."""
    node, found = preset.node, list[str]()
    if resources.gpus_per_node != node.gpus:
        found.append(f"resources.gpus_per_node={node.gpus}")
    if resources.gpu_type is not None and not _is(node.gpu.name, resources.gpu_type):
        found.append("resources.gpu_type=null")
    if network not in (AUTO, NONE, preset.network.kind):
        found.append(f"network.kind={preset.network.kind}")
    named = plan.gpu or resources.gpu_type
    if named is None or not _is(node.gpu.name, named):
        found.append(f"plan.gpu={node.gpu.name}")
    if plan.network != preset.network.gbits:
        found.append(f"plan.network={preset.network.gbits:g}")
    return found


def _is(gpu: str, named: str) -> bool:
    try:
        return gpu_of(named, "").name == gpu
    except ConfigError:
        return False
