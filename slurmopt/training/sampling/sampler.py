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
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import torch
from torch.utils.data import Sampler

from slurmopt.errors import CheckpointError, JobError
from slurmopt.job.worker.watched_loader import watch
from slurmopt.training.accumulation import MicroBatch, Part, passes, synchronised
from slurmopt.training.sampling.arguments import MOST, rank_and_world_size, refuse_empty_epoch, saved_number, whole
from slurmopt.training.sampling.global_batches import BatchSizes, GlobalBatches
from slurmopt.training.sampling.permutation import Permutation

_Batch = TypeVar("_Batch")


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
    `global_batch` may be a schedule, such as `schedules.rising_batch(…)`.
    """

    per_rank = False
    """Where all ranks are in the epoch is one number, which any number of ranks can go on from."""

    def __init__(
        self,
        dataset_size: int,
        *,
        batch_size: int,
        global_batch: int | BatchSizes | None = None,
        seed: int = 0,
        shuffle: bool = True,
        drop_last: bool = False,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        """JobError says which argument is wrong, and what would be valid."""
        rank, world_size = rank_and_world_size(rank, world_size)
        self._dataset_size = whole("dataset_size", dataset_size, 1, MOST)
        batch_size = whole("batch_size", batch_size, 1, MOST)
        if global_batch is not None and not callable(global_batch):
            global_batch = whole("global_batch", global_batch, 1, MOST)
        self._batches = GlobalBatches(
            dataset_size=self._dataset_size,
            global_batch=batch_size * world_size if global_batch is None else global_batch,
            batch_size=batch_size,
            rank=rank,
            world_size=world_size,
            drop_last=drop_last,
            accumulates=global_batch is not None,
        )
        self._seed, self._shuffle = whole("seed", seed, -MOST, MOST), shuffle
        self._epoch = self._consumed = 0
        self._chosen: int | None = None
        self._fingerprint = ""
        self._was_iterated = self._was_counted = False
        refuse_empty_epoch(self._batches)
        if global_batch is not None and rank == 0 and self.global_batch < world_size:
            idle = world_size - self.global_batch
            warnings.warn(f"a global batch of {self.global_batch} leaves {idle} ranks without work", stacklevel=2)

    @property
    def global_batch(self) -> int:
        """Samples in the next global batch of all ranks, if the epoch has so many left."""
        return self._batches.full_size(self._before + self._consumed)

    def set_global_batch(self, size: int) -> None:
        """Gives the global batches another size from the start of this epoch on, also after a restart; on all ranks.

        JobError within an epoch, whose next batches may have been loaded already, and without a `global_batch`."""
        if not self._batches.accumulates:
            raise JobError("the sampler has no global_batch; give it one")
        if self._consumed:
            raise JobError(f"{self._consumed} samples of epoch {self._epoch} are consumed; call it between epochs")
        self._chosen = whole("global_batch", size, 1, MOST)
        self._batches = replace(self._batches, global_batch=self._chosen)

    @property
    def _before(self) -> int:
        """Samples of the epochs before this one."""
        return self._epoch * self._dataset_size

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
        return self._batches.count(self._consumed, self._before)

    @property
    def micro_batches(self) -> int:
        """The number of batches per rank in the next full global batch; 1 without `global_batch`."""
        return passes(self.global_batch, self._batches.world_size, self._batches.batch_size)

    def __len__(self) -> int:
        """The number of global batches, and so of steps, in a whole epoch.

        It does not shrink while the epoch is consumed, so a schedule computed from it stays the same after a restart;
        with `global_batch` also on another world size.
        """
        return self._batches.count(0, self._before)

    def set_epoch(self, epoch: int) -> None:
        """Moves to the start of `epoch`. Does nothing where that is the current epoch, which may be partly consumed."""
        if epoch != self._epoch:
            self._epoch, self._consumed = whole("epoch", epoch, 0, MOST), 0

    def __iter__(self) -> Iterator[list[int]]:
        """The remaining batches of the epoch; iterating does not count them as consumed."""
        self._was_iterated = self.batches_left > 0
        return self._batches.indices(self._shuffled(self._epoch), self._consumed, self._before)

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
        size = self._batches.next_size(self._consumed, self._before)
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
        return {**self._order(), **position, **({} if self._chosen is None else {"global_batch": self._chosen})}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Moves to the position in `state`. CheckpointError where that belongs to another order."""
        for name, expected in self._order().items():
            if name not in state or state[name] != expected:
                saved = repr(state[name]) if name in state else "nothing"
                raise CheckpointError(f"the sampler's {name} is {expected!r}, and in the checkpoint it is {saved}")
        epoch = saved_number(state, "epoch", MOST)
        self._epoch, self._consumed = epoch, saved_number(state, "consumed", self._dataset_size)
        if "global_batch" in state:
            self._chosen = whole("global_batch", saved_number(state, "global_batch", MOST), 1, MOST)
            self._batches = replace(self._batches, global_batch=self._chosen)
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
        batches, parts = self._start(loader), self._batches.parts(self._consumed, self._before)
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
