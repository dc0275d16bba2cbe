"""Collective operations between the ranks, over a gloo group of their own, so that they never wait for a GPU."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from slurmopt.errors import CheckpointError, RanksLost, one_line
from slurmopt.job.facts.rank_facts import RankFacts
from slurmopt.slow_notice import slow_notice

TIMEOUT = timedelta(minutes=10)
"""How long ranks wait for one that makes no matching call; the default of torch's NCCL groups."""
LONG_TIMEOUT = timedelta(hours=12)
"""How long ranks wait for one that reads or writes much data; a rank that dies is still noticed at once."""
_ENDED_WORDS = ("closed by peer", "reset by peer")
_ENDED_ADVICE = "one of them has ended; its own log says why"


class Collectives:
    """All ranks call the same methods in the same order. With a world size of one nothing is communicated."""

    def __init__(self, facts: RankFacts) -> None:
        self.rank, self.world_size = facts.rank, facts.world_size
        self._group: Any = None
        self._long_group: Any = None
        if dist.is_available() and dist.is_initialized():
            self.rank, self.world_size = dist.get_rank(), dist.get_world_size()
        elif facts.world_size > 1:
            raise CheckpointError("several ranks need torch.distributed: call init_process_group before Checkpointer")
        if self.world_size > 1:
            # Both are created now: later the process may have no file descriptors left.
            self._group = dist.new_group(backend="gloo", timeout=TIMEOUT)
            self._long_group = dist.new_group(backend="gloo", timeout=LONG_TIMEOUT)

    def gather(self, value: Any, long: bool = False) -> list[Any]:
        """Every rank's `value`, in rank order. `long`: ranks may read or write much data before this call."""
        if self._group is None:
            return [value]
        values: list[Any] = [None] * self.world_size
        with collective_call():
            dist.all_gather_object(values, value, group=self._long_group if long else self._group)
        return values

    def gather_to_first(self, value: Any) -> list[Any] | None:
        """Every rank's `value`, in rank order, on rank 0; None on the others."""
        if self._group is None:
            return [value]
        values: list[Any] | None = [None] * self.world_size if self.rank == 0 else None
        with collective_call():
            dist.gather_object(value, values, dst=0, group=self._group)
        return values

    def scatter(self, values: list[Any] | None) -> Any:
        """This rank's element of rank 0's `values`."""
        if self._group is None:
            return (values or [None])[0]
        own = [None]
        with collective_call():
            dist.scatter_object_list(own, values, src=0, group=self._group)
        return own[0]

    def broadcast_from_first(self, value: Any) -> Any:
        """Rank 0's `value`, on all ranks."""
        return self.broadcast_from(0, value)

    def broadcast_from(self, rank: int, value: Any) -> Any:
        """The `value` of `rank`, on all ranks; `rank` must be equal on all of them."""
        if self._group is None:
            return value
        values = [value]
        with collective_call():
            dist.broadcast_object_list(values, src=rank, group=self._group)
        return values[0]

    def close(self) -> None:
        for group in (self._long_group, self._group):
            if group is not None:
                dist.destroy_process_group(group)
        self._group = self._long_group = None


@contextlib.contextmanager
def collective_call() -> Iterator[None]:
    """A context for collective calls: prints a notice when they take long, and raises RanksLost where they fail."""
    try:
        with slow_notice("waiting for the other ranks of the checkpoint"):
            yield
    except RuntimeError as error:
        reason = one_line(str(error).strip().partition("\n")[0])
        ended = any(words in reason for words in _ENDED_WORDS)
        advice = _ENDED_ADVICE if ended else "call save, restore and close on all ranks, after the same steps"
        raise RanksLost(f"the other ranks did not come: {advice} ({reason})") from error
