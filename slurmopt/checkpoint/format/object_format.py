"""The format in which a checkpoint holds what is not a large tensor: bytes that can be read without trusting them.

Everything becomes JSON. A plain JSON value is itself; every other one is an object of one key, its tag, so that types
are preserved: `(1, "a")` is `{"tuple": [1, "a"]}`. A value without a tag is saved by torch.save, if
torch.load(weights_only=True) can read it. So no pickle that could run code is ever loaded.
"""

from __future__ import annotations

import io
from typing import Any

DEEPEST = 100
"""Levels of nesting; a list that contains itself would have no end."""
FACTORIES: dict[str, Any] = {kind.__name__: kind for kind in (int, float, str, bool, list, dict, set, tuple)}
"""The default factories that a defaultdict may have."""
NUMPY_SCALARS, NUMPY_ARRAYS = "biufcmM", "biufcmMSU"
"""Kinds of NumPy dtypes whose values are plain bytes."""
TENSOR_DTYPES = frozenset(  # not the quantized ones, whose bytes are not the whole value
    {"bool", "float16", "bfloat16", "float32", "float64", "complex32", "complex64", "complex128"}
    | {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
    | {f"float8_{form}" for form in ("e4m3fn", "e5m2", "e4m3fnuz", "e5m2fnuz", "e8m0fnu")}
)
"""Tensor dtypes that are defined by their bytes."""


def load_weights_only(torch: Any, data: bytes) -> Any:
    """Reads an archive of torch.save without running code. ValueError or torch's errors for anything else."""
    if not data.startswith(b"PK"):
        raise ValueError("not an archive of torch.save")
    return torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
