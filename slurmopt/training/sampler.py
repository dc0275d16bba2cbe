"""ResumableSampler: a batch sampler whose position in the epoch is one number, valid for any world size.

The order of an epoch depends only on (seed, epoch). Each step takes the next global batch of it and divides that
between the ranks. So the number of consumed samples defines what is left: a run that was saved on 4 ranks resumes on 2
or 8, and each sample of the epoch is seen exactly once.

It is a batch sampler, for `DataLoader(dataset, batch_sampler=sampler)`, since the bounds of a global batch depend on
all ranks. From a sampler of indices each rank's DataLoader would build batches on its own, and the number of consumed
samples would be unknown.
"""

from __future__ import annotations

import hashlib
import operator
import warnings
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any, TypeVar

import torch
from torch.utils.data import Sampler

from slurmopt.errors import CheckpointError, JobError
from slurmopt.job.facts.rank_facts import rank_facts
from slurmopt.job.worker.watched_loader import watch
from slurmopt.training.accumulation import MicroBatch, Part, passes, synchronised
from slurmopt.training.global_batches import GlobalBatches
from slurmopt.training.permutation import Permutation

_Batch = TypeVar("_Batch")
_MOST = 2**63 - 1  # the largest index


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

    With `global_batch` each step takes that many samples whatever the world size, so a run that goes on with fewer or
    more ranks takes the very same steps. Each rank takes its share in batches of at most `batch_size`, the same number
    of them on all ranks, and `accumulate` instead of `track` tells how to add up the gradients:

        sampler = ResumableSampler(len(dataset), batch_size=8, global_batch=256, seed=1)
        for micro in sampler.accumulate(loader, model):
            (loss_of(model, micro.batch) * micro.weight).backward()
            if micro.last:
                optimizer.step()
                optimizer.zero_grad()
                checkpointer.save(step, {"sampler": sampler, ...})

    Batches are then as even as they can be, and the last global batch of an epoch is simply what is left.
    """

    per_rank = False
    """Where all ranks are in the epoch is one number, which any number of ranks can go on from."""

    def __init__(
        self,
        dataset_size: int,
        *,
        batch_size: int,
        global_batch: int | None = None,
        seed: int = 0,
        shuffle: bool = True,
        drop_last: bool = False,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        """JobError says which argument is wrong, and what would be valid."""
        rank, world_size = _rank_and_world_size(rank, world_size)
        self._dataset_size = _whole("dataset_size", dataset_size, 1, _MOST)
        batch_size = _whole("batch_size", batch_size, 1, _MOST)
        global_batch = None if global_batch is None else _whole("global_batch", global_batch, 1, _MOST)
        if global_batch is not None and rank == 0 and global_batch < world_size:
            idle = world_size - global_batch
            warnings.warn(f"a global batch of {global_batch} leaves {idle} ranks without work", stacklevel=2)
        self._batches = GlobalBatches(
            dataset_size=self._dataset_size,
            global_batch=batch_size * world_size if global_batch is None else global_batch,
            batch_size=batch_size,
            rank=rank,
            world_size=world_size,
            drop_last=drop_last,
            accumulates=global_batch is not None,
        )
        self._seed, self._shuffle = _whole("seed", seed, -_MOST, _MOST), shuffle
        self._epoch = self._consumed = 0
        self._fingerprint = ""
        self._was_iterated = self._was_counted = False
        _refuse_empty_epoch(self._batches)

    @property
    def epoch(self) -> int:
        """The current epoch."""
        return self._epoch

    @property
    def consumed(self) -> int:
        """The number of samples of this epoch that all ranks together have consumed."""
        return self._consumed

    @property
    def fingerprint(self) -> str:
        """16 hexadecimal digits that depend on all samples which were consumed since the run began, and their order,
        global batch by global batch: two runs with the same fingerprint have seen the same data. With `global_batch` it
        is the same on any number of ranks, and in any case after a restart."""
        return hashlib.sha256(f"{self._order()} {self._fingerprint}".encode()).hexdigest()[:16]

    @property
    def batches_left(self) -> int:
        """The number of remaining global batches of this epoch."""
        return self._batches.count(self._dataset_size - self._consumed)

    @property
    def micro_batches(self) -> int:
        """The number of batches per rank in a full global batch; 1 without `global_batch`."""
        return passes(self._batches.global_batch, self._batches.world_size, self._batches.batch_size)

    def __len__(self) -> int:
        """The number of global batches, and so of steps, in a whole epoch.

        It does not shrink while the epoch is consumed, so a schedule computed from it stays the same after a restart;
        with `global_batch` also on another world size.
        """
        return self._batches.count(self._dataset_size)

    def set_epoch(self, epoch: int) -> None:
        """Moves to the start of `epoch`. Does nothing where that is the current epoch, which may be partly consumed."""
        if epoch != self._epoch:
            self._epoch, self._consumed = _whole("epoch", epoch, 0, _MOST), 0

    def __iter__(self) -> Iterator[list[int]]:
        """The remaining batches of the epoch; iterating does not count them as consumed."""
        self._was_iterated = self.batches_left > 0
        return self._batches.indices(self._shuffled(self._epoch), self._consumed)

    def _shuffled(self, epoch: int) -> Permutation | None:
        """The shuffle of an epoch; None where there is none."""
        return Permutation(self._dataset_size, self._seed, epoch) if self._shuffle else None

    def track(self, loader: Iterable[_Batch]) -> Iterator[_Batch]:
        """Iterates `loader` and counts each batch as consumed when it is yielded; after the last it moves to the next
        epoch. Wrap anything that prefetches (a copy to the GPU) inside: `sampler.track(prefetch(loader))`.

        Raises JobError where the loader has another sampler, yields batches out of order, or more than the epoch has;
        and where the sampler has a `global_batch`.
        """
        self._refuse_global_batch()
        for batch, _ in self._tracked(loader):
            yield batch

    def accumulate(self, loader: Iterable[_Batch], model: Any = None) -> Iterator[MicroBatch[_Batch]]:
        """`track` for a sampler with a `global_batch`: yields the batches of each step with their weights.

        The global batch counts as consumed with its last batch; save there, after the step. Where `model` is a
        DistributedDataParallel, its ranks exchange gradients only in that last batch. A sharded model (FSDP2) does so
        in each batch: unsharded gradients would take the memory that sharding saves.

        Raises JobError as `track` does, and where there is no `global_batch`.
        """
        if not self._batches.accumulates:
            raise JobError("the sampler has no global_batch; give it one, or iterate sampler.track(loader)")
        for batch, part in self._tracked(loader):
            weight = part.samples * self._batches.world_size / part.step
            with synchronised(model, part.ends):
                yield MicroBatch(batch, part.samples, weight, part.ends, partial(self._indices_of, self._epoch, part))

    def _indices_of(self, epoch: int, part: Part) -> list[int]:
        return self._batches.of_part(self._shuffled(epoch), part)

    def advance(self) -> None:
        """Counts the next global batch as consumed, for loops that cannot use `track`. Such a loop calls `set_epoch`
        after the last batch."""
        self._refuse_global_batch()
        size = self._batches.next_size(self._dataset_size - self._consumed)
        if not size:
            raise self._nothing_left()
        self._count(size)

    def state_dict(self) -> dict[str, Any]:
        """The position in the epoch, equal on all ranks, and what the order depends on."""
        if self._was_iterated and not self._was_counted:
            track = "`sampler.track(loader)`, or call `sampler.advance()` after each batch"
            warnings.warn(
                "no batch of this sampler was counted as consumed, so a resumed run would repeat them: iterate"
                f" {'`sampler.accumulate(loader, model)`' if self._batches.accumulates else track}",
                stacklevel=2,
            )
        position = {"epoch": self._epoch, "consumed": self._consumed, "fingerprint": self._fingerprint}
        return {**self._order(), **position}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Moves to the position in `state`. CheckpointError where that belongs to another order."""
        for name, expected in self._order().items():
            if name not in state or state[name] != expected:
                saved = repr(state[name]) if name in state else "nothing"
                raise CheckpointError(f"the sampler's {name} is {expected!r}, and in the checkpoint it is {saved}")
        epoch = _saved(state, "epoch", _MOST)
        self._epoch, self._consumed = epoch, _saved(state, "consumed", self._dataset_size)
        self._fingerprint = str(state.get("fingerprint", ""))  # checkpoints of earlier versions have none
        self._was_iterated = self._was_counted = False

    def _order(self) -> dict[str, Any]:
        return {
            "order": Permutation.NAME if self._shuffle else "sequential",
            "dataset_size": self._dataset_size,
            "seed": self._seed if self._shuffle else None,
        }

    def _tracked(self, loader: Iterable[_Batch]) -> Iterator[tuple[_Batch, Part]]:
        """The loader's batches with their parts of the order; counts a global batch as consumed with its last part."""
        self._check(loader)
        batches, parts = self._start(loader), self._batches.parts(self._consumed)
        position = (self._epoch, self._consumed)
        for batch in batches:
            if position != (self._epoch, self._consumed):
                raise JobError("the sampler was moved while a loop over it was running; end the loop first")
            part = next(parts, None)
            if part is None:
                raise self._nothing_left()
            if part.ends:
                self._count(part.step)
            position = (self._epoch, self._consumed)
            yield batch, part
        if not self.batches_left:
            self.set_epoch(self._epoch + 1)

    def _count(self, size: int) -> None:
        text = f"{self._fingerprint} {self._epoch} {self._consumed} {size}"
        self._fingerprint = hashlib.sha256(text.encode()).hexdigest()[:32]
        self._consumed += size
        self._was_counted = True

    def _nothing_left(self) -> JobError:
        return JobError(f"epoch {self._epoch} has no batch left to consume; call set_epoch before the next one")

    def _refuse_global_batch(self) -> None:
        if self._batches.accumulates:
            raise JobError("with global_batch a step has several batches; iterate sampler.accumulate(loader, model)")

    def _check(self, loader: Any) -> None:
        if getattr(loader, "in_order", True) is False:
            raise JobError("a loader with in_order=False gives batches in any order; what was consumed has no number")
        samplers = [getattr(loader, name) for name in ("batch_sampler", "sampler") if hasattr(loader, name)]
        if samplers and self not in samplers:
            raise JobError("the loader has another sampler; make it with DataLoader(dataset, batch_sampler=sampler)")

    def _start(self, loader: Iterable[_Batch]) -> Iterator[_Batch]:
        """The loader's iterator, without changing the state of torch's generator.

        A DataLoader draws the seed of its workers from that generator when its iteration starts. A resumed run starts
        one more iteration, so its dropout would differ from then on. The workers also get another seed than those that
        began the epoch.
        """
        text = f"workers {self._seed} {self._epoch} {self._consumed} {self._batches.rank}"
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "little"))
            return iter(watch(loader))


def _refuse_empty_epoch(batches: GlobalBatches) -> None:
    """Raises JobError where `drop_last` drops all samples."""
    if batches.drop_last and batches.dataset_size < batches.global_batch:
        each = "" if batches.accumulates else f" ({batches.batch_size} on each of {batches.world_size} ranks)"
        lost, size = batches.dataset_size, batches.global_batch
        raise JobError(f"drop_last leaves nothing of {lost} samples: a global batch has {size}{each}")


def _rank_and_world_size(rank: int | None, world_size: int | None) -> tuple[int, int]:
    """The arguments, else those of torch.distributed's group, which averages the gradients, else those of the job."""
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
