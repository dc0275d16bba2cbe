"""Splits a micro-batch into parts along the first dimension of its tensors."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import torch

from slurmopt.errors import JobError
from slurmopt.training.accumulation import MicroBatch


def parts_of(micro: MicroBatch[Any], count: int) -> list[MicroBatch[Any]]:
    """`count` parts that are as even as they can be; the last one ends the step if the micro-batch does.

    All ranks have the same number of parts: what is left over is the first sample again, with weight 0, as is each part
    of a placeholder. Raises JobError if the batch has no tensors to split.
    """
    if count == 1:
        return [micro]
    size = size_of(micro.batch)
    bounds = [size * number // min(count, size) for number in range(min(count, size) + 1)]
    ranges = [*pairwise(bounds), *[(0, 1)] * (count - min(count, size))]
    each = 0.0 if not micro.samples else micro.weight / size
    return [
        MicroBatch(
            _cut(micro.batch, first, end, size),
            samples if number < size and micro.samples else 0,
            each * samples if number < size else 0.0,
            micro.last and number == count - 1,
            micro.indices if number == 0 else list,
        )
        for number, (first, end) in enumerate(ranges)
        for samples in [end - first]
    ]


def size_of(batch: Any) -> int:
    """The samples of a batch: the length of its first tensor. JobError if it has none."""
    tensor = _first_tensor(batch)
    if tensor is None or not tensor.ndim or not len(tensor):
        raise JobError(f"a batch of the type {type(batch).__name__} cannot be split: it has no tensor with samples")
    return len(tensor)


def _first_tensor(batch: Any) -> torch.Tensor | None:
    if isinstance(batch, torch.Tensor):
        return batch
    for value in _values(batch):
        if (found := _first_tensor(value)) is not None:
            return found
    return None


def _values(batch: Any) -> list[Any]:
    if isinstance(batch, Mapping):
        return list(batch.values())
    if isinstance(batch, list | tuple):
        return list(batch)
    if dataclasses.is_dataclass(batch):
        return [getattr(batch, item.name) for item in dataclasses.fields(batch)]
    return []


def _cut(batch: Any, first: int, end: int, size: int) -> Any:
    """The samples from `first` to `end`. Of tensors and lists with as many entries as the batch has samples these
    entries; all else, such as a mask for the whole batch, stays."""
    if isinstance(batch, torch.Tensor):
        return batch[first:end] if batch.ndim and len(batch) == size else batch
    if isinstance(batch, Mapping):
        cut = {name: _cut(value, first, end, size) for name, value in batch.items()}
        return cut if type(batch) is dict else type(batch)(cut)  # type: ignore[call-arg]
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(_cut(value, first, end, size) for value in batch))
    if isinstance(batch, list | tuple):
        if _first_tensor(batch) is None and len(batch) == size:
            return batch[first:end]
        return type(batch)(_cut(value, first, end, size) for value in batch)
    if dataclasses.is_dataclass(batch) and not isinstance(batch, type):
        changed = {item.name: _cut(getattr(batch, item.name), first, end, size) for item in dataclasses.fields(batch)}
        return dataclasses.replace(batch, **changed)
    return batch
