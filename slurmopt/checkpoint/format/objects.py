"""What a state holds besides large tensors, as bytes that can be read without trusting them.

Everything becomes JSON. A plain JSON value is itself; every other one is an object of one key, its tag, so that types
come back as they were: `(1, "a")` is `{"tuple": [1, "a"]}`. A leaf that no tag is for goes through torch.save, if
torch.load(weights_only=True) can read it. So no pickle is ever loaded that could run code.
"""

from __future__ import annotations

import base64
import io
import json
import math
import struct
import sys
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from slurmopt.checkpoint.format.tensor_bytes import memory_of
from slurmopt.errors import CheckpointError, one_line

_DEEPEST = 100  # levels of nesting; a list that contains itself has no end
_WHOLE = 2**63  # whole numbers beyond it are written in hex, as Python reads long decimal ones slowly or not at all
_FACTORIES: dict[str, Any] = {kind.__name__: kind for kind in (int, float, str, bool, list, dict, set, tuple)}
_NUMPY_SCALARS, _NUMPY_ARRAYS = "biufcmM", "biufcmMSU"  # kinds of dtype: what is bytes and nothing else
_TENSORS = frozenset(  # dtypes whose bytes say all; not so the quantized ones
    {"bool", "float16", "bfloat16", "float32", "float64", "complex32", "complex64", "complex128"}
    | {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
    | {f"float8_{form}" for form in ("e4m3fn", "e5m2", "e4m3fnuz", "e5m2fnuz", "e8m0fnu")}
)


def encode(value: object, key: str) -> bytes:
    """`value` as ASCII text, from which `decode` makes an equal one of the same types.

    None, numbers, str, bytes, the containers of Python (also OrderedDict, Counter, and defaultdict of a plain type),
    torch's Size, dtype and device, tensors, and NumPy's scalars and arrays; within these, whatever torch.load takes
    with weights_only=True. Tensors lose their device and their strides. Subclasses are not taken for their base.

    CheckpointError names `key`, the place within it and the type of what cannot be saved.
    """
    try:
        tree = _to_json(value, 0)
    except _UnsupportedError as error:
        raise CheckpointError(f"{one_line(key + error.place)}: {error}") from None
    return json.dumps(tree, separators=(",", ":"), allow_nan=False).encode("ascii")


def decode(data: bytes, key: str) -> Any:
    """The value that `encode` was given; tensors are on the CPU. CheckpointError, with `key`, for any other bytes."""
    try:
        return _from_json(json.loads(bytes(data).decode("ascii"), parse_int=_short_int, parse_constant=_no_constant), 0)
    # Hostile bytes can fail in any way that JSON, NumPy and torch know of; none of them may reach the caller.
    except Exception as error:
        reason = one_line(str(error).partition("\n")[0])[:200] or type(error).__name__
        raise CheckpointError(f"{one_line(key)}: what was saved cannot be read: {reason}") from error


class _UnsupportedError(Exception):
    """`place` grows on the way up through the containers: `[3]['name']`."""

    place = ""


def _to_json(value: Any, depth: int) -> Any:
    kind = type(value)
    if value is None or kind is bool:
        return value
    if depth > _DEEPEST:
        raise _UnsupportedError(f"nested deeper than {_DEEPEST} levels, or it contains itself")
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
    return value if math.isfinite(value) else {"float": struct.pack(">d", value).hex()}  # a nan has a payload


def _str(value: str, depth: int) -> Any:
    if value.isascii() or not any("\ud800" <= char <= "\udfff" for char in value):
        return value
    return {"str": value.encode("utf-8", "surrogatepass").hex()}  # JSON would make one character of two surrogates


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
        return {tag: sorted(items, key=json.dumps)}  # equal sets, equal bytes

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
    if name is not None and _FACTORIES.get(name) is not factory:
        raise _UnsupportedError(
            f"a defaultdict of {factory!r} cannot be saved: turn it into a dict, or use one of {', '.join(_FACTORIES)}"
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
    torch = sys.modules.get("torch")  # who has not imported it has nothing of it
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
    """Whether dtype, shape and bytes say all about it."""
    strided = tensor.layout == torch.strided and tensor.device.type != "meta"
    return bool(strided and not tensor.requires_grad and _dtype_name(tensor.dtype) in _TENSORS)


def _numpy_to_json(value: Any) -> Any:
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return None
    if isinstance(value, numpy.generic) and value.dtype.kind in _NUMPY_SCALARS:
        same = numpy.dtype(value.dtype.str).type is type(value)  # longlong comes back as int64
        return {"numpy.scalar": [value.dtype.str, _text(value.tobytes())]} if same else None
    if type(value) is numpy.ndarray and value.dtype.kind in _NUMPY_ARRAYS and value.dtype.itemsize:
        return {"numpy.ndarray": [value.dtype.str, list(value.shape), _text(value.tobytes())]}
    return None


def _saved_by_torch(value: Any) -> Any:
    """None where torch cannot save it, or would need to trust the bytes to load it again."""
    torch = sys.modules.get("torch")
    if torch is None:
        return None
    file = io.BytesIO()
    try:
        torch.save(value, file)
        _load_weights(torch, file.getvalue())
    except Exception:  # noqa: BLE001  # whatever the reason (pickle knows many), the caller names the type
        return None
    return {"torch.save": _text(file.getvalue())}


def _load_weights(torch: Any, data: bytes) -> Any:
    if not data.startswith(b"PK"):
        raise ValueError("not an archive of torch.save")
    return torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)


def _from_json(tree: Any, depth: int) -> Any:
    if depth > _DEEPEST + 1:
        raise ValueError(f"nested deeper than {_DEEPEST} levels")
    if isinstance(tree, list):
        return _items(tree, depth + 1)
    if not isinstance(tree, dict):
        return tree
    if len(tree) != 1:
        raise ValueError(f"an object of {len(tree)} keys, where each has one: its tag")
    ((tag, content),) = tree.items()
    if tag not in _DECODERS:
        raise ValueError(f"it has the tag {tag!r}, which this slurmopt does not know; a newer one may have saved it")
    return _DECODERS[tag](content, depth + 1)


def _items(content: Any, depth: int) -> list[Any]:
    if not isinstance(content, list):
        raise TypeError(f"a {type(content).__name__} where a list belongs")
    return [_from_json(item, depth) for item in content]


def _pairs(content: Any, depth: int) -> Iterable[tuple[Any, Any]]:
    for pair in content:
        name, value = _items(pair, depth)
        yield name, value


def _read_defaultdict(content: Any, depth: int) -> defaultdict[Any, Any]:
    name, pairs = content
    return defaultdict(None if name is None else _FACTORIES[name], _pairs(pairs, depth))


def _read_counter(content: Any, depth: int) -> Counter[Any]:
    counter: Counter[Any] = Counter()
    dict.update(counter, _pairs(content, depth))  # Counter's own would count the pairs
    return counter


def _read_float(content: Any, depth: int) -> float:
    number: float = struct.unpack(">d", bytes.fromhex(content))[0]
    return number


def _read_complex(content: Any, depth: int) -> complex:
    real, imaginary = _items(content, depth)
    return complex(real, imaginary)


def _read_size(content: Any, depth: int) -> Any:
    import torch

    return torch.Size(content)


def _read_dtype(content: Any, depth: int = 0) -> Any:
    import torch

    found = vars(torch).get(content)  # not getattr, which imports what is named
    if not isinstance(found, torch.dtype):
        raise TypeError(f"torch has no dtype {content!r}")
    return found


def _read_device(content: Any, depth: int) -> Any:
    import torch

    return torch.device(str(content))


def _read_tensor(content: Any, depth: int) -> Any:
    import torch

    name, shape, text = content
    dtype, data = _read_dtype(name), _data(text)
    if name not in _TENSORS:
        raise TypeError(f"{name} is no dtype of plain bytes")
    _check_length(shape, dtype.itemsize, data)
    flat = torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else torch.empty(0, dtype=torch.uint8)
    return flat.view(dtype).reshape(shape)


def _read_scalar(content: Any, depth: int) -> Any:
    dtype, text = content
    return _read_array([dtype, [], text], depth)[()]


def _read_array(content: Any, depth: int) -> Any:
    import numpy as np

    name, shape, text = content
    dtype, data = np.dtype(str(name)), _data(text)
    if dtype.kind not in _NUMPY_ARRAYS or not dtype.itemsize:
        raise TypeError(f"{name!r} is no dtype of plain bytes")
    _check_length(shape, dtype.itemsize, data)
    return np.ndarray(shape, dtype, bytearray(data))


def _read_saved_by_torch(content: Any, depth: int) -> Any:
    import torch

    return _load_weights(torch, _data(content))


_DECODERS: dict[str, Callable[[Any, int], Any]] = {
    "int": lambda content, depth: int(content, 16),
    "float": _read_float,
    "str": lambda content, depth: bytes.fromhex(content).decode("utf-8", "surrogatepass"),
    "complex": _read_complex,
    "bytes": lambda content, depth: _data(content),
    "bytearray": lambda content, depth: bytearray(_data(content)),
    "tuple": lambda content, depth: tuple(_items(content, depth)),
    "set": lambda content, depth: set(_items(content, depth)),
    "frozenset": lambda content, depth: frozenset(_items(content, depth)),
    "dict": lambda content, depth: dict(_pairs(content, depth)),
    "OrderedDict": lambda content, depth: OrderedDict(_pairs(content, depth)),
    "Counter": _read_counter,
    "defaultdict": _read_defaultdict,
    "torch.Size": _read_size,
    "torch.dtype": _read_dtype,
    "torch.device": _read_device,
    "torch.Tensor": _read_tensor,
    "torch.save": _read_saved_by_torch,
    "numpy.scalar": _read_scalar,
    "numpy.ndarray": _read_array,
}


def _dtype_name(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _data(content: Any) -> bytes:
    return base64.b64decode(content, validate=True)


def _check_length(shape: Any, itemsize: int, data: bytes) -> None:
    sizes = len(shape) <= 64 and all(type(size) is int and size >= 0 for size in shape)  # 64 is NumPy's bound
    if not sizes or math.prod(shape) * itemsize != len(data):
        raise ValueError(f"{len(data)} bytes do not make the shape {shape} of {itemsize} bytes each")


def _short_int(digits: str) -> int:
    if len(digits) > 20:
        raise ValueError("a whole number of more than 20 decimal digits")
    return int(digits)


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")
