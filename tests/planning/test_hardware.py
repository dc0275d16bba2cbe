"""GPUs by their names."""

from __future__ import annotations

import pytest

from slurmopt.errors import ConfigError
from slurmopt.planning.hardware import NAMES, cluster, gpu_of


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("h100", "h100"), ("H100", "h100"), ("NVIDIA H100 80GB HBM3", "h100"), ("NVIDIA H100 PCIe", "h100-pcie"),
        ("NVIDIA A100-SXM4-40GB", "a100-40gb"), ("NVIDIA A100-SXM4-80GB", "a100-80gb"), ("NVIDIA H200", "h200"),
        ("NVIDIA L40S", "l40s"), ("NVIDIA L4", "l4"), ("AMD Instinct MI300X", "mi300x"), ("NVIDIA B200", "b200"),
        ("Tesla V100-SXM2-16GB", "v100-16gb"),
    ],
)  # fmt: skip
def test_a_gpu_is_found_by_what_slurm_and_nvml_call_it(name: str, found: str) -> None:
    assert gpu_of(name, "plan.gpu").name == found


@pytest.mark.parametrize("name", ["a100", "gtx1080", "", "h1000", "NVIDIA L40"])
def test_a_gpu_that_is_not_known_is_one_line(name: str) -> None:
    with pytest.raises(ConfigError, match=r"^plan\.gpu: '.*' is not known; valid: v100-16gb, v100-32gb, a100-40gb"):
        gpu_of(name, "plan.gpu")


@pytest.mark.parametrize("name", NAMES)
def test_rates_are_dense_ones(name: str) -> None:
    gpu = gpu_of(name, "a")
    assert gpu_of(gpu.device, "a") == gpu
    assert gpu.fp8_tflops is None or gpu.fp8_tflops == pytest.approx(2 * gpu.half_tflops, rel=0.02)
    assert gpu.tf32_tflops is None or gpu.tf32_tflops <= 0.51 * gpu.half_tflops
    assert gpu.link >= 20e9


def test_a_domain_is_no_larger_than_a_node() -> None:
    assert cluster(gpu_of("gb200", "a"), 4, 3200).domain == 4
    assert cluster(gpu_of("l4", "a"), 8, 100).domain == 1
