"""slurmopt.training.loader: the batches of a DataLoader, in its order, with what they cost; real worker processes."""

from __future__ import annotations

import gc
import os
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoint.ranks import on_ranks
from torch.utils.data import DataLoader, IterableDataset, TensorDataset, default_collate, get_worker_info

from slurmopt import watch
from slurmopt.checkpoint import Checkpointer
from slurmopt.errors import JobError
from slurmopt.job.monitor.sources.usable_cpus import usable_cpus
from slurmopt.training import ResumableSampler, loader

SIZE, BATCH = 60, 5


class Slow:
    """Each sample takes `seconds`: of waiting, or of a CPU."""

    def __init__(self, seconds: float = 0.0, busy: bool = False, size: int = SIZE, real: int = SIZE) -> None:
        self.seconds, self.busy, self.size, self.real = seconds, busy, size, real

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> torch.Tensor:
        if index >= self.real:
            raise IndexError("list index out of range")
        end = time.thread_time() + self.seconds
        while self.busy and time.thread_time() < end:
            pass
        if not self.busy:
            time.sleep(self.seconds)
        return torch.tensor([float(index)])


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter(Slow())


def slow_collate(samples: Any) -> Any:
    time.sleep(0.1)
    return default_collate(samples)


@pytest.mark.parametrize("workers", [0, 2])
def test_the_batches_are_those_of_a_plain_loader_and_draw_the_same_random_numbers(workers: int) -> None:
    data = TensorDataset(torch.arange(SIZE), torch.arange(SIZE) * 2)
    options: dict[str, Any] = {"batch_size": BATCH, "shuffle": True, "num_workers": workers, "drop_last": True}
    options["persistent_workers"] = workers > 0  # torch draws other numbers with these
    found, after = [], []
    for make in (DataLoader, loader):
        torch.manual_seed(3)
        batches = make(data, **options)
        found.append([[one.tolist() for one in batch] for _ in range(2) for batch in batches])
        after.append(torch.rand(1).item())
    assert found[0] == found[1]
    assert after[0] == after[1]


def test_a_library_that_makes_its_own_loader_finds_what_was_given() -> None:
    data = Slow()
    batches = loader(data, batch_size=BATCH, collate_fn=slow_collate, num_workers=1)
    assert isinstance(batches, DataLoader)
    assert (batches.dataset, batches.collate_fn, len(batches)) == (data, slow_collate, SIZE // BATCH)
    again = DataLoader(batches.dataset, batch_size=BATCH, collate_fn=batches.collate_fn)
    assert [batch.tolist() for batch in again] == [batch.tolist() for batch in batches]


class Ring:
    """Garbage that tells which process frees it, as a GPU's pinned memory would by aborting it."""

    def __init__(self, told: Path) -> None:
        self.told, self.own = told, self

    def __del__(self) -> None:
        with self.told.open("a") as file:
            file.write(f"{os.getpid()}\n")


class Collecting(Slow):
    def __getitem__(self, index: int) -> torch.Tensor:
        gc.collect()
        return super().__getitem__(index)


def test_workers_leave_garbage_to_the_process_that_made_it(tmp_path: Path) -> None:
    gc.collect()
    gc.disable()  # of this process, not that of the workers
    try:
        Ring(tmp_path / "freed by")
        batches = loader(Collecting(size=10, real=10), batch_size=BATCH, num_workers=2)
        assert torch.cat(list(batches)).flatten().tolist() == list(range(10))
        assert not (tmp_path / "freed by").exists()
    finally:
        gc.enable()
    gc.collect()
    assert (tmp_path / "freed by").read_text() == f"{os.getpid()}\n"


@pytest.mark.parametrize("workers", [0, 2])
def test_the_parts_are_told_apart(workers: int) -> None:
    def costs(data: Any, **options: Any) -> Any:
        batches = loader(data, batch_size=BATCH, num_workers=workers, **options)
        assert sum(1 for _ in batches) == SIZE // BATCH
        assert batches.costs.batches == SIZE // BATCH
        return batches.costs

    storage = costs(Slow(0.02))
    assert storage.fetch > storage.collate
    assert storage.fetch >= SIZE * 0.02
    assert storage.fetch_cpu < 0.5 * storage.fetch
    busy = costs(Slow(0.002, busy=True))
    assert busy.fetch_cpu >= 0.9 * SIZE * 0.002
    collate = costs(Slow(), collate_fn=slow_collate)
    assert collate.collate > collate.fetch
    assert collate.service >= 0.1


def test_a_stream_is_measured_too() -> None:
    batches = loader(Stream(), batch_size=BATCH, num_workers=1)
    assert torch.cat(list(batches)).flatten().tolist() == list(range(SIZE))
    assert batches.costs.batches == SIZE // BATCH


@pytest.mark.parametrize("workers", [0, 1])
def test_a_dataset_whose_length_lies_is_told_with_the_sample(workers: int, capfd: pytest.CaptureFixture[str]) -> None:
    batches = loader(Slow(size=SIZE + 2), batch_size=BATCH, num_workers=workers)
    with pytest.raises(IndexError, match="list index out of range"):
        list(batches)
    told = [line for line in capfd.readouterr().err.splitlines() if line.startswith("slurmopt:")]
    assert told == [
        f"slurmopt: sample {SIZE} of the dataset, which says that it has {SIZE + 2} samples: "
        "IndexError: list index out of range"
    ]


@pytest.mark.parametrize(
    ("data", "options", "why"),
    [
        (Slow(), {"num_workers": -1}, "num_workers=-1 is not valid; valid: 0, 1, 2"),
        (Slow(), {"num_workers": "two"}, "num_workers='two' is not valid"),
        (Slow(), {"num_workers": 0, "prefetch_factor": 4}, "prefetch_factor=4 needs workers"),
        (Slow(), {"num_workers": 0, "persistent_workers": True}, "persistent_workers=True needs workers"),
        (iter([1]), {}, "list_iterator is no dataset"),
    ],
)
def test_bad_options(data: Any, options: dict[str, Any], why: str) -> None:
    with pytest.raises(JobError, match=why):
        loader(data, **options)


def test_workers_are_the_cpus_of_the_rank_but_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_CPUS_ON_NODE", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    for allowed, expected in ((1, 1), (2, 1), (6, 5), (40, 8)):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, allowed=allowed: set(range(allowed)))
        assert usable_cpus() == allowed
        batches = loader(Slow(), batch_size=BATCH)
        assert (batches.num_workers, batches.persistent_workers) == (expected, True)


def test_batches_are_moved_to_the_device_that_is_asked_for() -> None:
    batches = loader(TensorDataset(torch.zeros(4, 2)), batch_size=2, num_workers=0, device="meta")
    assert [one.device.type for batch in batches for one in batch] == ["meta", "meta"]


def consume(run: Any, stop: int | None) -> list[list[float]]:
    """Two epochs of a sampler; stops after some steps, and goes on from the checkpoint."""
    sampler = ResumableSampler(SIZE, batch_size=BATCH, seed=1)
    batches = loader(Slow(), batch_sampler=sampler, num_workers=2)
    seen = []
    with Checkpointer({"shared": {"every": 1}}, run) as checkpointer:
        step = checkpointer.restore({"sampler": sampler}) or 0
        for epoch in range(sampler.epoch, 2):
            sampler.set_epoch(epoch)
            for batch in sampler.track(batches):
                step += 1
                seen.append(batch.flatten().tolist())
                checkpointer.save(step, {"sampler": sampler}, force=step == stop)
                if step == stop:
                    return seen
    return seen


class Numbers(IterableDataset[Any]):
    """A stream of its own for each rank, divided between the workers."""

    def __init__(self, rank: int) -> None:
        self.rank = rank

    def __iter__(self) -> Any:
        worker = get_worker_info()
        assert worker is not None
        return iter(range(1000 * self.rank + worker.id, 1000 * self.rank + 100, worker.num_workers))


def consume_stream(run: Any, stop: int | None) -> list[list[int]]:
    from torchdata.stateful_dataloader import StatefulDataLoader

    batches = StatefulDataLoader(Numbers(run.rank.rank), batch_size=4, num_workers=2, snapshot_every_n_steps=2)
    seen = []
    with Checkpointer({"shared": {"every": 1}}, run) as checkpointer:
        step = checkpointer.restore({"data": batches}) or 0
        for batch in watch(batches):
            step += 1
            seen.append(batch.tolist())
            checkpointer.save(step, {"data": batches}, force=step == stop)
            if step == stop:
                break
    return seen


def test_a_stateful_loader_of_torchdata_goes_on_where_it_was(tmp_path: Path) -> None:
    whole = on_ranks(consume_stream, tmp_path / "whole", None, nodes=["a", "a"])
    first = on_ranks(consume_stream, tmp_path / "parts", 7, nodes=["a", "a"])
    second = on_ranks(consume_stream, tmp_path / "parts", None, nodes=["a", "a"], attempt=1)
    assert [one.error for one in [*whole, *first, *second]] == [None] * 6
    for rank in (0, 1):
        assert len(first[rank].value) == 7
        assert first[rank].value + second[rank].value == whole[rank].value


def test_an_interrupted_run_sees_each_sample_once_and_in_order(tmp_path: Path) -> None:
    whole = on_ranks(consume, tmp_path / "whole", None, nodes=["a", "a"])
    first = on_ranks(consume, tmp_path / "parts", 8, nodes=["a", "a"])
    second = on_ranks(consume, tmp_path / "parts", None, nodes=["a", "a"], attempt=1)
    assert [one.error for one in [*whole, *first, *second]] == [None] * 6
    for rank in (0, 1):
        assert len(first[rank].value) == 8
        assert first[rank].value + second[rank].value == whole[rank].value


class Unsized(Slow):
    def __len__(self) -> int:
        raise ValueError("no length")

    def __getitem__(self, index: int) -> torch.Tensor:
        raise KeyError(f"the cause, at {index}")


def test_a_dataset_without_a_length_keeps_the_error_of_its_sample() -> None:
    with pytest.raises(KeyError, match="the cause, at 9"):
        next(iter(loader(Unsized(), batch_sampler=[[9]], num_workers=0)))


@pytest.mark.parametrize(("device", "said"), [("foo", "device='foo' is not valid"), ("cuda", "finds no GPU here")])
def test_a_device_that_is_not_there_is_refused_at_once(device: str, said: str) -> None:
    if device == "cuda" and torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(JobError, match=said):
        loader(Slow(), batch_size=BATCH, device=device)
