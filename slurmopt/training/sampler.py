"""A sampler whose place in the epoch is a number, valid at any world size.

The order of an epoch follows from (seed, epoch) alone, and all ranks eat it from the front: each step takes the next
piece, the global batch, and divides it between the ranks. So the count of samples consumed says what is left, whoever
consumed them; a run saved on 4 ranks goes on with 2 or 8, and each sample of the epoch is seen exactly once.

It is a batch sampler, for `DataLoader(dataset, batch_sampler=sampler)`: where one global batch ends and the next begins
depends on all ranks, so the sampler must make the cut. Of indices a DataLoader would make the batches itself, each rank
for its own, and nobody could tell which of them were consumed.
"""

from __future__ import annotations

import hashlib
import operator
import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

import numpy as np
import torch
from torch.utils.data import Sampler

from slurmopt.errors import CheckpointError, JobError
from slurmopt.runtime.ranks import rank_facts

_Batch = TypeVar("_Batch")
_MOST = 2**63 - 1  # what an index can be
_AT_ONCE = 4096  # indices made in one go: a small array costs numpy as much time as one of thousands


class ResumableSampler(Sampler[list[int]]):
    """Gives this rank's part of each global batch, as a list of indices; `batch_size` is per rank.

        sampler = ResumableSampler(len(dataset), batch_size=32, seed=1)
        loader = DataLoader(dataset, batch_sampler=sampler, num_workers=4)
        for epoch in range(sampler.epoch, epochs):
            sampler.set_epoch(epoch)
            for batch in sampler.track(loader):
                ...
                optimizer.step()
                checkpointer.save(step, {"sampler": sampler, ...})

    `track` counts a batch as consumed when the loop gets it, not when a worker prefetches it; so save after the step,
    not before. A loop that is not yours (Lightning's, accelerate's) calls `advance()` once per batch instead.

    Without `drop_last` the end of an epoch is uneven: the last global batch is divided as evenly as possible, so its
    parts differ by one sample at most. All ranks get the same number of batches, as DDP needs. None of them is empty as
    long as there are samples for all ranks: the last batch but one leaves one for each. Only where fewer samples than
    ranks are left (with `batch_size=1`, in a tiny dataset, or where a larger world goes on near the end) some ranks get
    `[]`: they still have to run forward and backward for DDP (of anything, times 0), and torch's default collate
    refuses an empty list. `drop_last=True` leaves out what does not fill a global batch; nothing is ever repeated.

    Without `rank` and `world_size`, torch.distributed's are taken, else those of the job, else it is a world of one.
    With model parallelism give those of the data-parallel group. Memory does not grow with the dataset: indices are
    computed as they are needed.
    """

    def __init__(
        self,
        dataset_size: int,
        *,
        batch_size: int,
        seed: int = 0,
        shuffle: bool = True,
        drop_last: bool = False,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        """JobError says which argument is wrong, and what would be valid."""
        self._rank, self._world_size = _place(rank, world_size)
        self._dataset_size = _whole("dataset_size", dataset_size, 1, _MOST)
        self._global_batch = _whole("batch_size", batch_size, 1, _MOST) * self._world_size
        self._seed, self._shuffle, self._drop_last = _whole("seed", seed, -_MOST, _MOST), shuffle, drop_last
        self._epoch = self._consumed = 0
        self._was_iterated = self._was_counted = False
        if drop_last and self._dataset_size < self._global_batch:
            raise JobError(
                f"drop_last leaves nothing of {dataset_size} samples: a global batch has {self._global_batch}"
                f" ({batch_size} on each of {self._world_size} ranks)"
            )

    @property
    def epoch(self) -> int:
        """The epoch that is being consumed."""
        return self._epoch

    @property
    def consumed(self) -> int:
        """How many samples of this epoch all ranks together have consumed."""
        return self._consumed

    @property
    def batches_left(self) -> int:
        """How many batches of this epoch are still to come."""
        return self._batches_in(self._dataset_size - self._consumed)

    def __len__(self) -> int:
        """How many batches a whole epoch has. It does not shrink while the epoch is consumed, so that a schedule
        computed from it stays the same after a restart."""
        return self._batches_in(self._dataset_size)

    def set_epoch(self, epoch: int) -> None:
        """Goes to the start of `epoch`; nothing happens where that is the current one, which may be half consumed."""
        if epoch != self._epoch:
            self._epoch, self._consumed = _whole("epoch", epoch, 0, _MOST), 0

    def __iter__(self) -> Iterator[list[int]]:
        """What is left of the epoch now; it does not count what it gives as consumed."""
        self._was_iterated = self.batches_left > 0
        order = Permutation(self._dataset_size, self._seed, self._epoch) if self._shuffle else None
        return self._indices(order, self._consumed)

    def track(self, loader: Iterable[_Batch]) -> Iterator[_Batch]:
        """Iterates `loader`, counting each batch as consumed when it is handed out; goes to the next epoch after the
        last. Whatever else prefetches (a copy to the GPU) belongs inside: `sampler.track(prefetch(loader))`.

        JobError: the loader has another sampler, gives batches out of order, or more than the epoch has.
        """
        self._check(loader)
        batches = self._start(loader)
        place = (self._epoch, self._consumed)
        for batch in batches:
            if place != (self._epoch, self._consumed):
                raise JobError("the sampler was moved while a loop over it was running; end the loop first")
            self.advance()
            place = (self._epoch, self._consumed)
            yield batch
        if not self.batches_left:
            self.set_epoch(self._epoch + 1)

    def advance(self) -> None:
        """Counts the next global batch as consumed; for loops that cannot use `track`. After the last batch such a loop
        calls `set_epoch`."""
        size = self._next_size(self._dataset_size - self._consumed)
        if size == 0:
            raise JobError(f"epoch {self._epoch} has no batch left to consume; call set_epoch before the next one")
        self._consumed += size
        self._was_counted = True

    def state_dict(self) -> dict[str, Any]:
        """The place in the epoch, equal on all ranks, and what the order depends on."""
        if self._was_iterated and not self._was_counted:
            warnings.warn(
                "no batch of this sampler was counted as consumed, so a resumed run would repeat them: iterate"
                " `sampler.track(loader)`, or call `sampler.advance()` after each batch",
                stacklevel=2,
            )
        return {**self._order(), "epoch": self._epoch, "consumed": self._consumed}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes to the place that `state` tells. CheckpointError where that was a place in another order."""
        for name, expected in self._order().items():
            if name not in state or state[name] != expected:
                found = repr(state[name]) if name in state else "nothing"
                raise CheckpointError(f"the sampler's {name} is {expected!r}, and in the checkpoint it is {found}")
        epoch = _saved(state, "epoch", _MOST)
        self._epoch, self._consumed = epoch, _saved(state, "consumed", self._dataset_size)
        self._was_iterated = self._was_counted = False

    def _order(self) -> dict[str, Any]:
        return {
            "order": Permutation.NAME if self._shuffle else "sequential",
            "dataset_size": self._dataset_size,
            "seed": self._seed if self._shuffle else None,
        }

    def _batches_in(self, samples: int) -> int:
        return samples // self._global_batch if self._drop_last else -(-samples // self._global_batch)

    def _next_size(self, left: int) -> int:
        """Samples in the next global batch where `left` samples are left; 0 where there is none.

        It depends on nothing else, so the cut is the same whoever makes it.
        """
        size = min(self._global_batch, left)
        if self._drop_last:
            return size if size == self._global_batch else 0
        if 0 < left - size < self._world_size <= left - self._world_size:
            return left - self._world_size
        return size

    def _parts(self, consumed: int) -> Iterator[tuple[int, int]]:
        """This rank's part of each global batch to come: from where to where in the order."""
        while size := self._next_size(self._dataset_size - consumed):
            first, last = (size * rank // self._world_size for rank in (self._rank, self._rank + 1))
            yield consumed + first, consumed + last
            consumed += size

    def _indices(self, order: Permutation | None, consumed: int) -> Iterator[list[int]]:
        for parts in _in_groups(self._parts(consumed)):
            places = np.concatenate([np.arange(*part, dtype=np.uint64) for part in parts])
            indices = (places if order is None else order(places)).tolist()
            begin = 0
            for first, last in parts:
                yield indices[begin : begin + last - first]
                begin += last - first

    def _check(self, loader: Any) -> None:
        if getattr(loader, "in_order", True) is False:
            raise JobError("a loader with in_order=False gives batches in any order; what was consumed has no number")
        samplers = [getattr(loader, name) for name in ("batch_sampler", "sampler") if hasattr(loader, name)]
        if samplers and self not in samplers:
            raise JobError("the loader has another sampler; make it with DataLoader(dataset, batch_sampler=sampler)")

    def _start(self, loader: Iterable[_Batch]) -> Iterator[_Batch]:
        """The loader's iterator, without touching torch's generator.

        Each start of a DataLoader draws the seed of its workers from there. A resumed run starts once more often, so
        its dropout would differ from then on; and the seed shall not be that of the workers who began the epoch.
        """
        text = f"workers {self._seed} {self._epoch} {self._consumed} {self._rank}"
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "little"))
            return iter(loader)


class Permutation:
    """A shuffle of range(size) that follows from (seed, epoch) and computes any part of itself without the rest.

    A large one is a Feistel network of keyed rounds on the next power of two; what falls outside of `size` is permuted
    again until it falls inside (Black and Rogaway, Ciphers with Arbitrary Finite Domains, 2002), on average less than
    twice. On a few bits such networks do not reach all shuffles alike, so a small one sorts by a keyed hash instead.

    The arithmetic is our own, on 64-bit integers, because a saved place is worth nothing where the order changes:
    torch.randperm may differ between versions and devices, as may NumPy's Generator.permutation, and both keep the
    whole permutation in memory, 8 GB for a billion samples.
    """

    NAME = "keyed-1"  # in every checkpoint: another arithmetic needs another name
    SMALL = 2**16

    def __init__(self, size: int, seed: int, epoch: int) -> None:
        digest = hashlib.sha512(f"{self.NAME} {seed} {epoch}".encode()).digest()
        self._keys = np.frombuffer(digest, dtype="<u8").astype(np.uint64)  # 8 rounds
        self._size = size
        bits = (size - 1).bit_length()
        self._low, self._high = np.uint64(bits // 2), np.uint64(bits - bits // 2)
        self._sorted = self._sort() if size <= self.SMALL else None

    def __call__(self, places: Any) -> Any:
        """What stands at `places` (uint64, shape [n], each below the size); a new array of the same kind."""
        if self._sorted is not None:
            return self._sorted[places]
        values = self._permute(places)
        outside = np.flatnonzero(values >= self._size)
        while outside.size:
            values[outside] = self._permute(values[outside])
            outside = outside[values[outside] >= self._size]
        return values

    def _sort(self) -> Any:
        values: Any = np.arange(self._size, dtype=np.uint64)
        for key in self._keys:
            values = _mix(values ^ key)
        return np.argsort(values, kind="stable").astype(np.uint64)

    def _permute(self, values: Any) -> Any:
        """Each round changes one half by the upper bits of what the other half hashes to, so each can be undone."""
        all_bits = np.uint64(64)
        low, high = values & ((np.uint64(1) << self._low) - np.uint64(1)), values >> self._low
        for even, odd in self._keys.reshape(-1, 2):
            low = low ^ (_mix(high ^ even) >> (all_bits - self._low))
            high = high ^ (_mix(low ^ odd) >> (all_bits - self._high))
        return (high << self._low) | low


def _mix(values: Any) -> Any:
    """A bijection of 64 bits in which each bit of the input changes half of the output: the finaliser of splitmix64
    (Steele, Lea and Flood, Fast Splittable Pseudorandom Number Generators, 2014)."""
    mixed = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def _in_groups(parts: Iterator[tuple[int, int]]) -> Iterator[list[tuple[int, int]]]:
    """Successive parts, together of about `_AT_ONCE` places; the first alone, as somebody waits for it."""
    group: list[tuple[int, int]] = []
    places = _AT_ONCE
    for part in parts:
        group.append(part)
        places += part[1] - part[0]
        if places >= _AT_ONCE or len(group) >= _AT_ONCE:
            yield group
            group, places = [], 0
    if group:
        yield group


def _place(rank: int | None, world_size: int | None) -> tuple[int, int]:
    """Torch's own group comes first: it is the one that averages the gradients."""
    if (rank is None) != (world_size is None):
        raise JobError("only one of rank and world_size is given; give both, or none of them")
    if rank is None or world_size is None:
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            return torch.distributed.get_rank(), torch.distributed.get_world_size()
        facts = rank_facts()
        return facts.rank, facts.world_size
    size = _whole("world_size", world_size, 1, _MOST)
    return _whole("rank", rank, 0, size - 1), size


def _whole(name: str, value: int, least: int, most: int) -> int:
    number = operator.index(value) if hasattr(value, "__index__") and not isinstance(value, bool) else None
    if number is None or not least <= number <= most:
        raise JobError(f"the sampler's {name} is {value!r}; valid is a whole number from {least} to {most}")
    return number


def _saved(state: Mapping[str, Any], name: str, most: int) -> int:
    value = state.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise CheckpointError(f"the sampler's {name} in the checkpoint is {value!r}; valid is 0 to {most}")
    return value
