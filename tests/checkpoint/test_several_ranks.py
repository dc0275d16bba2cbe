"""Several ranks with the same state, as under DDP: one checkpoint of all, whatever becomes of one of them."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from checkpoint.ranks import Outcome, on_ranks, writer_of
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from slurmopt.checkpoint import Checkpointer, rng_state
from slurmopt.errors import CheckpointError
from slurmopt.job.worker.current_run import CurrentRun

Journal = Callable[[str], list[dict[str, Any]]]
EACH_STEP = {"shared": {"every": 1, "keep": 9}}
LARGE = 12_000_000  # 48 MB of fp32: large enough to be divided among the ranks


def values(outcomes: list[Outcome]) -> list[Any]:
    for outcome in outcomes:
        assert outcome.error is None, outcome.error + outcome.log
    return [outcome.value for outcome in outcomes]


def here(size: int) -> list[str]:
    return ["here"] * size


def _state(seed: int) -> dict[str, Any]:
    torch.manual_seed(seed)
    large = torch.arange(float(LARGE)) * seed
    return {"large": large, "small": torch.randn(7), "note": {"seed": (seed, None)}, "rng": rng_state()}


def _save(run: CurrentRun) -> list[float]:
    """The next random numbers of this rank."""
    state = _state(seed=1)
    random.seed(100 + run.rank.rank)
    torch.manual_seed(100 + run.rank.rank)
    with Checkpointer(EACH_STEP, run) as saving:
        saving.restore(dict(state))
        assert saving.save(5, state)
        assert saving.wait()
    return [random.random(), torch.rand(1).item()]


def _restore(run: CurrentRun) -> list[float]:
    state = _state(seed=2)
    with Checkpointer(EACH_STEP, run) as saving:
        assert saving.restore(state) == 5
    drawn = [random.random(), torch.rand(1).item()]
    assert torch.equal(state["large"], torch.arange(float(LARGE)))
    assert torch.equal(state["small"], _state(seed=1)["small"])
    assert state["note"] == {"seed": (1, None)}
    return drawn


@pytest.mark.parametrize("size", [2, 3])
def test_each_byte_is_written_once_and_each_rank_gets_its_own_numbers_back(
    folder: Path, journal: Journal, size: int
) -> None:
    drawn = values(on_ranks(_save, folder, nodes=here(size)))
    (event,) = journal("checkpoint")
    assert 4 * LARGE <= event["bytes"] < 4 * LARGE * 1.01
    files = sorted((folder / "checkpoints").glob("step-*/*/rank-*.bin"))
    assert len(files) == size
    shares = [path.stat().st_size for path in files]
    assert sum(shares) < 4 * LARGE * 1.01
    assert max(shares) < 4 * LARGE / size * 1.5, "no rank writes much more than its share"

    assert values(on_ranks(_restore, folder, nodes=here(size), attempt=1)) == drawn
    for attempt, other in ((2, size - 1), (3, size + 1)):
        found = values(on_ranks(_restore, folder, nodes=here(other), attempt=attempt))
        assert found[:size] == drawn[:other]
        assert len({tuple(numbers) for numbers in found}) == other, "a new rank draws numbers of its own"


def _go_on_under_ddp(run: CurrentRun, steps: int) -> list[float]:
    torch.manual_seed(run.attempt)
    net = nn.Sequential(nn.Linear(20, 50), nn.BatchNorm1d(50), nn.Linear(50, 1))
    model = DistributedDataParallel(net) if run.rank.world_size > 1 else net
    optimizer = torch.optim.AdamW(model.parameters())
    losses = []
    with Checkpointer({"shared": {"every": 2}}, run) as saving:
        step = saving.restore({"model": model, "optimizer": optimizer})
        while step < steps:
            step += 1
            optimizer.zero_grad()
            loss = model(torch.full((4, 20), step / 10.0) + torch.arange(4.0)[:, None]).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            saving.save(step, {"model": model, "optimizer": optimizer})
    return losses


def test_a_model_goes_in_and_out_of_its_ddp_wrapper(folder: Path) -> None:
    """All ranks see the same data, so that one of them alone can go on, and all again."""
    apart = folder.parent / "0002"
    apart.mkdir()
    (whole,) = values(on_ranks(_go_on_under_ddp, apart, 9, nodes=here(1)))
    found: list[float] = []
    for attempt, (size, until) in enumerate([(2, 4), (1, 6), (2, 9)]):
        losses = values(on_ranks(_go_on_under_ddp, folder, until, nodes=here(size), attempt=attempt))
        assert all(each == pytest.approx(losses[0], rel=1e-5) for each in losses)
        found += losses[0]
    assert found == pytest.approx(whole, rel=1e-4)


def _steps_apart(run: CurrentRun) -> None:
    with Checkpointer(EACH_STEP, run) as saving:
        saving.save(3 + run.rank.rank, {"w": torch.ones(4)})


def _shapes_apart(run: CurrentRun) -> None:
    with Checkpointer(EACH_STEP, run) as saving:
        saving.save(1, {"same": torch.ones(2), "w": torch.ones(4 + run.rank.rank)})


def _keys_apart(run: CurrentRun) -> None:
    state = {"w": torch.ones(4)} | ({"more": torch.ones(2)} if run.rank.rank else {})
    with Checkpointer(EACH_STEP, run) as saving:
        saving.save(1, state)


def _types_apart(run: CurrentRun) -> None:
    with Checkpointer(EACH_STEP, run) as saving:
        saving.save(1, {"w": torch.ones(4, dtype=torch.float64 if run.rank.rank else torch.float32)})


class Broken:
    def state_dict(self) -> None:
        raise CheckpointError("state['broken']: nobody can save this")

    def load_state_dict(self, state: None) -> None:
        pass


def _one_cannot_save(run: CurrentRun) -> None:
    with Checkpointer(EACH_STEP, run) as saving:
        saving.save(1, {"w": torch.ones(4), "broken": Broken() if run.rank.rank else 1})


def _restore_what_one_lacks(run: CurrentRun) -> None:
    state = {"w": torch.ones(4 + run.rank.rank)}
    with Checkpointer(EACH_STEP, run) as saving:
        if run.attempt == 0:
            saving.save(1, {"w": torch.ones(4)})
            assert saving.wait()
        else:
            saving.restore(state)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (_steps_apart, ["rank 0 saves step 3 and rank 1 step 4"]),
        (_shapes_apart, ["w is float32 [4] on rank 0 and float32 [5] on rank 1"]),
        (_keys_apart, ["state['more'] is missing on rank 0 and there on rank 1"]),
        (_types_apart, ["w is float32 [4] on rank 0 and float64 [4] on rank 1"]),
        (_one_cannot_save, ["state['broken']", "nobody can save this"]),
    ],
)
def test_ranks_that_disagree_are_told_instead_of_waiting(
    folder: Path, function: Callable[..., None], words: list[str]
) -> None:
    for outcome in on_ranks(function, folder, nodes=here(2)):
        assert outcome.last_line.startswith("slurmopt.errors.CheckpointError: "), outcome.error
        assert all(word in outcome.last_line for word in words), outcome.last_line


def test_a_state_that_fits_only_some_ranks_stops_all_of_them(folder: Path) -> None:
    values(on_ranks(_restore_what_one_lacks, folder, nodes=here(2)))
    for outcome in on_ranks(_restore_what_one_lacks, folder, nodes=here(2), attempt=1):
        assert "CheckpointError: w: step-00000001/" in outcome.last_line, outcome.error
        assert "has shape [4], and here it is [5]" in outcome.last_line


def _lose_a_writer(run: CurrentRun, victim: int) -> list[bool]:
    """What `wait` says of a save whose writer dies on one rank, and of the next one."""
    state = {"w": torch.arange(float(LARGE)), "step": 0}
    found = []
    with Checkpointer(EACH_STEP, run) as saving:
        saving.restore(dict(state))
        writer = writer_of(os.getpid())
        if run.rank.rank == victim:
            os.kill(writer, signal.SIGSTOP)
        state["step"] = 1
        assert saving.save(1, state)
        if run.rank.rank == victim:
            os.kill(writer, signal.SIGKILL)
        found.append(saving.wait())
        for step in (2, 3):  # the training goes on
            state["step"] = step
            state["w"] += 1
            assert saving.save(step, state)
            found.append(saving.wait())
    return found


@pytest.mark.parametrize("victim", [0, 1])
def test_a_writer_that_dies_fails_that_save_and_no_other(folder: Path, journal: Journal, victim: int) -> None:
    found = values(on_ranks(_lose_a_writer, folder, victim, nodes=here(2)))
    assert found == [[False, True, True]] * 2
    assert [event["step"] for event in journal("checkpoint")] == [2, 3]
    (state,) = values(on_ranks(_restored, folder, nodes=here(1), attempt=1))
    assert state == 3


class Together:
    """An object whose state all ranks make together, as FSDP1's models do."""

    made = 0

    def state_dict(self) -> dict[str, Any]:
        self.made += 1
        number = torch.tensor(1)
        dist.all_reduce(number)
        return {"number": number}

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


def _save_without_room_on_one(run: CurrentRun) -> tuple[list[bool], int, bool]:
    """Rank 1's only buffer stays taken; rank 0's is free soon, and then only one of them has room."""
    together = Together()
    state = {"w": torch.zeros(4), "all": together}
    put_off = []
    with Checkpointer({**EACH_STEP, "buffers": 1}, run) as saving:
        saving.restore(dict(state))
        writer = writer_of(os.getpid())
        if run.rank.rank == 1:
            os.kill(writer, signal.SIGSTOP)
        assert saving.save(1, state)
        before = together.made
        is_over, began, step = torch.tensor(False), time.monotonic(), 1
        while not is_over:
            step += 1
            put_off.append(not saving.save(step, state))
            is_over.fill_(time.monotonic() - began > 2)
            dist.broadcast(is_over, 0)
        made = together.made - before
        if run.rank.rank == 1:
            os.kill(writer, signal.SIGCONT)
        saving.save(step + 1, state, force=True)
        return put_off, made, saving.wait()


def test_a_state_that_ranks_make_together_is_made_by_all_where_one_has_no_room(folder: Path) -> None:
    for put_off, made, is_durable in values(on_ranks(_save_without_room_on_one, folder, nodes=here(2))):
        assert all(put_off)
        assert len(put_off) > 8
        assert made == 1, "at the first try alone"
        assert is_durable


def _restored(run: CurrentRun) -> int:
    state = {"w": torch.zeros(LARGE), "step": -1}
    with Checkpointer(EACH_STEP, run) as saving:
        step = saving.restore(state)
    assert torch.equal(state["w"], torch.arange(float(LARGE)) + 2)
    assert state["step"] == step
    return step


def _damage_meets_one(run: CurrentRun) -> int:
    """Every rank reads all of a replicated state, but no rank may go on with another step than the others."""
    state = {"w": torch.zeros(LARGE), "step": -1}
    with Checkpointer(EACH_STEP, run) as saving:
        return saving.restore(state)


def _save_two(run: CurrentRun) -> None:
    state = {"w": torch.zeros(LARGE), "step": 0}
    with Checkpointer({**EACH_STEP, "incremental": False}, run) as saving:
        for step in (1, 2):
            state["step"] = step
            saving.save(step, state, force=True)
            assert saving.wait()


def test_damage_in_one_rank_s_file_sends_all_ranks_to_the_one_before(folder: Path, journal: Journal) -> None:
    values(on_ranks(_save_two, folder, nodes=here(2)))
    (path,) = (folder / "checkpoints").glob("step-00000002/*/rank-00001.bin")
    with path.open("r+b") as file:
        file.seek(9_000_000)
        file.write(b"\xff")
    assert values(on_ranks(_damage_meets_one, folder, nodes=here(2), attempt=1)) == [1, 1]
    assert len(journal("checkpoint-damaged")) == 1


def _by_the_clock(run: CurrentRun) -> list[int]:
    state, saved = {"small": torch.zeros(10)}, []
    with Checkpointer({"shared": {"every": "1s"}}, run) as saving:
        for step in range(1, 120):
            torch.distributed.all_reduce(torch.ones(1))  # as DDP does: no rank may be elsewhere meanwhile
            time.sleep(0.02 * (run.rank.rank == 0))
            if saving.save(step, state):
                saved.append(step)
    return saved


def test_a_time_between_saves_means_the_same_steps_on_all_ranks(folder: Path) -> None:
    first, second = values(on_ranks(_by_the_clock, folder, nodes=here(2), timeout=90))
    assert first == second
    assert len(first) >= 2


def _brought_home(run: CurrentRun) -> int:
    state = {"note": run.attempt, "rng": rng_state()}
    tiers = {"scratch": {"path": f"{run.folder.path}-scratch", "every": 1}, "shared": {"every": 1}}
    if run.attempt == 0:
        del tiers["shared"]
        tiers["shared"] = {"path": None}
    if run.attempt == 2:
        tiers["scratch"] = {"path": None}
    with Checkpointer(tiers, run) as saving:
        step = saving.restore(state)
        if run.attempt == 0:
            saving.save(3, state, force=True)
            saving.wait()
    return step


def test_what_a_larger_world_brings_home_can_be_restored_by_one_of_any_size(folder: Path) -> None:
    values(on_ranks(_brought_home, folder, nodes=here(1), attempt=0))
    assert values(on_ranks(_brought_home, folder, nodes=here(2), attempt=1)) == [3, 3]  # from scratch to shared
    assert values(on_ranks(_brought_home, folder, nodes=here(2), attempt=2)) == [3, 3]  # from shared alone
