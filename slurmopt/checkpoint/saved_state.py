"""Reads the nested state of a checkpoint without its tensors' data, which callers read one by one."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from typing import Any

import torch
from torch.distributed.checkpoint._nested_dict import unflatten_state_dict

from slurmopt.checkpoint.format.manifest import Item, Manifest
from slurmopt.checkpoint.format.object_decoder import decode
from slurmopt.checkpoint.format.state import put_together
from slurmopt.checkpoint.restore.fetching import read_pieces
from slurmopt.errors import CheckpointError
from slurmopt.storage.store import Store

_OF_A_RANK = re.compile(r"(.+)/(rank-\d{5,})")
MakeTensor = Callable[[str, torch.dtype, tuple[int, ...]], Any]


def placeholder(name: str, dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    """A meta tensor in place of a saved one, with its name as `saved_name`."""
    tensor = torch.empty(shape, dtype=dtype, device="meta")
    tensor.saved_name = name
    return tensor


def read_state(store: Store, manifest: Manifest, tensor: MakeTensor = placeholder) -> dict[str, Any]:
    """The nested state, with `tensor(name, dtype, shape)` in each tensor's place.

    An entry with one value per rank is a dict: `state["rng"]["rank-00000"]`. Raises CheckpointError for an object that
    could only be read by trusting it, and Damaged for corrupt data.
    """
    objects = {item.name: item for item in manifest.items if item.offsets is None}

    def make(name: str) -> Any:
        if name not in manifest.tensors:
            raise CheckpointError(f"{manifest.key} lacks the tensor {name}")
        return tensor(name, dtype_of(manifest, name), tuple(manifest.tensors[name][1]))

    if manifest.paths:  # saved through torch.distributed.checkpoint
        flat = {
            name: _unpickled(name, read_item(store, manifest, objects[name])) if name in objects else make(name)
            for name in manifest.paths
        }
        return unflatten_state_dict(flat, manifest.paths)
    state: dict[str, Any] = {}
    for name, item in objects.items():
        value = put_together(decode(bytes(read_item(store, manifest, item)), name), make)
        if match := _OF_A_RANK.fullmatch(name):
            state.setdefault(match[1], {})[match[2]] = value
        else:
            state[name] = value
    return state


def dtype_of(manifest: Manifest, name: str) -> torch.dtype:
    """A saved tensor's dtype; CheckpointError where this torch does not have it."""
    dtype = vars(torch).get(manifest.tensors[name][0])
    if not isinstance(dtype, torch.dtype):
        raise CheckpointError(f"{name} has the type {manifest.tensors[name][0]!r}, which this torch does not know")
    return dtype


def read_item(store: Store, manifest: Manifest, item: Item) -> memoryview:
    """The verified bytes of an item."""
    memory, pieces, end = memoryview(bytearray(item.bytes)), [], 0
    for segment in item.segments:
        pieces.append((memory[end : end + segment.raw], manifest.files[segment.file], segment))
        end += segment.raw
    read_pieces(store, pieces)
    return memory


def resave_safely(name: str, data: memoryview) -> bytes:
    """Loads an object of torch.save with weights_only=True and saves it again, so that no untrusted bytes are kept."""
    file = io.BytesIO()
    torch.save(_unpickled(name, data), file)
    return file.getvalue()


def _unpickled(name: str, data: memoryview) -> Any:
    try:
        return torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    # A malicious pickle can raise any exception.
    except Exception as error:
        reason = str(error).partition("\n")[0][:200] or type(error).__name__
        raise CheckpointError(
            f"{name}: torch.load(weights_only=True) refuses what was saved, so loading it could run code: {reason}"
        ) from error
