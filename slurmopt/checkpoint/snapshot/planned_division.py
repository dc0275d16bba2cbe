"""Divides a state that `Division` cannot: rank 0 plans for all ranks, and sends each its share.

The planner of torch.distributed.checkpoint supports every kind of sharded tensor. Its plan grows with ranks times
tensors, so only rank 0 has all of it, and `Division` is used where possible.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import torch
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex
from torch.distributed.checkpoint.planner import SavePlan, WriteItem, WriteItemType

from slurmopt.checkpoint.collectives import Collectives
from slurmopt.checkpoint.snapshot.division import SHARE_BYTES, Chunk


def plan_share(tensors: dict[str, torch.Tensor], ranks: Collectives, first_rank_only: Collection[str]) -> Any:
    """This rank's share, a list of chunks. A collective call."""
    planner = StatePlanner(divide=ranks.world_size > 1, first_rank_only=first_rank_only)
    planner.set_up_planner(tensors, is_coordinator=ranks.rank == 0)
    plans = ranks.gather_to_first(planner.create_local_plan())
    shares = None if plans is None else [_chunks(plan) for plan in planner.create_global_plan(plans)[0]]
    return ranks.scatter(shares)


def _chunks(plan: SavePlan) -> list[Chunk]:
    return [
        Chunk(item.index.fqn, tuple(item.tensor_data.chunk.offsets), tuple(item.tensor_data.chunk.sizes))
        for item in plan.items
        if item.tensor_data
    ]


class StatePlanner(DefaultSavePlanner):
    """DCP's planner for names that are flat already, which also divides large replicated tensors between the ranks.

    Those in `of_first` are written by rank 0, since the ranks' values may differ.
    """

    def __init__(self, divide: bool, first_rank_only: Collection[str] = ()) -> None:
        super().__init__(flatten_state_dict=False)
        self._divide, self._first_rank_only = divide, first_rank_only

    def create_local_plan(self) -> SavePlan:
        plan = super().create_local_plan()
        if not self.is_coordinator:
            plan = replace(plan, items=[item for item in plan.items if not self._is_first_rank_only(item)])
        if self._divide:
            plan = replace(plan, items=[part for item in plan.items for part in _divided(item)])
        self.plan = plan
        return plan

    def _is_first_rank_only(self, item: WriteItem) -> bool:
        return item.type == WriteItemType.TENSOR and item.index.fqn in self._first_rank_only


def _divided(item: WriteItem) -> list[WriteItem]:
    """A whole tensor as rows of about 16 MiB, which the planner then distributes."""
    data = item.tensor_data
    if item.type != WriteItemType.TENSOR or data is None or not data.size or not data.size.numel():
        return [item]
    row = data.properties.dtype.itemsize * (data.size.numel() // data.size[0])
    rows = max(1, SHARE_BYTES // max(1, row))
    if rows >= data.size[0]:
        return [item]
    parts = []
    for start in range(0, data.size[0], rows):
        offsets = torch.Size([start] + [0] * (len(data.size) - 1))
        sizes = torch.Size([min(rows, data.size[0] - start), *data.size[1:]])
        chunk = replace(data, chunk=ChunkStorageMetadata(offsets, sizes))
        index = MetadataIndex(item.index.fqn, offsets)
        parts.append(replace(item, index=index, type=WriteItemType.SHARD, tensor_data=chunk))
    return parts
