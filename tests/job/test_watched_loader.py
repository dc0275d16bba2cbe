"""`slurmopt.watch`: the loop gets what it would get without it, and its waits are measured."""

from __future__ import annotations

import copy
import pickle
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import slurmopt
from slurmopt.job.facts.rank_facts import facts_from
from slurmopt.job.heartbeat.child_reports import PROGRESS
from slurmopt.job.heartbeat.heartbeat_writer import HeartbeatWriter
from slurmopt.job.worker import current_run


@pytest.fixture
def live(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HeartbeatWriter:
    """This process as a rank whose heartbeats are not written."""
    rank = HeartbeatWriter(tmp_path / "rank-0.json", facts_from({}), 1000.0, lambda: None)
    monkeypatch.setattr(current_run, "_live", rank)
    rank.enter("running")
    return rank


class Loader:
    """Like a DataLoader: sized, with attributes, iterated again and again."""

    def __init__(self, items: list[int]) -> None:
        self.dataset, self.epoch = items, 0

    def __len__(self) -> int:
        return len(self.dataset)

    def __iter__(self) -> Iterator[int]:
        return iter(self.dataset)

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    @property
    def broken(self) -> int:
        raise RuntimeError("the loader's own")


@pytest.mark.usefixtures("live")
def test_a_watched_loader_is_the_loader_in_all_else() -> None:
    loader = Loader([1, 2, 3])
    watched = slurmopt.watch(loader)
    assert isinstance(watched, Loader)
    assert [list(watched), list(watched), len(watched), bool(watched)] == [[1, 2, 3], [1, 2, 3], 3, True]
    watched.set_epoch(4)
    watched.more = 5  # type: ignore[attr-defined]
    assert (loader.epoch, loader.more, watched.dataset is loader.dataset) == (4, 5, True)  # type: ignore[attr-defined]
    assert repr(watched) == repr(loader)
    assert slurmopt.watch(watched) is watched
    with pytest.raises(RuntimeError, match="the loader's own"):
        _ = watched.broken
    with pytest.raises(AttributeError, match="missing"):
        _ = watched.missing  # type: ignore[attr-defined]
    for copied in (pickle.loads(pickle.dumps(watched)), copy.copy(watched), copy.deepcopy(watched)):
        assert list(copied) == [1, 2, 3]
        assert copied.epoch == 4


@pytest.mark.usefixtures("live")
def test_a_watched_generator_is_ended_closed_and_fails_as_itself() -> None:
    closed: list[str] = []

    def items(name: str) -> Iterator[int]:
        try:
            yield 1
            yield 2
            raise OSError("the disk is gone")
        finally:
            closed.append(name)

    left = slurmopt.watch(items("left"))
    assert not hasattr(left, "__len__")
    assert next(left) == 1
    left.close()  # type: ignore[attr-defined]
    assert closed == ["left"]
    for _ in slurmopt.watch(items("dropped")):
        break
    assert closed == ["left", "dropped"]
    failing = iter(slurmopt.watch(items("failing")))
    assert (next(failing), next(failing)) == (1, 2)
    with pytest.raises(OSError, match="the disk is gone"):
        next(failing)
    with pytest.raises(StopIteration):
        next(failing)


def slow(count: int, seconds: float) -> Iterator[int]:
    for number in range(count):
        time.sleep(seconds)
        yield number


def test_waits_are_input_and_the_work_between_them_is_not(live: HeartbeatWriter) -> None:
    for number in slurmopt.watch(slow(5, 0.04)):
        slurmopt.progress(number)
        time.sleep(0.02)
    before, spent = live.meter.clock.age, live.meter.clock.spent()
    assert spent["input"] >= 0.2
    assert spent["running"] >= 0.08  # the last of five sleeps and the first one are in it only from the first step on
    assert before <= sum(spent.values()) <= live.meter.clock.age
    assert live.meter.clock.activity == "running"


def test_a_phase_inside_the_loader_is_that_phase_and_a_watched_loader_in_a_phase_is_input(
    live: HeartbeatWriter,
) -> None:
    def downloading() -> Iterator[int]:
        with slurmopt.phase("download"):
            time.sleep(0.05)
        time.sleep(0.02)
        yield 1

    slurmopt.progress(1)
    with slurmopt.phase("evaluation"):
        for _ in slurmopt.watch(downloading()):
            assert live.meter.clock.activity == "evaluation"
    spent = live.meter.clock.spent()
    assert spent["download"] >= 0.05
    assert spent["input"] >= 0.02
    assert live.meter.clock.activity == "running"


def test_what_a_thread_fetches_ahead_is_not_waited_for(live: HeartbeatWriter) -> None:
    taken: list[int] = []
    thread = threading.Thread(target=lambda: taken.extend(slurmopt.watch(slow(3, 0.02))))
    thread.start()
    thread.join()
    assert taken == [0, 1, 2]
    assert "input" not in live.meter.clock.spent()


def test_an_error_of_the_loader_ends_the_wait(live: HeartbeatWriter) -> None:
    def failing() -> Iterator[int]:
        raise ValueError("bad sample")
        yield

    with pytest.raises(ValueError, match="bad sample"):
        next(slurmopt.watch(failing()))
    assert live.meter.clock.activity == "first step"


def test_outside_a_job_it_is_the_loader_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PROGRESS, raising=False)
    monkeypatch.setattr(current_run, "_child", None)
    for loader in (Loader([1]), [1], iter([1])):
        assert slurmopt.watch(loader) is loader


@pytest.mark.usefixtures("live")
def test_torchs_loader_is_still_one(live: HeartbeatWriter) -> None:
    data = pytest.importorskip("torch").utils.data

    class Stream(data.IterableDataset):  # type: ignore[name-defined, misc]
        def __iter__(self) -> Iterator[int]:
            return slow(3, 0.02)

    stream = slurmopt.watch(data.DataLoader(Stream(), batch_size=None))
    assert isinstance(stream, data.DataLoader)
    with pytest.raises(TypeError):
        len(stream)
    assert list(stream) == [0, 1, 2]
    sized: Any = slurmopt.watch(data.DataLoader([1, 2, 3], batch_size=2))
    assert (len(sized), len(iter(sized)), sized.batch_size) == (2, 2, 2)
    with pytest.raises(ValueError, match="should not be set after"):
        sized.batch_size = 3
    assert live.meter.clock.spent()["input"] >= 0.06


@pytest.mark.parametrize("wrap", [lambda loader: loader, slurmopt.watch], ids=["plain", "watched"])
@pytest.mark.parametrize("how", ["track", "accumulate"])
def test_the_sampler_measures_it_without_being_asked_and_once(live: HeartbeatWriter, wrap: Any, how: str) -> None:
    data = pytest.importorskip("torch").utils.data
    from slurmopt.training import ResumableSampler

    class Slow(data.Dataset):  # type: ignore[name-defined, misc]
        def __getitem__(self, index: int) -> int:
            time.sleep(0.02)
            return index

        def __len__(self) -> int:
            return 6

    whole = {"global_batch": 2} if how == "accumulate" else {}
    sampler = ResumableSampler(6, batch_size=2, rank=0, world_size=1, **whole)
    loop = getattr(sampler, how)(wrap(data.DataLoader(Slow(), batch_sampler=sampler)))
    began = time.monotonic()
    for _ in loop:
        time.sleep(0.02)
    spent = live.meter.clock.spent()
    assert 0.12 <= spent["input"] <= time.monotonic() - began - 0.06
