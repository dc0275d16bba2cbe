"""The peak of a GPU is known by its whole name, or it is unknown."""

from __future__ import annotations

import pytest

from slurmopt.gpu_peaks import dense_bf16_tflops


@pytest.mark.parametrize(
    ("name", "teraflops"),
    [
        ("NVIDIA H100 80GB HBM3", 989.0),
        ("NVIDIA H100 PCIe", 756.0),
        ("NVIDIA H100 NVL", 835.0),
        ("NVIDIA H200", 989.0),
        ("NVIDIA H20", 148.0),
        ("NVIDIA A100-SXM4-40GB", 312.0),
        ("NVIDIA A100 80GB PCIe", 312.0),
        ("NVIDIA RTX A6000", 154.85),
        ("NVIDIA L40S", 362.05),
        ("NVIDIA L40", 181.05),
        ("NVIDIA B200", 2250.0),
        ("NVIDIA GB200", 2500.0),
        ("AMD Instinct MI300X", 1300.0),
        ("AMD Instinct MI250X", 191.5),
        ("l40s", 362.05),
    ],
)
def test_known_names(name: str, teraflops: float) -> None:
    assert dense_bf16_tflops(name) == teraflops


@pytest.mark.parametrize(
    "name",
    [
        "",
        "NVIDIA H100",  # which form?
        "NVIDIA H800",
        "NVIDIA A100-SXM4-40GB MIG 1g.5gb",
        "NVIDIA A1000",
        "NVIDIA RTX 6000 Ada Generation",
        "NVIDIA GeForce RTX 4090",
        "Tesla V100-SXM2-32GB",
        "AMD Instinct MI300A",
        "Intel Data Center GPU Max 1550",
    ],
)
def test_unknown_names_have_no_default(name: str) -> None:
    assert dense_bf16_tflops(name) is None
