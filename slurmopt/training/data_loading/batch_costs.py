"""What a batch costs the process that makes it: measured where that is done, and sent along with the batch."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from torch.utils.data import IterableDataset, get_worker_info
from torch.utils.data._utils.pin_memory import pin_memory

from slurmopt import log
from slurmopt.errors import one_line
from slurmopt.job.heartbeat.counters import BATCH_COSTS
from slurmopt.job.worker import current_run


class _Fetch:
    """The time of the dataset since the last batch of this process. Its thread makes one batch at a time."""

    seconds = 0.0
    cpu = 0.0

    @classmethod
    def time(cls, work: Callable[..., Any], *arguments: Any) -> Any:
        began, cpu = time.perf_counter(), time.thread_time()
        try:
            return work(*arguments)
        finally:
            cls.seconds += time.perf_counter() - began
            cls.cpu += time.thread_time() - cpu

    @classmethod
    def take(cls) -> tuple[float, float]:
        taken = cls.seconds, cls.cpu
        cls.seconds = cls.cpu = 0.0
        return taken


@dataclass
class TimedBatch:
    """A batch, with the seconds that it cost."""

    batch: Any
    fetch: float
    fetch_cpu: float
    collate: float

    def pin_memory(self) -> TimedBatch:
        """Called by the DataLoader's thread that pins memory."""
        self.batch = pin_memory(self.batch)
        return self


class TimedCollate:
    """A collate function, timed."""

    def __init__(self, collate: Callable[[Any], Any]) -> None:
        self._collate = collate

    def __call__(self, samples: Any) -> TimedBatch:
        began = time.perf_counter()
        batch = self._collate(samples)
        seconds = time.perf_counter() - began
        fetch, cpu = _Fetch.take()
        return TimedBatch(batch, fetch, cpu, seconds)


class _OfDataset:
    """Stands for a dataset; says that it has the dataset's class, as a `worker_init_fn` may ask for it."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset

    def __getattr__(self, name: str) -> Any:
        if name == "_dataset":  # while it is being unpickled
            raise AttributeError(name)
        return getattr(self._dataset, name)


class TimedDataset(_OfDataset):
    """A dataset of samples that have numbers, timed. Of an error in a sample the log tells the number."""

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, index: Any) -> Any:
        return _Fetch.time(self._sample, index)

    def __getitems__(self, indices: list[Any]) -> list[Any]:
        many = getattr(self._dataset, "__getitems__", None)
        if callable(many):
            return list(_Fetch.time(many, indices))
        return list(_Fetch.time(lambda: [self._sample(index) for index in indices]))

    def _sample(self, index: Any) -> Any:
        try:
            return self._dataset[index]
        except Exception as error:
            log.warning(one_line(f"sample {index!r} of the dataset{self._of()}: {type(error).__name__}: {error}"))
            raise

    def _of(self) -> str:
        try:
            return f", which says that it has {len(self._dataset):,} samples"
        except Exception:  # noqa: BLE001 - code of the dataset; the error of the sample is the one to be told
            return ""


class TimedIterableDataset(_OfDataset, IterableDataset[Any]):
    """A dataset that is a stream, timed."""

    def __iter__(self) -> Iterator[Any]:
        samples, end = iter(self._dataset), object()
        while (sample := _Fetch.time(next, samples, end)) is not end:
            yield sample

    def __len__(self) -> int:
        return len(self._dataset)


@dataclass
class Costs:
    """What batches have cost together. Seconds: of the processes that made them, which work side by side."""

    batches: int = 0
    fetch: float = 0.0
    """In the dataset."""
    fetch_cpu: float = 0.0
    """Of that the time that a CPU was used; the rest was waiting, mostly for storage."""
    collate: float = 0.0
    copy: float = 0.0
    """Of copies to the GPU, as far as they are complete."""

    @property
    def service(self) -> float | None:
        """Seconds that a batch takes a worker; None before the first one."""
        return (self.fetch + self.collate) / self.batches if self.batches else None

    def add(self, timed: TimedBatch) -> None:
        """Counts a batch, also in the heartbeat of a job."""
        self.batches += 1
        self.fetch += timed.fetch
        self.fetch_cpu += timed.fetch_cpu
        self.collate += timed.collate
        meter = current_run.meter()
        if meter is None or get_worker_info() is not None:
            return
        values = (1.0, timed.fetch, timed.fetch_cpu, timed.collate)
        for name, value in zip(BATCH_COSTS, values, strict=False):
            meter.counters.add(name, value)

    def copied(self, seconds: float) -> None:
        """Counts a copy."""
        self.copy += seconds
        if (meter := current_run.meter()) is not None:
            meter.counters.add(BATCH_COSTS.copy, seconds)
