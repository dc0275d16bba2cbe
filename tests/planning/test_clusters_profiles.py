"""Each profile of conf/cluster/ composes as a launch does, and agrees with the clusters that name it."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurmopt.commands.plan.cluster.launch import differences
from slurmopt.config.composition.shipped import shipped
from slurmopt.config.network import Network
from slurmopt.config.plan import Plan
from slurmopt.config.resources import Resources
from slurmopt.estimates.cluster_file import shipped_clusters
from slurmopt.launching import run_plan
from slurmopt.planning.clusters.preset import Preset
from slurmopt.runs.submit.plan import Plan as Planned
from slurmopt.scaffold.project import SHIPPED

VCPUS = {
    "p4d.24xlarge": 96, "p4de.24xlarge": 96, "p5.48xlarge": 192, "p5en.48xlarge": 192, "p6-b200.48xlarge": 192,
    "g6e.48xlarge": 192, "DGX H100": 112,
}  # fmt: skip
"""AWS, specifications of accelerated computing instances; the cores of DGX H100: two processors of 56."""


def composed(profile: str) -> Planned:
    return run_plan.plan(["+experiment=mine", f"cluster={profile}", "launch.backend=local"])


def test_every_profile_composes(project: Path) -> None:
    profiles = {file.stem for file in shipped("conf").glob("cluster/*.yaml")}
    assert profiles == set(SHIPPED), "`slurmopt init` gives a cluster of the user another name"
    for profile in profiles:
        assert composed(profile).job.settings.resources.nodes


@pytest.mark.parametrize("preset", shipped_clusters(), ids=lambda preset: preset.name)
def test_a_cluster_and_its_profile_agree(project: Path, preset: Preset) -> None:
    assert preset.profile is not None
    settings = composed(preset.profile).job.settings
    resources = settings.resources
    assert resources.gpus_per_node == preset.node.gpus
    assert settings.network.kind in ("auto", preset.network.kind)
    assert (settings.plan.gpu, settings.plan.network) == (preset.node.gpu.name, preset.network.gbits)
    assert resources.cpus_per_task == VCPUS[preset.node.instance] // preset.node.gpus
    assert differences(preset, resources, settings.plan, settings.network.kind) == []


def test_what_an_experiment_says_otherwise_is_an_override() -> None:
    preset = next(each for each in shipped_clusters() if each.name == "p4d-small")
    resources = Resources(gpus_per_node=4, gpu_type="h100")
    assert differences(preset, resources, Plan(network=3200), Network(kind="infiniband").kind) == [
        "resources.gpus_per_node=8", "resources.gpu_type=null", "network.kind=efa", "plan.gpu=a100-40gb",
        "plan.network=400",
    ]  # fmt: skip
    typed = Resources(gpus_per_node=8, gpu_type="NVIDIA A100-SXM4-40GB")
    assert differences(preset, typed, Plan(network=400), "none") == []
    odd = Resources(gpus_per_node=8, gpu_type="a100")
    assert "resources.gpu_type=null" in differences(preset, odd, Plan(gpu="a100-40gb", network=400), "auto")
