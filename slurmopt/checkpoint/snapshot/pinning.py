"""Pins the arena's memory, so that a GPU copies into it asynchronously."""

from __future__ import annotations

import ctypes
import re
from functools import partial
from pathlib import Path
from typing import Any

import torch

from slurmopt import log
from slurmopt.checkpoint.snapshot.arena import Arena

_RUNTIMES = {"libcudart": "cudaGetLastError", "libamdhip64": "hipGetLastError"}


def pin(arena: Arena) -> None:
    """Pins the arena where the training uses a GPU. Unpinned copies go through a buffer of the driver and are
    slower."""
    if not torch.cuda.is_initialized() or not arena.total:
        return
    arena.settled()
    cudart = torch.cuda.cudart()
    error = int(cudart.cudaHostRegister(arena.address, arena.total, 0))
    if error:
        log.warning(f"snapshots are not pinned: CUDA error {error}")
        _forget_error()
    else:
        arena.before_close = partial(_unpin, cudart, arena.address)


def _unpin(cudart: Any, address: int) -> None:
    if int(cudart.cudaHostUnregister(address)):
        _forget_error()


def _forget_error() -> None:
    """Clears CUDA's last error, which torch would otherwise raise for the training's next kernel. torch does not expose
    cudaGetLastError, so it is called in the library that torch has loaded."""
    for path in _loaded(Path("/proc/self/maps").read_text()):
        name = next(name for stem, name in _RUNTIMES.items() if stem in path)
        getattr(ctypes.CDLL(path), name)()


def _loaded(maps: str) -> list[str]:
    """The CUDA or ROCm runtimes in this process, from its memory map."""
    return sorted(set(re.findall(rf"(/\S*(?:{'|'.join(_RUNTIMES)})[^/\s]*)$", maps, re.MULTILINE)))
