"""loader: a DataLoader whose settings fit the job, and that measures what its batches cost."""

from __future__ import annotations

import contextlib
import gc
import os
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset, default_collate, default_convert

from slurmopt.errors import JobError
from slurmopt.job.monitor.sources.usable_cpus import usable_cpus
from slurmopt.job.worker.watched_loader import watch
from slurmopt.training.data_loading.batch_costs import (
    Costs,
    TimedBatch,
    TimedCollate,
    TimedDataset,
    TimedIterableDataset,
)
from slurmopt.training.data_loading.device_prefetch import on_device

_MOST_WORKERS = 8
"""Without `num_workers`. Most loaders need fewer; slurmopt tune loader tells how many."""


class Loader(DataLoader[Any]):
    """A DataLoader that measures its batches: see `loader`. Another library that makes a loader of its own from this
    one, as accelerate does, finds the dataset and the functions that it was given."""

    def __init__(self, dataset: Any, device: torch.device | None, options: dict[str, Any]) -> None:
        super().__init__(dataset, **options)
        self._device, self._costs = device, Costs()
        timed = TimedIterableDataset if isinstance(dataset, IterableDataset) else TimedDataset
        collate = self.collate_fn or (default_convert if self._auto_collation is False else default_collate)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # whatever it is, the line above has said it
            self._timed: DataLoader[Any] = DataLoader(
                timed(dataset), **{**options, "collate_fn": TimedCollate(collate)}
            )

    @property
    def costs(self) -> Costs:
        """What the batches have cost so far."""
        return self._costs

    def __iter__(self) -> Iterator[Any]:
        batches = self._unpacked()
        return watch(batches if self._device is None else on_device(batches, self._device, self._costs))

    def _unpacked(self) -> Iterator[Any]:
        with _workers_start():
            batches = iter(self._timed)
        for timed in batches:
            assert isinstance(timed, TimedBatch)
            self._costs.add(timed)
            yield timed.batch


def _leave_garbage_alone() -> None:
    """In a process that was just forked: its garbage collector never looks at what is there now.

    Pinned memory and events of CUDA abort a forked process that frees them. Pages of memory stay shared, too, which the
    collector would write to."""
    if _starting_workers:
        gc.freeze()


_starting_workers = False
os.register_at_fork(after_in_child=_leave_garbage_alone)


@contextlib.contextmanager
def _workers_start() -> Iterator[None]:
    global _starting_workers
    _starting_workers = True
    try:
        yield
    finally:
        _starting_workers = False


def loader(dataset: Any, *, device: torch.device | str | None = None, **options: Any) -> Loader:
    """A DataLoader with settings for this job: `options` are those of `torch.utils.data.DataLoader`, and win.

    Without them: as many workers as the rank has CPUs but one, eight at most; they live on after an epoch; memory is
    pinned where there is a GPU. `in_order` stays on, as a run could not resume exactly without.

    `device`: batches are copied there. With CUDA the copy of the next batch runs on a stream of its own while the
    training works on this one; the batch is what the loop gets, complete.

    The loop's wait for input is the activity `input`, and what the workers spend on each batch is counted beside it.
    JobError for options that do not go together.
    """
    _check(dataset, options)
    workers = options.setdefault("num_workers", min(_MOST_WORKERS, max(1, usable_cpus() - 1)))
    if workers > 0:
        options.setdefault("persistent_workers", True)
    options.setdefault("pin_memory", torch.cuda.is_available())
    return Loader(dataset, None if device is None else _device(device), options)


def _device(device: torch.device | str) -> torch.device:
    try:
        found = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise JobError(f"loader: device={device!r} is not valid; valid: such as cuda, cuda:1, cpu") from error
    if found.type == "cuda" and not torch.cuda.is_available():
        raise JobError(f"loader: device={device!r}: torch finds no GPU here; valid: cpu, or None")
    return found


def _check(dataset: Any, options: dict[str, Any]) -> None:
    workers = options.get("num_workers", 1)
    if isinstance(workers, bool) or not isinstance(workers, int) or workers < 0:
        raise JobError(f"loader: num_workers={workers!r} is not valid; valid: 0, 1, 2, …")
    for name in ("prefetch_factor", "persistent_workers"):
        if workers == 0 and options.get(name):
            raise JobError(f"loader: {name}={options[name]!r} needs workers; valid: num_workers of 1 or more")
    if not hasattr(dataset, "__getitem__") and not isinstance(dataset, IterableDataset):
        raise JobError(
            f"loader: {type(dataset).__name__} is no dataset; valid: an object with __getitem__ and __len__, or a "
            "torch.utils.data.IterableDataset"
        )
