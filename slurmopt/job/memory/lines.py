"""What is allocated, by the lines that have allocated it: GPU memory, Python's objects, tensors on the CPU."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import tracemalloc
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Stack = tuple[str, ...]
"""Innermost first: `train.py:42 in train`."""
FRAMES = 6
_MOST_LINES = 20
_HEADER_OF_3_11 = 32
"""Bytes before an object with a managed dict: the links of the garbage collector, values and dict."""
_LIBRARIES = tuple(f"{Path(__file__).parents[3]}/{name}/" for name in ("slurmopt", "torch"))
_OWN = f"{Path(__file__).parent}/"
_ALLOCATED = "active_allocated"


@dataclass
class Held:
    """What one stack has allocated and not freed."""

    size: int = 0
    blocks: int = 0

    def add(self, size: int, blocks: int = 1) -> None:
        """Notes more."""
        self.size += size
        self.blocks += blocks


Lines = dict[Stack, Held]


def of_gpu(snapshot: Mapping[str, Any]) -> Lines:
    """Of `torch.cuda.memory._snapshot()`. What has no line has the empty stack: it is older than the recording, or was
    allocated by the backward pass or by a library."""
    found: Lines = defaultdict(Held)
    for segment in snapshot["segments"]:
        for block in segment["blocks"]:
            if block["state"] == _ALLOCATED:
                frames = ((frame["filename"], frame["line"], frame["name"]) for frame in block.get("frames", ()))
                found[_stack(frames)].add(block["size"])
    return dict(found)


def of_python() -> Lines:
    """Python's own objects since tracemalloc was started, without those of the recording itself."""
    found: Lines = defaultdict(Held)
    snapshot = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(False, tracemalloc.__file__)])
    for one in snapshot.statistics("traceback"):
        frames = [(frame.filename, frame.lineno, "") for frame in reversed(one.traceback)]
        if not any(file.startswith(_OWN) for file, _, _ in frames):
            found[_stack(frames)].add(one.size, one.count)
    return dict(found)


def of_cpu_tensors() -> Lines:
    """Tensors on the CPU that Python refers to, made since tracemalloc was started. Those that only a graph of autograd
    refers to are not found."""
    torch, found = sys.modules["torch"], defaultdict[Stack, Held](Held)
    kinds, seen = (torch.Tensor, torch.nn.Parameter), set[int]()
    for one in gc.get_objects():
        # Subclasses may have no storage, and other objects answer isinstance by code of their own.
        if type(one) not in kinds or one.device.type != "cpu" or one.layout is not torch.strided:
            continue
        frames = _made_by(one)
        storage = one.untyped_storage()
        if frames and storage.data_ptr() not in seen:
            seen.add(storage.data_ptr())
            found[_stack(frames)].add(storage.nbytes())
    return dict(found)


def _made_by(one: object) -> list[tuple[str, int, str]]:
    """The frames that made an object, innermost first; none if it is older than the recording."""
    if sys.version_info[:2] != (3, 11):
        return [(frame.filename, frame.lineno, "") for frame in reversed(tracemalloc.get_object_traceback(one) or ())]
    # Python 3.11's own function misses objects with a managed dict: it looks where the memory of others begins.
    traceback = ctypes.pythonapi._PyTraceMalloc_GetTraceback
    traceback.restype, traceback.argtypes = ctypes.py_object, [ctypes.c_uint, ctypes.c_size_t]
    return [(file, line, "") for file, line in traceback(0, id(one) - _HEADER_OF_3_11) or ()]


def rows(before: Lines, after: Lines) -> list[dict[str, Any]]:
    """The stacks that have grown most, and those that hold most."""
    found: list[dict[str, Any]] = []
    for stack, held in after.items():
        was = before.get(stack, Held())
        grown = {"grown": held.size - was.size, "grown_blocks": held.blocks - was.blocks}
        found.append({"stack": list(stack), "bytes": held.size, "blocks": held.blocks, **grown})
    largest = sorted(found, key=lambda row: (-row["bytes"], row["stack"]))[:_MOST_LINES]
    growing = sorted(found, key=lambda row: (-row["grown"], row["stack"]))[:_MOST_LINES]
    return largest + [row for row in growing if row["grown"] > 0 and row not in largest]


def _stack(frames: Iterable[tuple[str, int, str]]) -> Stack:
    """The frames of the user's code; empty where there are none."""
    own = [frame for frame in frames if not _is_library(frame[0])]
    return tuple(f"{_shown(file)}:{line}{f' in {name}' if name else ''}" for file, line, name in own[:FRAMES])


def _is_library(file: str) -> bool:
    return file.startswith((*_LIBRARIES, "<")) or "/torch/" in file


def _shown(file: str) -> str:
    here = f"{os.getcwd()}/"
    return file.removeprefix(here)
