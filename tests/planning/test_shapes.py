"""Which shapes are tried, and which one is taken."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slurmopt.planning.hardware import cluster, gpu_of
from slurmopt.planning.layout import Layout, Work
from slurmopt.planning.models.public import public_model
from slurmopt.planning.models.transformer import Transformer
from slurmopt.planning.ranges import Range
from slurmopt.planning.shapes import Calibration, Choices, Shape, best_of_each_size, chosen, front, shapes

H100 = cluster(gpu_of("h100", "a"), 8, 3200)
WORK = Work(sequence=4096, global_batch=512)


def model(name: str) -> Transformer:
    found = public_model(name)
    assert found is not None
    return found


def tried(name: str, choices: Choices, work: Work = WORK, learned: Calibration | None = None) -> list[Shape]:
    return shapes(model(name), work, H100, choices, learned or Calibration())


def test_a_small_model_takes_the_simplest_strategy() -> None:
    found = tried("gpt2", Choices(nodes=(1,), strategies=("ddp", "fsdp", "hsdp"), tensor=(1, 2, 4)))
    (best,) = best_of_each_size(found)
    assert (best.strategy, best.layout.tensor) == ("ddp", 1)


def test_a_model_that_ddp_cannot_hold_is_sharded() -> None:
    found = tried("llama-8b", Choices(nodes=(1,), strategies=("ddp", "fsdp")))
    ddp, fsdp = found
    assert ddp.rejected is not None
    assert ddp.rejected.startswith("its peak is 1")
    assert ddp.fits < 0.01
    assert fsdp.rejected is None
    assert fsdp.fits > 0.9


@pytest.mark.parametrize(
    ("layout", "reason"),
    [
        ({"tensor": (16,)}, "tensor parallelism over 16 GPUs leaves the 8 that fast links join"),
        ({"tensor": (3,)}, "3 ranks of a copy do not divide 16 GPUs"),
        ({"pipeline": (16,)}, "32 micro-batches leave a pipeline of 16 idle; 64 or more do not"),
        ({"micro_batch": (64,)}, "16 ranks with 64 each do not divide the global batch of 512"),
    ],
)
def test_the_rule_that_a_shape_breaks_is_told(layout: dict[str, tuple[int, ...]], reason: str) -> None:
    work = WORK if "pipeline" not in layout else replace(WORK, global_batch=32)
    (found,) = tried("llama-8b", Choices(nodes=(2,), **layout), work)  # type: ignore[arg-type]
    assert found.rejected == reason
    assert found.step is None


def test_heads_and_layers_have_to_be_divided() -> None:
    (found,) = tried("qwen2.5-0.5b", Choices(nodes=(1,), tensor=(4,)))
    assert found.rejected == "tensor parallelism over 4 does not divide 14 heads and 4,864 of the MLP"
    (found,) = tried("qwen2.5-0.5b", Choices(nodes=(2,), pipeline=(16,)))
    assert found.rejected == "16 stages do not divide 24 layers"


def test_hsdp_shards_inside_of_a_node_and_is_fsdp_on_one() -> None:
    one, two = tried("llama-8b", Choices(nodes=(1, 2), strategies=("hsdp",)))
    (fsdp,) = tried("llama-8b", Choices(nodes=(1,), strategies=("fsdp", "hsdp")))
    assert (one.peak, one.seconds) == (fsdp.peak, fsdp.seconds)
    assert (two.layout.shards, two.layout.data) == (8, 16)


def shape(nodes: int, seconds: float, tensor: int = 1) -> Shape:
    layout = Layout(data=8 * nodes // tensor, tensor=tensor)
    return Shape(nodes=nodes, strategy="ddp", layout=layout, seconds=Range(seconds, seconds))


def test_within_five_percent_the_simplest_wins() -> None:
    assert best_of_each_size([shape(1, 10.0, tensor=2), shape(1, 10.4)]) == [shape(1, 10.4)]
    assert best_of_each_size([shape(1, 10.0, tensor=2), shape(1, 10.6)]) == [shape(1, 10.0, tensor=2)]


def test_the_front_and_the_choice() -> None:
    linear, half, slower = shape(1, 10.0), shape(2, 5.5), shape(4, 6.0)
    assert front([linear, half, slower]) == [linear, half]
    assert chosen([linear, half, slower]) == half  # 10 % more GPU-hours
    assert chosen([linear, shape(2, 6.5), slower]) == linear  # 30 % more
    assert chosen([]) is None


def test_what_earlier_runs_measured_decides_what_fits() -> None:
    choices = Choices(nodes=(1,), strategies=("fsdp",))
    (before,) = tried("llama-8b", choices)
    (after,) = tried("llama-8b", choices, learned=Calibration(memory=Range(2.0, 2.1), runs=9))
    assert before.rejected is None
    assert after.rejected is not None
