"""SlurmoptReader: lets torch.distributed.checkpoint load slurmopt's checkpoints, with every byte verified."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import torch
from torch.distributed.checkpoint._nested_dict import flatten_state_dict
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import LoadItemType, LoadPlan, LoadPlanner, ReadItem
from torch.distributed.checkpoint.storage import StorageReader
from torch.futures import Future

from slurmopt.checkpoint.dcp.place import open_store, step_in
from slurmopt.checkpoint.format import ledger
from slurmopt.checkpoint.format.index import load_items
from slurmopt.checkpoint.format.ledger import Commit
from slurmopt.checkpoint.format.manifest import Item, Manifest
from slurmopt.checkpoint.format.manifest_reader import decode
from slurmopt.checkpoint.format.tensor_bytes import memory_of
from slurmopt.checkpoint.restore.fetching import read_pieces
from slurmopt.checkpoint.saved_state import dtype_of, read_item, read_state, resave_safely
from slurmopt.errors import CheckpointError
from slurmopt.storage.store import Store

_BATCH_BYTES = 64 << 20
"""Bytes that are read through buffers at a time; at least one item."""


class SlurmoptReader(StorageReader):
    """Reads from `place`, a folder or s3://BUCKET/PREFIX: the checkpoint of `step` (or of the `checkpoint_id` that
    `dcp.load` is given), or the newest complete one.

    What is no tensor was pickled by DCP, which unpickles it without care: only what torch.load takes with
    weights_only=True is handed over, unless `allow_pickles` says that you trust whoever saved it. Raises
    CheckpointError where there is no such checkpoint, and naming the key where one must not be loaded; Damaged for
    bytes that are not those that were saved. DCP wraps both in its CheckpointException.
    """

    def __init__(
        self, place: str | os.PathLike[str], *, step: int | None = None, allow_pickles: bool = False, **options: Any
    ) -> None:
        self._store: Store = open_store(place, options)
        self.place, self.step, self.allow_pickles = self._store.place, step, allow_pickles
        self._step = step
        self._manifest: Manifest | None = None
        self._values: dict[str, Any] = {}
        self._names: dict[str, str] = {}

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return True

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        named = step_in(checkpoint_id)
        self._step = self.step if named is None else named

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        commit = self._commit()
        self._manifest = manifest = load_items(self._store, decode(self._store.get(commit.manifest), commit))
        if manifest.paths:
            self._names = {name: name for name in manifest.tensors}
            self._values, paths = {}, dict(manifest.paths)
        else:  # saved by Checkpointer: nested, with objects as JSON
            flat, paths = flatten_state_dict(read_state(self._store, manifest))
            self._names = {name: value.saved_name for name, value in flat.items() if hasattr(value, "saved_name")}
            self._values = {name: value for name, value in flat.items() if name not in self._names}
        entries: dict[str, Any] = dict.fromkeys(paths, BytesStorageMetadata())
        chunks = _chunks(manifest)
        entries.update({flat: _tensor(manifest, name, chunks.get(name, [])) for flat, name in self._names.items()})
        return Metadata(entries, planner_data=paths)

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        pass

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        return replace(plan, storage_data=self._read.name)

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        names = sorted({str(plan.storage_data) for plan in plans})
        if len(names) > 1:  # another was committed meanwhile
            raise CheckpointError(
                f"the ranks found different ones newest: {', '.join(names)}; load again, or give step"
            )
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        tensors: dict[tuple[str, tuple[int, ...]], list[ReadItem]] = {}
        for read in plan.items:
            if read.type == LoadItemType.BYTE_IO:
                planner.load_bytes(read, io.BytesIO(self._object(read.storage_index.fqn)))
            else:
                name = self._names[read.storage_index.fqn]
                tensors.setdefault((name, tuple(read.storage_index.offset or ())), []).append(read)
        self._read_tensors(tensors, planner)
        done: Future[None] = Future()
        done.set_result(None)
        return done

    @property
    def _read(self) -> Manifest:
        assert self._manifest is not None, "read_metadata comes first"
        return self._manifest

    def _commit(self) -> Commit:
        commits = ledger.read(self._store).commits
        if not commits:
            raise CheckpointError(f"{self._store.place} holds no complete checkpoint")
        fitting = [commit for commit in commits if self._step in (None, commit.step)]
        if not fitting:
            steps = ", ".join(str(step) for step in sorted({commit.step for commit in commits}))
            raise CheckpointError(f"{self._store.place} has no checkpoint of step {self._step}; it has: {steps}")
        return fitting[0]

    def _object(self, name: str) -> bytes:
        """The bytes of an object, which DCP unpickles with weights_only=False."""
        if name in self._values:  # decoded safely, and pickled by this process
            file = io.BytesIO()
            torch.save(self._values[name], file)
            return file.getvalue()
        item = next(item for item in self._read.items if item.name == name and item.offsets is None)
        data = read_item(self._store, self._read, item)
        return bytes(data) if self.allow_pickles else resave_safely(name, data)

    def _read_tensors(self, wanted: dict[tuple[str, tuple[int, ...]], list[ReadItem]], planner: LoadPlanner) -> None:
        """Reads into the targets where their bytes have the saved layout, else through buffers in batches."""
        items = {(item.name, item.offsets): item for item in self._read.items if item.offsets is not None}
        direct: list[tuple[Item, torch.Tensor]] = []
        buffered: list[tuple[Item, list[ReadItem]]] = []
        finish: list[Callable[[], None]] = []
        for address, reads in wanted.items():
            item = items[address]
            target = planner.resolve_tensor(reads[0]).detach()
            if len(reads) == 1 and self._takes_bytes(target, item, reads[0]):
                direct.append((item, target))
                finish.append(lambda read=reads[0], target=target: planner.commit_tensor(read, target))  # type: ignore[misc]
            else:
                buffered.append((item, reads))
        self._fill((item, _flat(target)) for item, target in direct)
        for done in finish:
            done()
        for batch in _batches(buffered):
            self._read_batch(batch, planner)

    def _takes_bytes(self, target: torch.Tensor, item: Item, read: ReadItem) -> bool:
        same = tuple(read.lengths) == item.sizes and target.dtype == dtype_of(self._read, item.name)
        return bool(same and target.is_contiguous() and target.is_cpu)

    def _read_batch(self, batch: list[tuple[Item, list[ReadItem]]], planner: LoadPlanner) -> None:
        buffers = [torch.empty(item.bytes, dtype=torch.uint8) for item, _ in batch]
        self._fill((item, buffer) for (item, _), buffer in zip(batch, buffers, strict=True))
        for (item, reads), buffer in zip(batch, buffers, strict=True):
            whole = buffer.view(dtype_of(self._read, item.name)).view(item.sizes)
            for read in reads:
                source = whole
                for dimension, (start, length) in enumerate(zip(read.storage_offsets, read.lengths, strict=True)):
                    source = source.narrow(dimension, start, length)
                target = planner.resolve_tensor(read).detach()
                target.copy_(source)
                planner.commit_tensor(read, target)

    def _fill(self, targets: Iterable[tuple[Item, torch.Tensor]]) -> None:
        pieces = []
        for item, target in targets:
            memory, end = memory_of(target), 0
            for segment in item.segments:
                pieces.append((memory[end : end + segment.raw], self._read.files[segment.file], segment))
                end += segment.raw
        read_pieces(self._store, pieces)


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.reshape(-1).view(torch.uint8)


def _batches(items: list[tuple[Item, list[ReadItem]]]) -> Iterable[list[tuple[Item, list[ReadItem]]]]:
    batch: list[tuple[Item, list[ReadItem]]] = []
    for each in items:
        if batch and sum(item.bytes for item, _ in batch) + each[0].bytes > _BATCH_BYTES:
            yield batch
            batch = []
        batch.append(each)
    if batch:
        yield batch


def _chunks(manifest: Manifest) -> dict[str, list[ChunkStorageMetadata]]:
    chunks: dict[str, list[ChunkStorageMetadata]] = {}
    for item in manifest.items:
        if item.offsets is not None and item.sizes is not None:
            chunk = ChunkStorageMetadata(torch.Size(item.offsets), torch.Size(item.sizes))
            chunks.setdefault(item.name, []).append(chunk)
    return chunks


def _tensor(manifest: Manifest, name: str, chunks: list[ChunkStorageMetadata]) -> TensorStorageMetadata:
    size = torch.Size(manifest.tensors[name][1])
    return TensorStorageMetadata(TensorProperties(dtype=dtype_of(manifest, name)), size, chunks)
