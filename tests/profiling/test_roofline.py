"""The rates of matrix products, and the roofline of the GPU. The GPU traces are SIMULATED."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from profiling.simulated_traces import THREAD, Gpu

from slurmopt.gpu_peaks import dense_bf16_tflops, memory_bandwidth
from slurmopt.profiling.analysis import Profile, analyse
from slurmopt.profiling.sentences import sentences
from slurmopt.runs.profiling.traces import read_file

PEAK, BANDWIDTH = 989e12, 3.35e12
BF16, FLOAT = "c10::BFloat16", "float"


def traced(folder: Path, rows: list[tuple[str, list[Any], list[str], float]], device: str | None = None) -> Profile:
    """A step for each row: an operator with its inputs' shapes and types, whose kernel takes so many microseconds."""
    gpu = Gpu()
    if device is not None:
        gpu.head["deviceProperties"][0]["name"] = device
    at = 0.0
    for number, (name, dims, types, micros) in enumerate(rows):
        gpu.mark(f"ProfilerStep#{number}", at, micros + 200)
        external = {"External id": number + 1}
        gpu.row("cpu_op", name, at + 1, 20, THREAD, **external, **{"Input Dims": dims, "Input type": types})
        gpu.kernel("nvjet_sm90", at + 100, micros, at + 10, **external)
        at += micros + 200
    return analyse({0: read_file(gpu.write(folder / "rank-0.json.gz"))})


def said(profile: Profile) -> Any:
    found = [each for each in sentences(profile) if each.text.startswith("matrix products")]
    return found[0] if found else None


def test_a_large_product_is_compute_bound_and_a_thin_one_memory_bound(tmp_path: Path) -> None:
    micros = 2 * 4096**3 / (0.5 * PEAK) * 1e6  # half of the peak
    rows = [
        ("aten::mm", [[4096, 4096], [4096, 4096]], [BF16, BF16], micros),
        ("aten::addmm", [[4096], [8, 4096], [4096, 4096]], [BF16, BF16, BF16], 20.0),
    ]
    profile = traced(tmp_path, rows)
    big, small = profile.ranks[0].products
    assert (big.m, big.n, big.k, big.type, big.calls) == (4096, 4096, 4096, "bf16", 1)
    assert big.rate == pytest.approx(0.5 * PEAK, rel=1e-3)
    assert big.limit("NVIDIA H100 80GB HBM3") == PEAK
    moved = 2 * (8 * 4096 + 4096 * 4096 + 8 * 4096)
    assert small.intensity == pytest.approx(2 * 8 * 4096 * 4096 / moved)
    assert small.limit("NVIDIA H100 80GB HBM3") == pytest.approx(small.intensity * BANDWIDTH)
    found = said(profile)
    assert found.evidence[0].startswith("aten::mm 4,096x4,096 by 4,096x4,096 bf16: 494 TFLOP/s, 50% of what 1,365 ")
    assert "operations a byte allow (compute-bound)" in found.evidence[0]
    assert "(memory-bound)" in found.evidence[1]
    ideal = (2 * 4096**3 + 2 * 8 * 4096 * 4096) / PEAK
    assert f", {ideal / (micros + 20) * 1e6:.0%} of what the GPU can do in bf16" in found.text


def test_batches_count_and_types_without_a_known_peak_have_a_rate_alone(tmp_path: Path) -> None:
    rows = [
        ("aten::bmm", [[16, 512, 64], [16, 64, 512]], [FLOAT, FLOAT], 100.0),
        ("aten::baddbmm", [[4], [3, 8, 8], [3, 8, 8]], ["double"] * 3, 10.0),
    ]
    profile = traced(tmp_path, rows)
    first, second = profile.ranks[0].products
    assert (first.batch, first.operations) == (16, 2 * 16 * 512 * 512 * 64)
    assert (second.batch, second.type) == (3, "fp64")
    found = said(profile)
    assert found.text.endswith("TFLOP/s")
    assert "allow" not in "".join(found.evidence)


def test_an_unknown_gpu_has_rates_alone(tmp_path: Path) -> None:
    rows = [("aten::mm", [[64, 64], [64, 64]], [BF16, BF16], 10.0)]
    found = said(traced(tmp_path, rows, device="NVIDIA Unheard Of"))
    assert found.text.endswith("TFLOP/s")


def test_a_trace_without_shapes_says_nothing_of_it(tmp_path: Path) -> None:
    assert said(traced(tmp_path, [("aten::mm", [], [], 10.0)])) is None


ODD = [None, "x", 3, [], {}, [[]], [[2, 2]], [[0, 2], [2, 2]], [[2, 3], [2, 3]], [[2, -2], [-2, 2]], [[2.5, 2], [2, 2]],
       [[True, 2], [2, 2]], [[1 << 50, 2], [2, 2]], [["2", 2], [2, 2]]]  # fmt: skip


def test_shapes_that_somebody_has_edited_are_left_out(tmp_path: Path) -> None:
    rows = [("aten::mm", dims, types, 10.0) for dims, types in itertools.product(ODD, [[BF16, BF16], None, [[], {}]])]
    assert said(traced(tmp_path, rows)) is None  # type: ignore[arg-type]
    gpu = Gpu()
    for number in ([1], {}, "1", None, 1.5):
        gpu.row("cpu_op", "aten::mm", 0, 20, THREAD, **{"External id": number, "Input Dims": [[2, 2], [2, 2]]})
        gpu.kernel("k", 30, 10, 5, **{"External id": number})
    assert said(analyse({0: read_file(gpu.write(tmp_path / "odd.json.gz"))})) is None


@pytest.mark.parametrize(
    ("name", "terabytes"),
    [("NVIDIA H100 80GB HBM3", 3.35), ("NVIDIA A100-SXM4-40GB", 1.555), ("NVIDIA A100-SXM4-80GB", 2.039),
     ("NVIDIA A100 80GB PCIe", 1.935), ("NVIDIA H200", 4.8), ("NVIDIA H100 PCIe", 2.0)],
)  # fmt: skip
def test_bandwidths_of_known_gpus(name: str, terabytes: float) -> None:
    assert memory_bandwidth(name) == terabytes * 1e12
    assert dense_bf16_tflops(name) is not None


@pytest.mark.parametrize("name", ["NVIDIA H100", "NVIDIA A100-SXM4-40GB MIG 1g.5gb", "", "NVIDIA GeForce RTX 4090"])
def test_unknown_bandwidths_have_no_default(name: str) -> None:
    assert memory_bandwidth(name) is None
