"""Marks in traces."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def marked(name: str) -> Iterator[None]:
    """Marks the block in traces of torch.profiler, and as an NVTX range (roctx on ROCm). Without torch, or before CUDA
    is used, the mark in question is left out."""
    profiler = sys.modules.get("torch.autograd.profiler")
    if profiler is None:
        yield
        return
    with profiler.record_function(name), _nvtx_range(name):
        yield


@contextlib.contextmanager
def _nvtx_range(name: str) -> Iterator[None]:
    cuda = sys.modules.get("torch.cuda")
    if cuda is None or not cuda.is_initialized() or not _pushed(cuda, name):
        yield
        return
    try:
        yield
    finally:
        cuda.nvtx.range_pop()


def _pushed(cuda: Any, name: str) -> bool:
    """Begins a range; False in a build of torch without NVTX."""
    try:
        cuda.nvtx.range_push(name)  # `nvtx.range` takes the name for a format
    except RuntimeError:
        return False
    return True
