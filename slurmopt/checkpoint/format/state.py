"""Splits a nested state into named tensors and a skeleton of the rest, and joins them again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from typing import Any

import torch

from slurmopt.errors import CheckpointError

_TENSOR = "\0tensor"
"""The only key of the dict that replaces a tensor in a skeleton."""


def take_apart(name: str, value: Any, tensors: MutableMapping[str, torch.Tensor]) -> Any:
    """Adds the tensors of `value` to `tensors`, under dotted names that start with `name`; returns the skeleton."""
    if isinstance(value, torch.Tensor):
        unique = _unique(name, tensors)
        tensors[unique] = _checked(unique, value)
        return {_TENSOR: unique}
    if isinstance(value, Mapping):
        if _TENSOR in value:
            raise CheckpointError(f"{name}: a key of it is {_TENSOR!r}, which slurmopt uses itself")
        return _same_kind(value, {key: take_apart(f"{name}.{key}", each, tensors) for key, each in value.items()})
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields") and not isinstance(value, torch.Size):
        parts = [take_apart(f"{name}.{index}", each, tensors) for index, each in enumerate(value)]
        return parts if isinstance(value, list) else tuple(parts)
    return value


def put_together(skeleton: Any, tensor: Callable[[str], Any]) -> Any:
    """The nested state, with `tensor(name)` in each tensor's place."""
    if isinstance(skeleton, dict):
        if skeleton.keys() == {_TENSOR}:
            return tensor(skeleton[_TENSOR])
        return _same_kind(skeleton, {key: put_together(each, tensor) for key, each in skeleton.items()})
    if isinstance(skeleton, list):
        return [put_together(each, tensor) for each in skeleton]
    if type(skeleton) is tuple:
        return tuple(put_together(each, tensor) for each in skeleton)
    return skeleton


def tensor_names(skeleton: Any) -> list[str]:
    """The names of the tensors in a skeleton."""
    names: list[str] = []
    put_together(skeleton, names.append)
    return names


def renamed(skeleton: Any, names: Mapping[str, str]) -> Any:
    """A skeleton with the tensors in `names` renamed."""
    return put_together(skeleton, lambda name: {_TENSOR: names.get(name, name)})


def _same_kind(value: Mapping[Any, Any], entries: dict[Any, Any]) -> dict[Any, Any]:
    kind = type(value)
    if kind.__name__ == "OrderedDict":
        return kind(entries)  # type: ignore[call-arg,return-value]
    return entries


def _unique(name: str, tensors: Mapping[str, torch.Tensor]) -> str:
    """A unique name: `a.b` may be one key or two, so the second gets a number."""
    unique, number = name, 1
    while unique in tensors:
        number += 1
        unique = f"{name}#{number}"
    return unique


def _checked(name: str, tensor: torch.Tensor) -> torch.Tensor:
    if tensor.layout != torch.strided or tensor.is_quantized:
        kind = "quantized" if tensor.is_quantized else str(tensor.layout)
        raise CheckpointError(f"{name}: a {kind} tensor cannot be saved; make it a dense one in state_dict()")
    if tensor.device.type == "meta":
        raise CheckpointError(f"{name}: a tensor on the meta device has no values to save")
    return tensor
