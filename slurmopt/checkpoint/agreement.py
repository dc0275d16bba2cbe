"""What the ranks tell each other: over a gloo group of their own, so that CPU words never wait for a GPU."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist

from slurmopt.errors import CheckpointError
from slurmopt.runtime.ranks import RankFacts


class Agreement:
    """All ranks call the same method at the same time. In a world of one there is nobody to ask."""

    def __init__(self, facts: RankFacts) -> None:
        self.rank, self.world_size = facts.rank, facts.world_size
        self._group: Any = None
        if dist.is_available() and dist.is_initialized():
            self.rank, self.world_size = dist.get_rank(), dist.get_world_size()
        elif facts.world_size > 1:
            raise CheckpointError("several ranks need torch.distributed: call init_process_group before Checkpointer")
        if self.world_size > 1:
            self._group = dist.new_group(backend="gloo")

    def gather(self, value: Any) -> list[Any]:
        """Every rank's `value`, in rank order."""
        if self._group is None:
            return [value]
        values: list[Any] = [None] * self.world_size
        dist.all_gather_object(values, value, group=self._group)
        return values

    def from_first(self, value: Any) -> Any:
        """Rank 0's `value`."""
        if self._group is None:
            return value
        values = [value]
        dist.broadcast_object_list(values, src=0, group=self._group)
        return values[0]

    def close(self) -> None:
        if self._group is not None:
            dist.destroy_process_group(self._group)
            self._group = None
