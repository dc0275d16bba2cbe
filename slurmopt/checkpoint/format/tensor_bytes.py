"""Gives access to a tensor's memory as a memoryview, without NumPy, which is not required in a job."""

from __future__ import annotations

import ctypes
from typing import Any


def memory_of(tensor: Any) -> memoryview:
    """A writable view of the bytes of a contiguous tensor in host memory; it keeps the tensor alive."""
    if tensor.device.type != "cpu" or not tensor.is_contiguous():
        raise ValueError(f"no plain host memory: a tensor on {tensor.device} with strides {tensor.stride()}")
    memory = (ctypes.c_char * tensor.nbytes).from_address(tensor.data_ptr())
    memory.owner = tensor  # keeps the memory alive as long as the view
    return memoryview(memory).cast("B")
