"""Restorer: loads a checkpoint into a state, and verifies every byte before it is used."""

from __future__ import annotations

import re
from collections import ChainMap
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import ReadItem
from torch.distributed.tensor import DTensor

from slurmopt.checkpoint.format.manifest import Item, Manifest
from slurmopt.checkpoint.format.object_decoder import decode as decode_object
from slurmopt.checkpoint.format.state import put_together, take_apart, tensor_names
from slurmopt.checkpoint.restore.fetching import ItemRead, Progress, bytes_of, no_progress, pieces_of, read_pieces
from slurmopt.checkpoint.restore.node_window import Window, read_shared
from slurmopt.checkpoint.snapshot.entries import can_derive, may_differ, per_rank_name, shared_name
from slurmopt.checkpoint.wrappers import renamed_keys, state_of, unwrapped, with_wrappers
from slurmopt.errors import CheckpointError
from slurmopt.storage.store import Store

_BUFFER_BYTES = 1 << 30
"""Bytes that are read through host buffers at a time: a device's whole state may not fit into host memory."""

_PER_RANK = re.compile(r"/rank-\d{5,}$")
"""The suffix that `per_rank_name` adds."""


class Restorer:
    """Reads one checkpoint of one tier into a state."""

    def __init__(
        self,
        store: Store,
        manifest: Manifest,
        rank: int,
        window: Window | None = None,
        progress: Progress = no_progress,
    ) -> None:
        """`window`: memory that it shares with the other ranks of its node, which then load the same checkpoint.
        `progress` is called with the bytes that were read."""
        self._store, self._manifest, self._rank = store, manifest, rank
        self._window, self._progress = window, progress
        self._items = {(item.name, item.offsets): item for item in manifest.items}

    def load(self, state: dict[str, Any]) -> None:
        """Fills `state`. Raises CheckpointError where it does not fit, before anything is changed, and Damaged for
        corrupt data, when parts of the state may have been overwritten."""
        try:
            skeletons = self._skeletons(state)
            tensors, nested = self._targets(state, skeletons)
            own = per_rank_names(state, self._rank, self._manifest.world_size)
            shared, direct, buffered = self._wanted(tensors, own)
        except BaseException:
            if self._window is not None:
                self._window.report_failure()
            raise
        if self._window is not None:
            shared = read_shared(self._window, self._store, self._manifest, shared, self._progress)
        self._read([each for each in [*shared, *direct] if each.into is not None])
        for batch in _batches([*(each for each in shared if each.into is None), *buffered]):
            self._read_by_buffer(batch)
        for name, value in state.items():
            _load_entry(state, name, value, nested[name], self._rank, self._rank < self._manifest.world_size)

    def _skeletons(self, state: dict[str, Any]) -> dict[str, Any]:
        """The saved skeleton of each entry, this rank's own where there is one per rank."""
        names = {name: self._object_of(name, value) for name, value in state.items()}
        wanted = [ItemRead(item, buffer=torch.empty(item.bytes, dtype=torch.uint8)) for item in names.values()]
        self._read(wanted)
        result = {}
        for (name, item), each in zip(names.items(), wanted, strict=True):
            assert each.buffer is not None
            result[name] = decode_object(bytes(bytes_of(each.buffer)), item.name)
        return result

    def _object_of(self, name: str, value: Any) -> Item:
        rank = self._rank if self._rank < self._manifest.world_size and may_differ(value) else 0
        item = self._items.get((name, None)) or self._items.get((per_rank_name(name, rank), None))
        if item is None:
            entries = sorted({key for key, offsets in self._items if offsets is None})
            raise CheckpointError(
                f"state[{name!r}] is not in {self._manifest.name}; it has: {', '.join(entries)}. "
                "Restore the state that was saved, and add what is new afterwards"
            )
        return item

    def _targets(
        self, state: dict[str, Any], skeletons: dict[str, Any]
    ) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """A target tensor for each saved one, the live tensor if it exists, and the nested states that contain them."""
        tensors: dict[str, torch.Tensor] = {}
        nested = {}
        all_live: dict[str, torch.Tensor] = {}
        for name, value in state.items():
            live: dict[str, torch.Tensor] = {}
            current = state_of(value)
            take_apart(name, current, ChainMap(live, all_live))
            all_live.update(live)
            skeleton = skeletons[name]
            live_names = {key: shared_name(name, key) for key in tensor_names(skeleton)}
            if isinstance(value, torch.Tensor):  # it is filled regardless of its saved name
                live = dict.fromkeys(live_names.values(), value)
            elif isinstance(value, torch.nn.Module):
                skeleton, live_names = _by_plain_keys(name, skeleton, current)
                self._check_names(name, set(live_names.values()), set(live))
            else:
                live = {each: live[each] for key, each in live_names.items() if self._fits(key, each, live)}
            targets = {key: self._target(key, live.get(each)) for key, each in live_names.items()}
            nested[name] = put_together(skeleton, targets.__getitem__)
            tensors.update(targets)
        return tensors, nested

    def _check_names(self, name: str, saved: set[str], live: set[str]) -> None:
        if missing := sorted(live - saved):
            raise CheckpointError(
                f"{missing[0]} is in the model and not in {self._manifest.name} ({len(missing)} such)"
            )
        if extra := sorted(saved - live):
            raise CheckpointError(f"{extra[0]} is in {self._manifest.name} and not in the model ({len(extra)} such)")

    def _fits(self, key: str, name: str, live: dict[str, torch.Tensor]) -> bool:
        """Whether the live tensor can be filled. A tensor that each rank has its own of may have another shape; then a
        new tensor is created."""
        if name not in live or key == name or key not in self._manifest.tensors:
            return name in live
        dtype, shape = self._manifest.tensors[key]
        return (f"torch.{dtype}", list(shape)) == (str(live[name].dtype), list(live[name].shape))

    def _target(self, name: str, live: torch.Tensor | None) -> torch.Tensor:
        if name not in self._manifest.tensors:
            raise CheckpointError(f"{self._manifest.key} lacks the tensor {name}")
        dtype_name, shape = self._manifest.tensors[name]
        dtype = getattr(torch, dtype_name, None)
        if not isinstance(dtype, torch.dtype):
            raise CheckpointError(f"{name} has the type {dtype_name!r}, which this torch does not know")
        if live is None:
            return torch.empty(shape, dtype=dtype)
        if tuple(live.shape) != tuple(shape):
            raise CheckpointError(
                f"{name}: {self._manifest.name} has shape {list(shape)}, and here it is {list(live.shape)}; "
                "build the model with the sizes it was saved with"
            )
        if live.dtype != dtype:
            live_dtype = str(live.dtype).removeprefix("torch.")
            raise CheckpointError(
                f"{name}: {self._manifest.name} has {dtype_name}, and here it is {live_dtype}; "
                "build the model with the type it was saved with"
            )
        if any(stride == 0 and size > 1 for stride, size in zip(live.stride(), live.shape, strict=True)):
            raise CheckpointError(f"{name}: its elements share memory here (expand()); give it memory of its own")
        return live

    def _wanted(
        self, tensors: dict[str, torch.Tensor], own: tuple[str, ...]
    ) -> tuple[list[ItemRead], list[ItemRead], list[ItemRead]]:
        """The items to read: those that all ranks need, those that are read into tensors, and those through buffers."""
        planner = DefaultLoadPlanner(flatten_state_dict=False)
        planner.set_up_planner(dict(tensors), self._metadata(tensors), is_coordinator=False)
        result: dict[Any, ItemRead] = {}
        direct: list[ItemRead] = []
        for read in planner.create_local_plan().items:
            self._want(read, planner.resolve_tensor(read), direct, result)
        everything = [*direct, *result.values()]
        whole = [name for name, tensor in tensors.items() if not isinstance(tensor, DTensor)]
        common = {name for name in whole if not name.startswith(own)} if self._window is not None else set()
        shared = [each for each in everything if each.item.name in common]
        rest = [each for each in everything if each.item.name not in common]
        return shared, [each for each in rest if each.into is not None], [each for each in rest if each.into is None]

    def _read_by_buffer(self, batch: list[ItemRead]) -> None:
        for each in batch:
            each.buffer = torch.empty(each.item.bytes, dtype=torch.uint8)
        self._read(batch)
        for each in batch:
            assert each.buffer is not None
            for copy in each.then:
                copy(each.buffer)
            each.buffer = None

    def _metadata(self, tensors: dict[str, torch.Tensor]) -> Metadata:
        chunks: dict[str, list[ChunkStorageMetadata]] = {name: [] for name in tensors}
        for item in self._manifest.items:
            if item.offsets is not None and item.sizes is not None and item.name in chunks:
                chunks[item.name].append(ChunkStorageMetadata(torch.Size(item.offsets), torch.Size(item.sizes)))
        return Metadata(
            {
                name: TensorStorageMetadata(
                    TensorProperties(dtype=getattr(torch, self._manifest.tensors[name][0])),
                    torch.Size(self._manifest.tensors[name][1]),
                    parts,
                )
                for name, parts in chunks.items()
            }
        )

    def _want(
        self, read: ReadItem, target: torch.Tensor, direct: list[ItemRead], buffered: dict[Any, ItemRead]
    ) -> None:
        """Plans a read into the target where its bytes have the saved layout, else through a buffer."""
        address = (read.storage_index.fqn, tuple(read.storage_index.offset or ()))
        item = self._items[address]
        assert item.sizes is not None
        dtype = getattr(torch, self._manifest.tensors[item.name][0])
        whole = tuple(read.lengths) == item.sizes
        if whole and target.dtype == dtype and target.is_contiguous() and target.is_cpu:
            direct.append(ItemRead(item, into=bytes_of(target)))
            return
        sizes = item.sizes

        def copy(buffer: torch.Tensor) -> None:
            source = buffer.view(dtype).view(sizes)
            for dimension, (start, length) in enumerate(zip(read.storage_offsets, read.lengths, strict=True)):
                source = source.narrow(dimension, start, length)
            target.copy_(source)

        buffered.setdefault(address, ItemRead(item)).then.append(copy)

    def _read(self, wanted: Iterable[ItemRead]) -> None:
        pieces = []
        for each in wanted:
            memory = each.into if each.into is not None else bytes_of(each.buffer)
            pieces += pieces_of(self._manifest, each.item, memory)
        read_pieces(self._store, pieces, self._progress)


def not_restored(manifest: Manifest, state: dict[str, Any]) -> list[str]:
    """The saved entries that are not in `state`."""
    entries = manifest.object_names
    return sorted({name for entry in entries if (name := _PER_RANK.sub("", entry)) not in state and entry not in state})


def resized(manifest: Manifest, state: dict[str, Any], world_size: int) -> list[str]:
    """The entries with one value per rank that do not fit another number of ranks."""
    if manifest.world_size == world_size:
        return []
    saved = manifest.object_names
    own = [name for name, value in state.items() if may_differ(value) and not can_derive(value)]
    return [name for name in own if name not in saved and per_rank_name(name, 0) in saved]


def _batches(wanted: Iterable[ItemRead]) -> Iterator[list[ItemRead]]:
    """Batches of at most `_BUFFER_BYTES`, each with at least one item."""
    batch: list[ItemRead] = []
    size = 0
    for each in wanted:
        if batch and size + each.item.bytes > _BUFFER_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(each)
        size += each.item.bytes
    if batch:
        yield batch


def per_rank_names(state: dict[str, Any], rank: int, world_size: int) -> tuple[str, ...]:
    """The prefixes of the names of this rank's own values, in a checkpoint of `world_size` ranks."""
    return tuple(per_rank_name(name, rank if rank < world_size else 0) for name in state)


def _by_plain_keys(
    name: str, skeleton: dict[str, Any], current_keys: Iterable[str]
) -> tuple[dict[str, Any], dict[str, str]]:
    """A model's skeleton with its current plain keys, and for each saved tensor its current name."""
    keys = renamed_keys(skeleton, current_keys)
    live_names = {
        tensor: f"{name}.{keys[key]}{shared_name(name, tensor).removeprefix(f'{name}.{key}')}"
        for key, part in skeleton.items()
        for tensor in tensor_names(part)
    }
    return {keys[key]: part for key, part in skeleton.items()}, live_names


def _load(name: str, owner: Any, saved: Any) -> None:
    try:
        owner.load_state_dict(with_wrappers(owner, saved) if isinstance(owner, torch.nn.Module) else saved)
    except (RuntimeError, ValueError, KeyError, TypeError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise CheckpointError(
            f"state[{name!r}]: {type(owner).__name__} does not take what was saved: {reason}"
        ) from error


def _load_entry(state: dict[str, Any], name: str, value: Any, saved: Any, rank: int, was_saved: bool) -> None:
    owner = unwrapped(value)
    if not was_saved and can_derive(value):
        value.derive(saved, rank)
    elif hasattr(owner, "load_state_dict"):
        _load(name, owner, saved)
    elif not isinstance(value, torch.Tensor):
        state[name] = saved
