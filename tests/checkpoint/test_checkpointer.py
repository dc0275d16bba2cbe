"""What is saved comes back as it was, and what happens to it in between changes nothing."""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import random
import signal
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from checkpoint.ranks import writer_of
from private_cluster import wait_until
from torch import nn

from slurmopt import Requeue
from slurmopt.checkpoint import Checkpointer, rng_state
from slurmopt.errors import CheckpointError
from slurmopt.training import ResumableSampler

Attempt = Callable[..., Any]
Journal = Callable[[str], list[dict[str, Any]]]
EACH_STEP = {"shared": {"every": 1}}


@contextlib.contextmanager
def writer_stopped() -> Iterator[int]:
    """The writer of this process stands still: what is handed to it stays on its way."""
    pid = writer_of(os.getpid())
    os.kill(pid, signal.SIGSTOP)
    try:
        yield pid
    finally:
        os.kill(pid, signal.SIGCONT)


def save_once(run: Any, state: dict[str, Any], config: dict[str, Any] = EACH_STEP, step: int = 1) -> None:
    with Checkpointer(config, run) as checkpointer:
        checkpointer.restore(dict(state)) if run.attempt else None
        assert checkpointer.save(step, state)
        assert checkpointer.wait()


class GradScaler:
    """As torch's: state_dict is plain numbers."""

    def __init__(self, scale: float) -> None:
        self.scale, self.growth = scale, 0

    def state_dict(self) -> dict[str, Any]:
        return {"scale": self.scale, "_growth_tracker": self.growth}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.scale, self.growth = state["scale"], state["_growth_tracker"]


class Training:
    """A small one with everything that a state usually has."""

    def __init__(self, seed: int) -> None:
        torch.manual_seed(seed)
        self.model = nn.Sequential(nn.Linear(30, 40), nn.BatchNorm1d(40), nn.Dropout(0.3), nn.Linear(40, 1))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        self.scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, 50)
        self.scaler = GradScaler(float(2**16))
        self.sampler = ResumableSampler(103, batch_size=8, seed=7)
        self.state: dict[str, Any] = {
            "model": self.model, "optimizer": self.optimizer, "scheduler": self.scheduler, "scaler": self.scaler,
            "sampler": self.sampler, "rng": rng_state(),
        }  # fmt: skip

    def steps(self, count: int) -> list[Any]:
        """What can be seen of `count` steps."""
        seen: list[Any] = []
        while count:
            for batch in self.sampler.track(self.sampler):
                loss = self.model(torch.randn(len(batch), 30)).square().mean() * random.random()
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                self.scheduler.step()
                self.scaler.growth += 1
                self.scaler.scale *= 1.5
                seen += [
                    batch,
                    loss.item(),
                    float(np.random.rand()),
                    self.scaler.state_dict(),
                    self.scheduler.get_last_lr(),
                ]
                count -= 1
                if not count:
                    break
        return seen


def test_a_training_goes_on_as_if_it_had_never_stopped(attempt: Attempt) -> None:
    training = Training(seed=1)
    training.steps(5)
    with Checkpointer(EACH_STEP, attempt(0)) as checkpointer:
        assert checkpointer.restore(training.state) == 0
        training.steps(17)  # the optimizer's state has come since, and the sampler is in its second epoch
        assert checkpointer.save(22, training.state)
    expected = training.steps(20)

    other = Training(seed=2)
    with Checkpointer(EACH_STEP, attempt(1)) as checkpointer:
        assert checkpointer.restore(other.state) == 22
    assert other.steps(20) == expected
    for name, value in training.model.state_dict().items():
        assert torch.equal(value, other.model.state_dict()[name])


PLAIN = {
    "tuple": (1, ("a", 2.5)),
    "by number": {1: "one", 2: {"three": [3]}},
    "nothing": None,
    "nan": float("nan"),
    "infinite": -math.inf,
    "bytes": b"\x00\xff",
    "text": "naïve \ud800 \n",
    "large": 3**200,
    "ordered": OrderedDict([("z", 1), ("a", 2)]),
    "yes": True,
    "complex": 1 - 2j,
    "set": {1, 2, 3},
    "empty": {},
}


def test_plain_values_are_replaced_by_what_was_saved_types_and_all(attempt: Attempt) -> None:
    save_once(attempt(0), dict(PLAIN))
    state: dict[str, Any] = dict.fromkeys(PLAIN, "something else")
    with Checkpointer(EACH_STEP, attempt(1)) as checkpointer:
        assert checkpointer.restore(state) == 1
    assert math.isnan(state.pop("nan"))
    expected = {name: value for name, value in PLAIN.items() if name != "nan"}
    assert state == expected
    assert {name: type(value) for name, value in state.items()} == {
        name: type(value) for name, value in expected.items()
    }
    assert list(state["ordered"]) == ["z", "a"]
    assert state["tuple"][1].__class__ is tuple


FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2)
WHOLE = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def all_kinds_of_tensors(seed: int) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(seed)
    tensors = {str(dtype): torch.randn(5, 7, generator=generator).to(dtype) for dtype in FLOATS}
    tensors |= {str(dtype): torch.randint(0, 100, (3, 4), generator=generator).to(dtype) for dtype in WHOLE}
    tensors["complex"] = torch.randn(4, 4, generator=generator, dtype=torch.complex64)
    tensors["bool"] = torch.randn(9, generator=generator) > 0
    tensors["0-dim"] = torch.randn((), generator=generator)
    tensors["empty"] = torch.empty(0, 3)
    tensors["transposed"] = torch.randn(60, 50, generator=generator).t()
    tensors["every second"] = torch.randn(8000, generator=generator)[::2]
    tensors["expanded"] = torch.randn(1, 3, generator=generator).expand(4, 3)
    tensors["large"] = torch.randn(3_000_001, generator=generator)  # 12 MB: more than one segment
    tensors["with a gradient"] = torch.randn(3, generator=generator).requires_grad_()
    return tensors


def same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    same = one.dtype == other.dtype and one.shape == other.shape
    raw = [each.detach().contiguous().reshape(-1).view(torch.uint8) for each in (one, other)]
    return same and torch.equal(*raw)


def test_tensors_of_every_kind_come_back_bit_by_bit(attempt: Attempt) -> None:
    tensors = all_kinds_of_tensors(seed=1)
    save_once(attempt(0), {"alone": tensors["bool"].clone(), "all": tensors})
    state = {"alone": torch.zeros(9, dtype=torch.bool), "all": all_kinds_of_tensors(seed=2)}
    mine = state["alone"]
    del state["all"]["expanded"]  # one that shares memory with itself cannot be written into
    with Checkpointer(EACH_STEP, attempt(1)) as checkpointer:
        assert checkpointer.restore(state) == 1
    assert state["alone"] is mine, "a tensor of the state is filled, not replaced"
    assert same_bits(mine, tensors["bool"])
    assert state["all"].keys() == tensors.keys()
    assert [name for name, tensor in tensors.items() if not same_bits(tensor, state["all"][name])] == []


def test_nothing_saved_is_step_0_and_leaves_the_state_alone(attempt: Attempt) -> None:
    state = {"w": torch.ones(3), "note": 7}
    with Checkpointer(EACH_STEP, attempt(0)) as checkpointer:
        assert checkpointer.restore(state) == 0
    assert state["note"] == 7
    assert torch.equal(state["w"], torch.ones(3))


def test_what_training_changes_after_save_is_not_in_the_checkpoint(attempt: Attempt) -> None:
    weights, note = torch.full((2_000_000,), 1.0), {"seen": [1, 2]}
    state = {"weights": weights, "note": note}
    with Checkpointer(EACH_STEP, attempt(0)) as checkpointer:
        with writer_stopped():
            assert checkpointer.save(1, state)
            weights.fill_(2.0)
            note["seen"].append(3)
        for _ in range(50):  # and while the writer writes
            weights.add_(1.0)
        assert checkpointer.wait()
    with Checkpointer(EACH_STEP, attempt(1)) as checkpointer:
        assert checkpointer.restore(state) == 1
    assert torch.equal(weights, torch.full((2_000_000,), 1.0))
    assert state["note"] == {"seen": [1, 2]}


def test_two_saves_may_be_on_their_way_and_a_third_is_put_off(attempt: Attempt, journal: Journal, until: Any) -> None:
    state = {"w": torch.zeros(100_000)}
    with Checkpointer(EACH_STEP, attempt(0)) as checkpointer:
        checkpointer.restore(state)
        with writer_stopped():
            taken = [checkpointer.save(step, fill(state, step)) for step in range(1, 6)]
        assert taken == [True, True, False, False, False]
        steps = itertools.count(6)
        until(lambda: checkpointer.save(step := next(steps), fill(state, step)))
        last = next(steps) - 1
        assert checkpointer.wait()
    told = [(event["step"], event["tier"]) for event in journal("checkpoint-failed")]
    assert told == [(3, "shared")], "told once, and with the step that was put off"
    assert "put off" in journal("checkpoint-failed")[0]["reason"]
    assert [event["step"] for event in journal("checkpoint")] == [1, 2, last]
    with Checkpointer(EACH_STEP, attempt(1)) as checkpointer:
        assert checkpointer.restore(state) == last
    assert torch.equal(state["w"], torch.full((100_000,), float(last)))


def fill(state: dict[str, Any], step: int) -> dict[str, Any]:
    state["w"].fill_(step)
    return state


def test_force_waits_for_room_where_a_plain_save_is_put_off(attempt: Attempt, journal: Journal) -> None:
    state = {"w": torch.zeros(1000)}
    with Checkpointer({"shared": {"every": 1}, "buffers": 1}, attempt(0)) as checkpointer:
        checkpointer.restore(state)
        pid = writer_of(os.getpid())
        os.kill(pid, signal.SIGSTOP)
        later = threading.Timer(0.5, os.kill, (pid, signal.SIGCONT))
        assert checkpointer.save(1, state)
        assert not checkpointer.save(2, state)
        later.start()
        assert checkpointer.save(3, state, force=True)
        assert checkpointer.wait()
    assert [event["step"] for event in journal("checkpoint")] == [1, 3]


def test_the_end_of_the_block_brings_everything_home(attempt: Attempt, journal: Journal) -> None:
    state = {"w": torch.randn(3_000_000)}

    def train() -> None:
        with Checkpointer(EACH_STEP, attempt(0)) as checkpointer:
            checkpointer.restore(state)
            for step in (1, 2):
                assert checkpointer.save(step, state, force=True)
            pids.append(writer_of(os.getpid()))
            raise Requeue("state is saved")

    pids: list[int] = []
    with pytest.raises(Requeue):
        train()
    assert [event["step"] for event in journal("checkpoint")] == [1, 2]
    wait_until(lambda: not Path(f"/proc/{pids[0]}").exists(), 30, "the writer has ended")


def test_wait_is_false_where_the_save_failed_and_the_next_one_is_tried(
    attempt: Attempt, journal: Journal, folder: Any, capfd: Any
) -> None:
    state = {"w": torch.randn(100_000)}
    with Checkpointer(EACH_STEP, attempt(0)) as checkpointer:
        assert checkpointer.wait(), "nothing was saved: nothing is missing"
        in_the_way = folder / "checkpoints" / "step-00000001"
        in_the_way.write_text("a file where a folder has to be")
        assert checkpointer.save(1, state)
        assert not checkpointer.wait()
        assert checkpointer.save(2, state)
        assert checkpointer.wait()
    (failed,) = journal("checkpoint-failed")
    assert (failed["step"], failed["tier"]) == (1, "shared")
    assert "step-00000001" in failed["reason"]
    told = [line for line in capfd.readouterr().err.splitlines() if "step-00000001" in line]
    assert len(told) == 1
    assert "was not saved to shared" in told[0]


def test_too_many_failures_in_a_row_stop_the_run(attempt: Attempt, folder: Any) -> None:
    state = {"w": torch.randn(1000)}
    with Checkpointer({"shared": {"every": 1}, "failures": 2}, attempt(0)) as checkpointer:
        for step in (1, 2):
            (folder / "checkpoints" / f"step-{step:08d}").write_text("in the way")
            checkpointer.save(step, state)
            assert not checkpointer.wait()
        with pytest.raises(CheckpointError, match=r"2 saves in a row have failed \(checkpoint.failures\): .*step-0000"):
            checkpointer.save(3, state)


def test_a_writer_that_dies_fails_its_save_and_is_replaced(attempt: Attempt, journal: Journal) -> None:
    state = {"w": torch.zeros(100_000)}
    with Checkpointer(EACH_STEP, attempt(0)) as checkpointer:
        checkpointer.restore(state)
        with writer_stopped() as pid:
            assert checkpointer.save(1, fill(state, 1))
            os.kill(pid, signal.SIGKILL)
        assert not checkpointer.wait()
        assert checkpointer.save(2, fill(state, 2))
        assert checkpointer.wait()
    assert [event["step"] for event in journal("checkpoint")] == [2]
    with Checkpointer(EACH_STEP, attempt(1)) as checkpointer:
        assert checkpointer.restore(fill(state, 9)) == 2
    assert torch.equal(state["w"], torch.full((100_000,), 2.0))


def test_a_state_may_change_its_structure_between_saves(attempt: Attempt) -> None:
    state: dict[str, Any] = {"w": torch.ones(5), "more": {"a": torch.ones(2)}}
    with Checkpointer(EACH_STEP, attempt(0)) as checkpointer:
        checkpointer.restore(state)
        assert checkpointer.save(1, state)
        state["more"]["b"] = torch.full((2_000_000,), 3.0)  # more than the arena was made for
        state["w"] = torch.full((7,), 2.0)
        assert checkpointer.save(2, state, force=True)
        del state["more"]["b"]
        state["new"] = [torch.full((3,), 4.0)]
        assert checkpointer.save(3, state, force=True)
        assert checkpointer.wait()
    fresh: dict[str, Any] = {"w": torch.zeros(7), "more": None, "new": None}
    with Checkpointer(EACH_STEP, attempt(1)) as checkpointer:
        assert checkpointer.restore(fresh) == 3
    assert torch.equal(fresh["w"], torch.full((7,), 2.0))
    assert list(fresh["more"]) == ["a"]
    assert torch.equal(fresh["new"][0], torch.full((3,), 4.0))
