"""What may be given to a ResumableSampler, and found in a checkpoint of it: each with one line of what is valid."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

import torch

from slurmopt.errors import CheckpointError, JobError
from slurmopt.job.facts.rank_facts import rank_facts
from slurmopt.training.sampling.global_batches import GlobalBatches

MOST = 2**63 - 1
"""The largest index."""


def refuse_empty_epoch(batches: GlobalBatches) -> None:
    """Raises JobError where `drop_last` drops all samples."""
    size = batches.full_size(0)
    if batches.drop_last and batches.dataset_size < size:
        each = "" if batches.accumulates else f" ({batches.batch_size} on each of {batches.world_size} ranks)"
        lost = batches.dataset_size
        raise JobError(f"drop_last leaves nothing of {lost} samples: a global batch has {size}{each}")


def rank_and_world_size(rank: int | None, world_size: int | None) -> tuple[int, int]:
    """The arguments, else those of torch.distributed's group, which averages the gradients, else those of the job."""
    if (rank is None) != (world_size is None):
        raise JobError("only one of rank and world_size is given; give both, or none of them")
    if rank is None or world_size is None:
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            return torch.distributed.get_rank(), torch.distributed.get_world_size()
        facts = rank_facts()
        return facts.rank, facts.world_size
    size = whole("world_size", world_size, 1, MOST)
    return whole("rank", rank, 0, size - 1), size


def whole(name: str, value: int, least: int, most: int) -> int:
    number = operator.index(value) if hasattr(value, "__index__") and not isinstance(value, bool) else None
    if number is None or not least <= number <= most:
        raise JobError(f"the sampler's {name} is {value!r}; valid is a whole number from {least} to {most}")
    return number


def saved_number(state: Mapping[str, Any], name: str, most: int) -> int:
    value = state.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise CheckpointError(f"the sampler's {name} in the checkpoint is {value!r}; valid is 0 to {most}")
    return value
