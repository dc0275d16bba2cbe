"""Divides a global batch between any number of ranks, with the weight of each rank's batches.

The gradient of a step is that of the mean loss over the N samples of its global batch. Rank r of W has n(r, j) of them
in its j-th batch, whose mean loss is l(r, j). Torch averages the gradients of the ranks, so each loss gets a weight:

    1/N Σ n(r, j) l(r, j)  =  1/W Σ w(r, j) l(r, j)   with   w(r, j) = n(r, j) W / N
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

import torch

_Batch = TypeVar("_Batch")


@dataclass(frozen=True)
class MicroBatch(Generic[_Batch]):
    """One forward and backward pass of one rank; the micro-batches of all ranks make up a step."""

    batch: _Batch
    """The loader's batch. Where nothing is left for this rank it is a sample of another rank, with weight 0: all ranks
    must run the same number of forward and backward passes."""
    samples: int
    """The number of samples that count; 0 for such a placeholder."""
    weight: float
    """The factor of its mean loss before `backward`, so that the average over the ranks is the mean of the global
    batch. (For a loss that is a sum over samples: `weight / samples`, and 0 for a placeholder.)"""
    last: bool
    """Whether it is the last of its step, after which the optimizer steps and the checkpoint is saved."""
    indices: Callable[[], list[int]] = field(default=list, repr=False, compare=False)
    """Computes the dataset's indices of its samples; of what no sampler has made an empty list."""


class Part(NamedTuple):
    """A range of an epoch's order: one batch of one rank."""

    first: int
    end: int
    samples: int
    """How many of its samples count: all, or none for a placeholder."""
    step: int
    """Samples in the global batch that it belongs to."""
    ends: bool
    """Whether it is the last of that global batch on its rank."""


def passes(size: int, world_size: int, batch_size: int) -> int:
    """The number of batches, of at most `batch_size`, of each of `world_size` ranks for `size` samples."""
    largest_share = -(-size // world_size)
    return -(-largest_share // batch_size)


def rank_parts(start: int, size: int, rank: int, world_size: int, batch_size: int) -> Iterator[Part]:
    """A rank's batches of the global batch that has `size` samples from `start` on, the same number on all ranks.

    The shares, and the batches of a share, differ by at most one sample. The first sample replaces an empty batch.
    """
    begin, end = (size * number // world_size for number in (rank, rank + 1))
    count = passes(size, world_size, batch_size)
    for number in range(count):
        first, last = (start + begin + (end - begin) * cut // count for cut in (number, number + 1))
        ends = number == count - 1
        yield Part(first, last, last - first, size, ends) if first < last else Part(start, start + 1, 0, size, ends)


@contextlib.contextmanager
def synchronised(model: Any, last: bool) -> Iterator[None]:
    """A context in which a DistributedDataParallel exchanges gradients only in the last pass of a step.

    FSDP2 shards them in each pass, as whole gradients are what it saves the memory of. With HSDP the shards are summed
    over the replicas in the last pass."""
    plain = getattr(model, "_orig_mod", model)  # inside the wrapper of torch.compile
    if _is_hybrid(plain):
        plain.set_requires_all_reduce(last)
    if last or not _is_ddp(plain):
        yield
        return
    with plain.no_sync():
        yield


def forget_passes(model: Any) -> None:
    """Makes a DistributedDataParallel forget a forward pass whose backward pass never comes: it would exchange the
    gradients of the next one, whatever `no_sync` says. Called on all ranks, as the model then arranges its buckets
    anew. It is what torch itself does when the ranks of a model change."""
    plain = getattr(model, "_orig_mod", model)
    if _is_ddp(plain):
        plain._has_rebuilt_buckets = False
        plain.reducer._reset_state()


def _is_ddp(model: Any) -> bool:
    return torch.distributed.is_available() and isinstance(model, torch.nn.parallel.DistributedDataParallel)


def _is_hybrid(model: Any) -> bool:
    """Whether FSDP2 shards over one dimension of a mesh, and replicates over another."""
    if not hasattr(model, "set_requires_all_reduce"):
        return False
    mesh = getattr(next(model.parameters(), None), "device_mesh", None)
    return mesh is not None and mesh.ndim > 1
