"""Each rank's share of a state, found from shapes and placements alone: nothing is lacking, nothing is there twice."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor._utils import _compute_local_shape_and_global_offset
from torch.distributed.tensor.placement_types import Partial, _StridedShard
from torch.testing._internal.distributed.fake_pg import FakeStore

from slurmopt.checkpoint.snapshot.division import SHARE_BYTES, Division

WORLD = 8


@pytest.fixture(autouse=True)
def world() -> Iterator[None]:
    """Eight ranks of which this process is one, and nobody is asked."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=WORLD)
    yield
    dist.destroy_process_group()


def mesh(*shape: int) -> DeviceMesh:
    return DeviceMesh("cpu", torch.arange(math.prod(shape)).view(shape), _init_backend=False)


def sharded(shape: tuple[int, ...], on: DeviceMesh, *placements: Any) -> DTensor:
    local = torch.empty(
        _compute_local_shape_and_global_offset(shape, on.shape, [0] * len(placements), placements)[0], device="meta"
    )
    strides = torch.empty(shape, device="meta").stride()
    return DTensor.from_local(local, on, placements, run_check=False, shape=torch.Size(shape), stride=strides)


def elements(name: str, division: Division, size: tuple[int, ...]) -> Counter[Any]:
    """How often each element of a tensor is written, over all ranks."""
    times = torch.zeros(size, dtype=torch.int64)
    for rank in range(WORLD):
        for chunk in division.share(rank):
            if chunk.name == name:
                times[tuple(slice(at, at + n) for at, n in zip(chunk.offsets, chunk.sizes, strict=True))] += 1
    return Counter(times.flatten().tolist())


SPREADS = {
    "fsdp": ((WORLD,), (Shard(0),)),
    "of another dimension": ((WORLD,), (Shard(1),)),
    "hybrid": ((2, 4), (Replicate(), Shard(0))),
    "tensor parallel": ((2, 4), (Shard(1), Shard(0))),
    "one dimension by both": ((2, 4), (Shard(0), Shard(0))),
    "fsdp of tensor parallel": ((2, 4), (_StridedShard(0, split_factor=4), Shard(0))),
    "on all": ((2, 4), (Replicate(), Replicate())),
}


@pytest.mark.parametrize("shape", [(64, 16), (65, 9), (3, 2), (8, 1)])
@pytest.mark.parametrize("spread", SPREADS.values(), ids=SPREADS.keys())
def test_every_element_is_written_once(spread: Any, shape: tuple[int, ...]) -> None:
    grid, placements = spread
    division = Division({"w": sharded(shape, mesh(*grid), *placements)}, WORLD)
    if not division.derivable:
        assert any(isinstance(each, _StridedShard) for each in placements)
        assert shape[0] % 8
        return
    assert elements("w", division, shape) == {1: math.prod(shape)}
    spread = division.spread()
    held = set(spread.layouts[spread.tensors["w"]])
    assert held == {(c.offsets, c.sizes, rank) for rank in range(WORLD) for c in division.share(rank)}


@pytest.mark.parametrize("spread", SPREADS.values(), ids=SPREADS.keys())
@pytest.mark.parametrize("shape", [(64, 16), (40, 24), (17, 9)])
def test_a_shard_lies_where_torch_has_it(spread: Any, shape: tuple[int, ...]) -> None:
    grid, placements = spread
    on = mesh(*grid)
    division = Division({"w": sharded(shape, on, *placements)}, WORLD)
    if not division.derivable:
        return
    replicated = [each.is_replicate() for each in placements]
    for rank in range(WORLD):
        coordinate = [int(at) for at in (on.mesh == rank).nonzero()[0]]
        sizes, offsets = _compute_local_shape_and_global_offset(shape, on.shape, coordinate, placements)
        mine = [(chunk.sizes, chunk.offsets) for chunk in division.share(rank)]
        assert mine == [(sizes, offsets)] or (not math.prod(sizes) and not mine) or (any(replicated) and not mine)


def test_replicas_write_about_as_much_each() -> None:
    on = mesh(2, 4)
    division = Division({f"w{n}": sharded((64, 8 + n), on, Replicate(), Shard(0)) for n in range(20)}, WORLD)
    loads = [sum(math.prod(chunk.sizes) for chunk in division.share(rank)) for rank in range(WORLD)]
    assert max(loads) < 1.2 * min(loads)


@pytest.mark.slow
def test_whole_tensors_are_dealt_in_equal_shares_and_small_ones_lie_together() -> None:
    rows = SHARE_BYTES // 4096
    tensors = {"large": torch.empty(rows * 20, 1024, device="meta")}
    tensors |= {f"step.{n}": torch.empty((), device="meta") for n in range(500)}
    division = Division(tensors, WORLD)
    assert elements("large", division, (rows * 20, 1024)) == {1: rows * 20 * 1024}
    loads = [sum(4 * math.prod(chunk.sizes) for chunk in division.share(rank)) for rank in range(WORLD)]
    assert max(loads) - min(loads) <= SHARE_BYTES + 4096
    small = [rank for rank in range(WORLD) for chunk in division.share(rank) if chunk.name.startswith("step")]
    assert len(small) == 500
    assert len(set(small)) == 1


def test_the_order_of_the_entries_does_not_matter() -> None:
    tensors = {f"t{n}": torch.empty(1000 + n, 5000, device="meta") for n in range(30)}
    backwards = dict(reversed(tensors.items()))
    one, other = Division(tensors, WORLD), Division(backwards, WORLD)
    assert one.digest == other.digest
    assert [one.share(rank) for rank in range(WORLD)] == [other.share(rank) for rank in range(WORLD)]


def test_what_each_has_its_own_is_its_own_and_buffers_are_those_of_rank_0() -> None:
    tensors = {"mean": torch.empty(10, device="meta"), "rng/rank-00003": torch.empty(5, device="meta")}
    division = Division(tensors, WORLD, own=["rng/rank-00003"], first_rank_only=["mean"])
    assert {chunk.name for chunk in division.share(3)} == {"rng/rank-00003"}
    assert "mean" in {chunk.name for chunk in division.share(0)}
    assert division.digest == Division({"mean": tensors["mean"]}, WORLD, first_rank_only=["mean"]).digest


@pytest.mark.parametrize(
    ("grid", "placements"),
    [((4,), (Shard(0),)), ((WORLD,), (Partial(),)), ((2, 4), (Shard(0), _StridedShard(0, split_factor=2)))],
)
def test_what_shapes_do_not_decide_is_left_to_the_planner(grid: tuple[int, ...], placements: Any) -> None:
    """A mesh of some ranks only, sums that are still to be made, shards that are not in one piece."""
    assert not Division({"w": sharded((64, 16), mesh(*grid), *placements)}, WORLD).derivable


def test_other_placements_are_another_division() -> None:
    on = mesh(WORLD)
    digests = {Division({"w": sharded((64, 64), on, each)}, WORLD).digest for each in (Shard(0), Shard(1), Replicate())}
    assert len(digests) == 3
