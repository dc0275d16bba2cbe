"""Exports a checkpoint to a folder of torch.distributed.checkpoint, with one item in memory at a time."""

from __future__ import annotations

import io
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex
from torch.distributed.checkpoint.planner import SavePlan, WriteItem, WriteItemType

from slurmopt.checkpoint.dcp.export import chosen
from slurmopt.checkpoint.format.manifest import Item, Manifest
from slurmopt.checkpoint.saved_state import dtype_of, read_item, read_state
from slurmopt.errors import InputError
from slurmopt.storage.store import Store


def to_dcp(store: Store, manifest: Manifest, path: Path, key: str | None) -> None:
    """Writes the whole state, or one entry of it, in the parts in which it was saved."""
    state = chosen(read_state(store, manifest), key, manifest)
    if not isinstance(state, dict):
        raise InputError(f"{key} is a {type(state).__name__}, and DCP keeps dicts; valid: --format torch")
    writer = dcp.FileSystemWriter(path, single_file_per_rank=True, thread_count=1)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="torch.distributed is")  # a single process is intended
            dcp.save(state, storage_writer=writer, planner=_FromStorage(store, manifest), no_dist=True)
    except CheckpointException as error:  # DCP wraps the exception
        cause = next(iter(error.failures.values()))[0]
        raise cause from error


class _FromStorage(DefaultSavePlanner):
    """Plans with placeholders; a tensor's data is read when it is written."""

    def __init__(self, store: Store, manifest: Manifest) -> None:
        super().__init__()
        self._store, self._manifest = store, manifest
        self._items: dict[str, dict[tuple[int, ...], Item]] = {}
        for item in manifest.items:
            if item.offsets is not None:
                self._items.setdefault(item.name, {})[item.offsets] = item

    def create_local_plan(self) -> SavePlan:
        plan = super().create_local_plan()
        self.plan = replace(plan, items=[part for item in plan.items for part in self._parts(item)])
        return self.plan

    def resolve_data(self, write_item: WriteItem) -> torch.Tensor | io.BytesIO:
        saved = self._saved(write_item)
        if saved is None:
            return super().resolve_data(write_item)
        assert write_item.tensor_data is not None
        sizes = write_item.tensor_data.chunk.sizes
        item = saved.get(tuple(write_item.tensor_data.chunk.offsets))
        if item is None:  # a tensor without elements
            return torch.empty(sizes, dtype=write_item.tensor_data.properties.dtype)
        data = read_item(self._store, self._manifest, item)
        return torch.frombuffer(data, dtype=torch.uint8).view(dtype_of(self._manifest, item.name)).view(sizes)

    def _saved(self, item: WriteItem) -> dict[tuple[int, ...], Item] | None:
        """The saved parts of a tensor; None for an item that is not a saved tensor."""
        value: Any = self.state_dict[item.index.fqn]
        return self._items.get(value.saved_name, {}) if hasattr(value, "saved_name") else None

    def _parts(self, item: WriteItem) -> list[WriteItem]:
        saved, data = self._saved(item), item.tensor_data
        if not saved or data is None:
            return [item]
        parts: list[WriteItem] = []
        for offsets, each in saved.items():
            assert each.sizes is not None
            chunk = ChunkStorageMetadata(torch.Size(offsets), torch.Size(each.sizes))
            index = MetadataIndex(item.index.fqn, chunk.offsets, len(parts))
            tensor_data = replace(data, chunk=chunk)
            parts.append(replace(item, index=index, type=WriteItemType.SHARD, tensor_data=tensor_data))
        return parts
