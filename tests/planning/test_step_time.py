"""Predicted steps against published trainings: each interval has to contain what its authors measured."""

from __future__ import annotations

from dataclasses import replace

import pytest
from planning.published import gpt

from slurmopt.planning.hardware import cluster, gpu_of
from slurmopt.planning.layout import EAGER, FULL, SELECTIVE, Layout, Work
from slurmopt.planning.models.public import public_model
from slurmopt.planning.speed.compute import flops_per_token
from slurmopt.planning.speed.step import StepTime, step_time
from slurmopt.planning.states import AUTOCAST, MIXED, POLICY

A100 = cluster(gpu_of("a100-80gb", "a"), 8, 1600)
H100 = cluster(gpu_of("h100", "a"), 8, 3200)


@pytest.mark.parametrize(
    ("model", "layout", "batch", "selective", "full"),
    [  # 2205.05198, tables 3 and 5: seconds of an iteration with selective and with full recomputation
        (gpt(6144, 48, 64), Layout(tensor=8, micro_batch=4), 4, 1.10, 1.42),
        (gpt(12288, 96, 96), Layout(tensor=8, pipeline=8, interleave=3), 64, 13.75, 18.13),
        (gpt(20480, 105, 128), Layout(tensor=8, pipeline=35, interleave=3), 280, 37.83, 49.05),
        (gpt(25600, 128, 160), Layout(tensor=8, pipeline=64), 512, 71.49, 94.42),
    ],
)
def test_megatrons_iterations(
    model,
    layout: Layout,
    batch: int,
    selective: float,
    full: float,  # type: ignore[no-untyped-def]
) -> None:
    work = Work(sequence=2048, global_batch=batch, precision=MIXED, attention=EAGER, dropout=True)
    for recompute, published in ((SELECTIVE, selective), (FULL, full)):
        time = step_time(model, work, replace(layout, recompute=recompute), A100).total
        assert time.low <= published <= time.high, recompute


@pytest.mark.parametrize(
    ("parameters", "tokens", "gpus", "tflops", "days"),
    [(175e9, 300e9, 1024, 140, 34), (1008e9, 450e9, 3072, 163, 84)],  # 2104.04473, section 5.1, with recomputation
)
def test_the_papers_training_times(parameters: float, tokens: float, gpus: int, tflops: float, days: float) -> None:
    assert 8 * parameters * tokens / (gpus * tflops * 1e12) / 86400 == pytest.approx(days, rel=0.01)


def test_llama_3_405b_on_8192_h100() -> None:
    """2407.21783, table 4: 43 % MFU with tensor parallelism 8, 16 stages, 64 replicas, 16 million tokens."""
    model = public_model("llama-405b")
    assert model is not None
    model = replace(model, layers=128)  # 126 and two that the first and last stage lack
    work = Work(sequence=8192, global_batch=2048, precision=MIXED, fp32_gradients=True)
    layout = Layout(data=64, tensor=8, pipeline=16, interleave=8, stage=1)
    found = step_time(model, work, layout, H100)
    assert found.mfu.low <= 0.43 <= found.mfu.high


def test_flops_of_the_405b_training() -> None:
    """2407.21783, section 3: 3.8 times 10²⁵ FLOPs for 15.6 times 10¹² tokens."""
    model = public_model("llama-405b")
    assert model is not None
    assert flops_per_token(model, 8192) * 15.6e12 == pytest.approx(3.8e25, rel=0.05)


def eight(layout: Layout, **work: object) -> StepTime:
    model = public_model("llama-8b")
    assert model is not None
    made = Work(sequence=4096, global_batch=64, precision=POLICY)
    return step_time(model, replace(made, **work), layout, H100)  # type: ignore[arg-type]


def test_mfu_is_below_one_and_recomputation_lowers_it() -> None:
    plain, again = eight(Layout(data=8, stage=3)), eight(Layout(data=8, stage=3, recompute=FULL))
    assert 0 < plain.mfu.low < plain.mfu.high < 1
    assert again.mfu.middle < 0.85 * plain.mfu.middle
    assert again.flops == plain.flops


def test_an_idle_pipeline_is_the_papers_share() -> None:
    """(p - 1) / m of the rest, a v-th of it when interleaved (2104.04473, section 2.2)."""
    work = {"global_batch": 64, "precision": MIXED}
    four, eight_stages = (eight(Layout(pipeline=p), **work) for p in (4, 8))
    assert four.idle.low == pytest.approx(3 / 64 * (four.arithmetic.low), rel=0.05)
    assert eight_stages.idle.low > 1.1 * four.idle.low
    assert eight(Layout(pipeline=4, interleave=4), **work).idle.low < 0.5 * four.idle.low


def test_communication_that_arithmetic_hides_costs_nothing_at_the_fast_end() -> None:
    found = eight(Layout(data=8, stage=3))
    assert found.data.low > 0
    assert found.total.low == pytest.approx(found.arithmetic.low)
    assert found.total.high > found.arithmetic.high


def test_a_slow_network_shows() -> None:
    slow = cluster(gpu_of("h100", "a"), 8, 25)
    model = public_model("llama-8b")
    assert model is not None
    work = Work(sequence=4096, global_batch=64, precision=AUTOCAST)
    fast_one, slow_one = (step_time(model, work, Layout(data=64), each).total.low for each in (H100, slow))
    assert slow_one > 3 * fast_one
