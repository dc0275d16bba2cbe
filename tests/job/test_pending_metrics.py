"""Metrics on a GPU: `progress` does not wait for them, and they are shown as they were at the call."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from slurmopt.job.facts.rank_facts import facts_from  # noqa: E402
from slurmopt.job.heartbeat import pending_metrics  # noqa: E402
from slurmopt.job.heartbeat.heartbeat_writer import HeartbeatWriter  # noqa: E402
from slurmopt.job.heartbeat.pending_metrics import PendingMetrics  # noqa: E402
from slurmopt.job.worker import current_run  # noqa: E402
from slurmopt.run_folder import heartbeat  # noqa: E402
from slurmopt.run_folder.outcome import Outcome  # noqa: E402


class Gpu:
    """Simulated: a stream, which does the copies that are queued there when it is told to, in order."""

    def __init__(self) -> None:
        self.queue: list[tuple[Any, float]] = []

    def tensor(self, value: float) -> OnGpu:
        return OnGpu(self, value)

    def work(self, copies: int = 10_000) -> None:
        for target, value in self.queue[:copies]:
            target.fill_(value)
        del self.queue[:copies]


class OnGpu:
    """A tensor of one element there. To read it would wait for the GPU."""

    device = SimpleNamespace(type="cuda")

    def __init__(self, gpu: Gpu, value: float) -> None:
        self.gpu, self.value = gpu, value

    def numel(self) -> int:
        return 1

    def detach(self) -> OnGpu:
        return self

    def reshape(self, shape: tuple[int, ...]) -> OnGpu:
        return self

    def to(self, dtype: Any) -> OnGpu:
        return OnGpu(self.gpu, self.value)

    def __float__(self) -> float:
        self.gpu.work()
        raise AssertionError("this waits for the GPU")

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, arguments: Any = (), named: Any = None) -> Any:
        assert function is torch.Tensor.copy_
        assert named == {"non_blocking": True}
        target, source = arguments
        source.gpu.queue.append((target, source.value))
        return target


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    monkeypatch.setattr(pending_metrics, "_pinned", lambda torch, count: torch.zeros(count, dtype=torch.int64))
    return Gpu()


def test_a_number_is_there_once_the_gpu_has_it(gpu: Gpu) -> None:
    numbers = PendingMetrics()
    loss = gpu.tensor(0.5)
    assert numbers.take({"loss": loss, "rate": 3, "host": torch.tensor(2.5)}) == {"rate": 3.0, "host": 2.5}
    loss.value = 99.0  # in place, afterwards
    assert numbers.come() == {}
    gpu.work()
    assert numbers.come() == {"loss": 0.5}
    assert numbers.come() == {}


def test_a_loss_that_requires_its_gradient_is_a_number_without_a_warning(recwarn: pytest.WarningsRecorder) -> None:
    assert PendingMetrics().take({"loss": torch.tensor([0.5], requires_grad=True)}) == {"loss": 0.5}
    assert not recwarn.list


def test_a_gpu_that_is_always_steps_behind_shows_its_numbers_all_the_same(gpu: Gpu) -> None:
    numbers, shown = PendingMetrics(), []
    for step in range(2000):
        shown += (numbers.take({"loss": gpu.tensor(float(step)), "nan": gpu.tensor(float("nan"))}).get("loss", -1.0),)
        if step >= 3:
            gpu.work(2)
    assert shown[:4] == [-1.0] * 4
    assert shown[4:] == [float(step) for step in range(1996)]
    for _ in range(5000):  # and one that stands still costs no memory
        numbers.take({"loss": gpu.tensor(1.0)})
    assert len(gpu.queue) < 1000


def test_an_older_number_does_not_come_over_a_newer_one(gpu: Gpu) -> None:
    numbers = PendingMetrics()
    numbers.take({"loss": gpu.tensor(1.0)})
    assert numbers.take({"loss": 2.0}) == {"loss": 2.0}
    gpu.work()
    assert numbers.come() == {}


@pytest.fixture
def live(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> HeartbeatWriter:
    rank = HeartbeatWriter(tmp_path / "rank-0.json", facts_from({}), 60.0, lambda: None)
    monkeypatch.setattr(current_run, "_live", rank)
    monkeypatch.setattr(current_run, "_reports", lambda: rank)
    return rank


def test_progress_does_not_wait_and_the_last_numbers_are_kept(gpu: Gpu, live: HeartbeatWriter) -> None:
    for step in (1, 2, 3):
        current_run.progress(step, 3, loss=gpu.tensor(step / 10))
    gpu.work()
    live.end(Outcome("completed", 0.0, 0))
    beat = heartbeat.read(live._path)
    assert beat is not None
    assert (beat.step, beat.metrics) == (3, {"loss": 0.3})


def test_a_search_gets_its_number_at_once(live: HeartbeatWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []
    monkeypatch.setattr(current_run, "_judge", lambda step, total, metrics: told.append(metrics))
    current_run.progress(1, loss=torch.tensor(0.25))
    assert told == [{"loss": 0.25}]
    with pytest.raises(AssertionError, match="waits for the GPU"):
        current_run.progress(2, loss=Gpu().tensor(1.0))


def test_tokens_counted_on_the_gpu_are_added_up_though_only_the_last_are_shown(gpu: Gpu, live: HeartbeatWriter) -> None:
    for step in range(1, 6):
        current_run.progress(step, tokens=gpu.tensor(10.0), samples=2)
    assert live.meter.counters.totals() == {"steps": 5, "samples": 10}
    gpu.work()
    live.end(Outcome("completed", 0.0, 0))
    beat = heartbeat.read(live._path)
    assert beat is not None
    assert beat.counted == {"steps": 5, "tokens": 50, "samples": 10}
    assert beat.metrics == {"tokens": 10.0, "samples": 2.0}


def test_each_number_is_told_with_its_own_step(gpu: Gpu) -> None:
    """`status` shows the last number of a name; the metric sinks get all of them, once each."""
    told: list[tuple[int, dict[str, float]]] = []
    numbers = PendingMetrics()
    numbers.arrived = lambda at, step, values: told.append((step, values))
    for step in (1, 2):
        numbers.take({"loss": gpu.tensor(step / 10), "rate": step}, step)
    assert told == [(1, {"rate": 1.0}), (2, {"rate": 2.0})]
    gpu.work(1)
    numbers.take({"loss": 0.3}, 3)
    assert told[2:] == [(1, {"loss": 0.1}), (3, {"loss": 0.3})]
    gpu.work()
    assert numbers.come() == {}  # a newer number is shown already
    assert told[4:] == [(2, {"loss": 0.2})]
