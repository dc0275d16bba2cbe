"""Notices that torch's allocator of GPU memory gives its cache back again and again, which costs speed before it fails.

`num_alloc_retries` counts allocations that first failed, so that all cached memory was given back to the driver, for
which the GPU has to wait. Much of it in `inactive_split` means that memory is free, but in pieces that are too small.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from slurmopt.log import warning

_EVERY = 10
"""Steps between two looks, each of which takes a fraction of a millisecond of the host."""
_FRAGMENTED = 0.2
"""Of the reserved memory."""
_SETTING = "PYTORCH_ALLOC_CONF=expandable_segments:True"


class AllocatorWatch:
    """Warns once, after the allocator has given its cache back in two looks in a row."""

    def __init__(self, stats: Callable[[], Mapping[str, Any]] = torch.cuda.memory_stats) -> None:
        """`stats`: the counters of the allocator."""
        self._stats = stats
        self._steps = self._in_a_row = 0
        self._retries: int | None = None
        self._has_warned = False

    def stepped(self) -> None:
        """A step has ended."""
        self._steps += 1
        if self._has_warned or self._steps % _EVERY:
            return
        stats = self._stats()
        before, self._retries = self._retries, int(stats.get("num_alloc_retries", 0))
        new = 0 if before is None else self._retries - before
        self._in_a_row = self._in_a_row + 1 if new > 0 else 0
        if self._in_a_row == 2:
            self._has_warned = True
            warning(
                f"GPU memory is nearly full: its cache was given back {new} times in the last {_EVERY} steps, which "
                f"costs speed; {_advice(stats)}"
            )


def _advice(stats: Mapping[str, Any]) -> str:
    reserved = stats.get("reserved_bytes.all.current", 0)
    lost = stats.get("inactive_split_bytes.all.current", 0)
    if reserved and lost >= _FRAGMENTED * reserved:
        return f"{lost / reserved:.0%} of it are fragments: set environment.variables.{_SETTING}"
    return "use a smaller micro-batch, or activation checkpointing"
