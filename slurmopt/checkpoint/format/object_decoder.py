"""Decodes what `object_encoder` has encoded, from bytes that need not be trusted."""

from __future__ import annotations

import base64
import json
import math
import struct
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from slurmopt.checkpoint.format.object_format import DEEPEST, FACTORIES, NUMPY_ARRAYS, TENSOR_DTYPES, load_weights_only
from slurmopt.errors import CheckpointError, one_line


def decode(data: bytes, key: str) -> Any:
    """The value that was encoded; tensors are on the CPU. Raises CheckpointError, with `key`, for any other bytes."""
    try:
        return _from_json(json.loads(bytes(data).decode("ascii"), parse_int=_short_int, parse_constant=_no_constant), 0)
    # Invalid bytes can raise any exception of JSON, NumPy and torch.
    except Exception as error:
        reason = one_line(str(error).partition("\n")[0])[:200] or type(error).__name__
        raise CheckpointError(f"{one_line(key)}: what was saved cannot be read: {reason}") from error


def _from_json(tree: Any, depth: int) -> Any:
    if depth > DEEPEST + 1:
        raise ValueError(f"nested deeper than {DEEPEST} levels")
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
    return defaultdict(None if name is None else FACTORIES[name], _pairs(pairs, depth))


def _read_counter(content: Any, depth: int) -> Counter[Any]:
    counter: Counter[Any] = Counter()
    dict.update(counter, _pairs(content, depth))  # Counter.update would count the pairs
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

    dtype = vars(torch).get(content)  # not getattr, which would import a submodule of that name
    if not isinstance(dtype, torch.dtype):
        raise TypeError(f"torch has no dtype {content!r}")
    return dtype


def _read_device(content: Any, depth: int) -> Any:
    import torch

    return torch.device(str(content))


def _read_tensor(content: Any, depth: int) -> Any:
    import torch

    name, shape, text = content
    dtype, data = _read_dtype(name), _data(text)
    if name not in TENSOR_DTYPES:
        raise TypeError(f"{name} is not a dtype of plain bytes")
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
    if dtype.kind not in NUMPY_ARRAYS or not dtype.itemsize:
        raise TypeError(f"{name!r} is not a dtype of plain bytes")
    _check_length(shape, dtype.itemsize, data)
    return np.ndarray(shape, dtype, bytearray(data))


def _read_saved_by_torch(content: Any, depth: int) -> Any:
    import torch

    return load_weights_only(torch, _data(content))


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


def _data(content: Any) -> bytes:
    return base64.b64decode(content, validate=True)


def _check_length(shape: Any, itemsize: int, data: bytes) -> None:
    sizes = len(shape) <= 64 and all(type(size) is int and size >= 0 for size in shape)  # 64 is NumPy's limit
    if not sizes or math.prod(shape) * itemsize != len(data):
        raise ValueError(f"{len(data)} bytes do not make the shape {shape} of {itemsize} bytes each")


def _short_int(digits: str) -> int:
    if len(digits) > 20:
        raise ValueError("a whole number of more than 20 decimal digits")
    return int(digits)


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")
