"""Profiles of GPUs, from simulated traces: where the time goes is known to the microsecond."""

from __future__ import annotations

from pathlib import Path

import pytest
from profiling.simulated_traces import Gpu

from slurmopt.profiling import breakdown as parts
from slurmopt.profiling.analysis import Profile, RankProfile, analyse
from slurmopt.profiling.comparison import compare
from slurmopt.profiling.sentences import sentences
from slurmopt.runs.profiling.traces import read_file

STEP, STEPS = 1000.0, 5
GEMM = "nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_TNT"
NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def steps(rank: int = 0, late: float = 0.0, clock: float = 0.0, gemm: float = 400.0, world_size: int = 1) -> Gpu:
    """Steps of a millisecond: compute that hides a part of the collective, a copy, a late launch in the mark `augment`,
    a launch after the host waited for the device, a kernel that was launched long before, and a wait for input."""
    gpu = Gpu(rank, world_size)
    for number in range(STEPS + 1):
        at = number * STEP + clock
        gpu.mark("Optimizer.step#AdamW.step", at - 10, 10)
        gpu.kernel(GEMM, at, gemm, at - 5)
        args = {"Collective name": "allreduce", "Process Group Name": "0", "Seq": number}
        gpu.kernel(NCCL, at + 350 + late, 150 - late, at + 300, **args)
        gpu.row("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", at + 500, 100, {"pid": 0, "tid": 20})
        gpu.mark("augment", at + 600, 90)
        gpu.kernel("late", at + 700, 10, at + 690)
        gpu.row("cuda_runtime", "cudaStreamSynchronize", at + 705, 10, {"pid": 1, "tid": 10})
        gpu.kernel("after a wait", at + 790, 10, at + 780)
        gpu.kernel("launched before", at + 860, 10, at + 795)
        gpu.mark("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", at + 870, 55)
        gpu.kernel("after input", at + 930, 10, at + 925)
    return gpu


def rank(gpu: Gpu, folder: Path) -> RankProfile:
    return profile([gpu], folder).ranks[0]


def profile(gpus: list[Gpu], folder: Path) -> Profile:
    files = [gpu.write(folder / f"rank-{at}.json.gz") for at, gpu in enumerate(gpus)]
    return analyse({at: read_file(path) for at, path in enumerate(files)})


def test_each_microsecond_is_put_down_to_its_reason(tmp_path: Path) -> None:
    found = rank(steps(), tmp_path).breakdown
    micros = {name: 1e6 * seconds / STEPS for name, seconds in found.shares.items()}
    assert micros == pytest.approx(
        {
            parts.COMPUTE: 440,
            parts.EXPOSED: 100,
            parts.COPIES: 100,
            "augment": 90,
            parts.SYNCHRONIZATION: 75,
            parts.INPUT: 55,
            parts.HOST: 5 + 5 + 60,  # after the mark; after the input; until the launch of the next step
            parts.DEVICE_GAPS: 5 + 5 + 60,
        },
        abs=0.01,
    )
    assert sum(micros.values()) == pytest.approx(STEP)
    assert found.communication * 1e6 / STEPS == pytest.approx(150)
    assert found.hidden * 1e6 / STEPS == pytest.approx(50)
    assert found.unexplained == 0


def test_sentences_name_what_is_large(tmp_path: Path) -> None:
    said = [one.text for one in sentences(profile([steps()], tmp_path))]
    assert said[0] == "5 steps, 1 ms each: the GPU computes 44% of the time"
    assert any("waits for communication 10% of the time; 33% of the communication is hidden" in text for text in said)
    assert any(
        text.startswith("the GPU is idle 6% of the time: the training waits for its DataLoader") for text in said
    )
    assert any("8% of the time: the host waits for it (.item()" in text for text in said)
    assert any("the GPU is idle 9% of the time, in augment" in text for text in said)
    assert said[-1] == "0% of the time of rank 0 is not explained by the trace"
    assert not any("launch-bound" in text or "times the median" in text for text in said)


def test_many_small_kernels_are_launch_bound(tmp_path: Path) -> None:
    gpu = Gpu()
    for number in range(6):
        gpu.mark("Optimizer.step#SGD.step", number * STEP - 10, 10)
        for at in range(20):
            gpu.kernel("small", number * STEP + 50 * at + 6, 3, number * STEP + 50 * at)
    said = next(one for one in sentences(profile([gpu], tmp_path)) if "launch-bound" in one.text)
    assert "100% of the kernels take less time than their launch" in said.text
    assert said.evidence == ["100 kernels, 20 a step", "median kernel 3 µs, median launch 5 µs"]


@pytest.mark.parametrize("clock", [0.0, 400.0, -2500.0])
def test_the_straggler_is_found_whatever_the_clocks_say(tmp_path: Path, clock: float) -> None:
    """Collectives of NCCL have numbers; the clock of one node is milliseconds off."""
    gpus = [steps(0, 0, 0, world_size=8), steps(1, 90, clock, world_size=8), steps(2, 0, clock, world_size=8)]
    found = profile(gpus, tmp_path)
    assert found.straggler is not None
    assert (found.straggler.rank, found.straggler.last) == (1, found.straggler.collectives)
    assert found.straggler.waited / found.straggler.last == pytest.approx(90e-6)
    (said,) = [one.text for one in sentences(found) if "is the slowest" in one.text]
    assert said.startswith("rank 1 is the slowest of those traced: it starts")


def test_a_slow_step_is_told_with_what_it_has_more_of(tmp_path: Path) -> None:
    gpu = Gpu()
    at = 0.0
    for number in range(7):
        long = 900.0 if number == 3 else 0.0
        gpu.mark("Optimizer.step#SGD.step", at - 10, 10)
        gpu.mark("evaluate", at + 500, 400 + long)
        gpu.kernel("forward", at + 10, 490, at)
        gpu.kernel("backward", at + 920 + long, 50, at + 910 + long)
        at += STEP + long
    (said,) = [one.text for one in sentences(profile([gpu], tmp_path)) if "times the median" in one.text]
    assert said.startswith("step 4 of the trace takes 1.9 times the median: 900 µs more time in evaluate")


def test_what_became_slower(tmp_path: Path) -> None:
    (tmp_path / "after").mkdir()
    found = compare(profile([steps()], tmp_path), profile([steps(gemm=470.0)], tmp_path / "after"))
    assert found.by_step
    assert (found.operations[0].name, found.operations[0].calls_after) == (GEMM, 1.0)
    assert found.operations[0].more == pytest.approx(70e-6)
    assert found.shares[0].name == parts.COMPUTE
