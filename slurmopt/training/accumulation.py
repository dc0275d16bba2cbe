"""A global batch that stays the same on any number of ranks: who takes what of it, and what each part counts.

The gradient of a step is that of the mean loss over the N samples of its global batch. Rank r of W takes n(r, j) of
them in its j-th batch, whose mean loss is l(r, j). Torch averages the ranks' gradients, so each loss is weighted:

    1/N Σ n(r, j) l(r, j)  =  1/W Σ w(r, j) l(r, j)   with   w(r, j) = n(r, j) W / N
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

import torch

_Batch = TypeVar("_Batch")


@dataclass(frozen=True)
class MicroBatch(Generic[_Batch]):
    """What one rank takes through its model at once; the micro-batches of all ranks make up a step."""

    batch: _Batch
    """What the loader gave. With nothing left for this rank it is a sample of another one, of weight 0: each rank must
    run as many forward and backward passes as the others."""
    samples: int
    """How many samples it has that count; 0 for such a stand-in."""
    weight: float
    """What to multiply its mean loss by before `backward`, so that the ranks' average becomes the mean of the global
    batch. (A loss that is a sum over samples takes `weight / samples`, and 0 for a stand-in.)"""
    last: bool
    """Whether it is the last of its step: the optimizer's turn, then the checkpoint's."""


class Part(NamedTuple):
    """A piece of an epoch's order: one batch of one rank."""

    first: int
    end: int
    samples: int
    """How many of its places are this rank's own: all, or none."""
    step: int
    """Samples in the global batch that it belongs to."""
    ends: bool
    """Whether it is the last of that global batch on its rank."""


def passes(size: int, world_size: int, batch_size: int) -> int:
    """How many batches of at most `batch_size` each of `world_size` ranks takes for `size` samples."""
    largest_share = -(-size // world_size)
    return -(-largest_share // batch_size)


def rank_parts(start: int, size: int, rank: int, world_size: int, batch_size: int) -> Iterator[Part]:
    """A rank's batches of the global batch that has `size` places from `start` on, the same number on all ranks; the
    shares, and the batches of a share, differ by one sample at most. An empty one stands in with the first place."""
    begin, end = (size * number // world_size for number in (rank, rank + 1))
    count = passes(size, world_size, batch_size)
    for number in range(count):
        first, last = (start + begin + (end - begin) * cut // count for cut in (number, number + 1))
        ends = number == count - 1
        yield Part(first, last, last - first, size, ends) if first < last else Part(start, start + 1, 0, size, ends)


@contextlib.contextmanager
def synchronised(model: Any, last: bool) -> Iterator[None]:
    """Within it a DistributedDataParallel keeps its gradients to itself, unless it is the last pass of a step."""
    plain = getattr(model, "_orig_mod", model)  # torch.compile's wrapper has the real one inside
    if last or not _is_ddp(plain):
        yield
        return
    with plain.no_sync():
        yield


def _is_ddp(model: Any) -> bool:
    return torch.distributed.is_available() and isinstance(model, torch.nn.parallel.DistributedDataParallel)
