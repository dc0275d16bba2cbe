"""Encodes values that are not large tensors, in the format of `object_format`."""

from __future__ import annotations

import base64
import io
import json
import math
import struct
import sys
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable
from typing import Any

from slurmopt.checkpoint.format.object_format import (
    DEEPEST,
    FACTORIES,
    NUMPY_ARRAYS,
    NUMPY_SCALARS,
    TENSOR_DTYPES,
    load_weights_only,
)  # fmt: skip
from slurmopt.checkpoint.format.tensor_bytes import memory_of
from slurmopt.errors import CheckpointError, one_line

_WHOLE = 2**63  # integers beyond it are written in hex: Python reads long decimal ones slowly or not at all


def encode(value: object, key: str) -> bytes:
    """Encodes `value` as ASCII text, from which `decode` makes an equal value of the same types.

    Supported are None, numbers, str, bytes, the containers of Python (also OrderedDict, Counter, and defaultdict of a
    plain type), torch's Size, dtype and device, tensors, and NumPy's scalars and arrays; within these, whatever
    torch.load reads with weights_only=True. Tensors lose their device and their strides. A subclass is not saved as its
    base class.

    Raises CheckpointError that names `key`, the path within the value, and the type that cannot be saved.
    """
    try:
        tree = _to_json(value, 0)
    except _UnsupportedError as error:
        raise CheckpointError(f"{one_line(key + error.place)}: {error}") from None
    return json.dumps(tree, separators=(",", ":"), allow_nan=False).encode("ascii")


class _UnsupportedError(Exception):
    """`place` is the path to the value, built up while the error passes the containers: `[3]['name']`."""

    place = ""


def _to_json(value: Any, depth: int) -> Any:
    kind = type(value)
    if value is None or kind is bool:
        return value
    if depth > DEEPEST:
        raise _UnsupportedError(f"nested deeper than {DEEPEST} levels, or it contains itself")
    if kind in _ENCODERS:
        return _ENCODERS[kind](value, depth + 1)
    tagged = _torch_to_json(value) or _numpy_to_json(value) or _saved_by_torch(value)
    if tagged is None:
        raise _UnsupportedError(
            f"a {kind.__module__}.{kind.__qualname__} cannot be saved: give it state_dict and load_state_dict, or turn"
            " it into numbers, strings, lists and dicts"
        )
    return tagged


def _int(value: int, depth: int) -> Any:
    return value if -_WHOLE <= value < _WHOLE else {"int": hex(value)}


def _float(value: float, depth: int) -> Any:
    return value if math.isfinite(value) else {"float": struct.pack(">d", value).hex()}  # a NaN has a payload


def _str(value: str, depth: int) -> Any:
    if value.isascii() or not any("\ud800" <= char <= "\udfff" for char in value):
        return value
    return {"str": value.encode("utf-8", "surrogatepass").hex()}  # JSON would join two surrogates into one character


def _sequence(tag: str | None) -> Callable[[Any, int], Any]:
    def to_json(values: Any, depth: int) -> Any:
        items = []
        for index, value in enumerate(values):
            try:
                items.append(_to_json(value, depth))
            except _UnsupportedError as error:
                error.place = f"[{index}]{error.place}"
                raise
        return {tag: items} if tag else items

    return to_json


def _set(tag: str) -> Callable[[Any, int], Any]:
    def to_json(values: Any, depth: int) -> Any:
        items = [_to_json(value, depth) for value in values]
        return {tag: sorted(items, key=json.dumps)}  # equal sets have equal bytes

    return to_json


def _mapping(tag: str) -> Callable[[Any, int], Any]:
    def to_json(values: Any, depth: int) -> Any:
        pairs = []
        for name, value in values.items():
            try:
                pairs.append([_to_json(name, depth), _to_json(value, depth)])
            except _UnsupportedError as error:
                error.place = f"[{name!r}]{error.place}"
                raise
        return {tag: pairs}

    return to_json


def _defaultdict(value: defaultdict[Any, Any], depth: int) -> Any:
    factory = value.default_factory
    name = None if factory is None else getattr(factory, "__name__", "")
    if name is not None and FACTORIES.get(name) is not factory:
        raise _UnsupportedError(
            f"a defaultdict of {factory!r} cannot be saved: turn it into a dict, or use one of {', '.join(FACTORIES)}"
        )
    return {"defaultdict": [name, _mapping("dict")(value, depth)["dict"]]}


_ENCODERS: dict[type, Callable[[Any, int], Any]] = {
    int: _int,
    float: _float,
    str: _str,
    complex: lambda value, depth: {"complex": [_float(value.real, depth), _float(value.imag, depth)]},
    bytes: lambda value, depth: {"bytes": _text(value)},
    bytearray: lambda value, depth: {"bytearray": _text(value)},
    list: _sequence(None),
    tuple: _sequence("tuple"),
    set: _set("set"),
    frozenset: _set("frozenset"),
    dict: _mapping("dict"),
    OrderedDict: _mapping("OrderedDict"),
    Counter: _mapping("Counter"),
    defaultdict: _defaultdict,
}


def _torch_to_json(value: Any) -> Any:
    torch = sys.modules.get("torch")  # without it imported, the value is not of torch
    if torch is None:
        return None
    if type(value) is torch.Size:
        return {"torch.Size": list(value)}
    if type(value) is torch.dtype:
        return {"torch.dtype": _dtype_name(value)}
    if type(value) is torch.device:
        return {"torch.device": str(value)}
    if type(value) is torch.Tensor and _is_plain(torch, value):
        plain = value.resolve_conj().resolve_neg().cpu().contiguous()
        data = bytes(memory_of(plain))
        return {"torch.Tensor": [_dtype_name(value.dtype), list(value.shape), _text(data)]}
    return None


def _is_plain(torch: Any, tensor: Any) -> bool:
    """Whether dtype, shape and bytes define the tensor."""
    strided = tensor.layout == torch.strided and tensor.device.type != "meta"
    return bool(strided and not tensor.requires_grad and _dtype_name(tensor.dtype) in TENSOR_DTYPES)


def _numpy_to_json(value: Any) -> Any:
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return None
    if isinstance(value, numpy.generic) and value.dtype.kind in NUMPY_SCALARS:
        is_preserved = numpy.dtype(value.dtype.str).type is type(value)  # longlong would be decoded as int64
        return {"numpy.scalar": [value.dtype.str, _text(value.tobytes())]} if is_preserved else None
    if type(value) is numpy.ndarray and value.dtype.kind in NUMPY_ARRAYS and value.dtype.itemsize:
        return {"numpy.ndarray": [value.dtype.str, list(value.shape), _text(value.tobytes())]}
    return None


def _saved_by_torch(value: Any) -> Any:
    """The value as torch.save writes it; None where torch cannot save it, or could load it only by trusting it."""
    torch = sys.modules.get("torch")
    if torch is None:
        return None
    file = io.BytesIO()
    try:
        torch.save(value, file)
        load_weights_only(torch, file.getvalue())
    except Exception:  # noqa: BLE001  # whatever the reason, the caller reports the type
        return None
    return {"torch.save": _text(file.getvalue())}


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _dtype_name(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")
