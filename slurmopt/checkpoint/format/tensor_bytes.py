"""A tensor's bytes as Python sees memory; without NumPy, which torch's own way needs and a job need not have."""

from __future__ import annotations

import ctypes
from typing import Any


def memory_of(tensor: Any) -> memoryview:
    """The bytes of a contiguous tensor in host memory, writable; they stay while the view does."""
    if tensor.device.type != "cpu" or not tensor.is_contiguous():
        raise ValueError(f"no plain host memory: a tensor on {tensor.device} with strides {tensor.stride()}")
    memory = (ctypes.c_char * tensor.nbytes).from_address(tensor.data_ptr())
    memory.owner = tensor  # else the memory could go before the view
    return memoryview(memory).cast("B")
