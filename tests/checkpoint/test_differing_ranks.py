"""State that differs between the ranks: each rank gets back what it had, and is told once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoint.ranks import Outcome, alone, on_ranks
from torch import nn

from slurmopt.checkpoint import Checkpointer
from slurmopt.job.worker.current_run import CurrentRun

Journal = Callable[[str], list[dict[str, Any]]]
EACH_STEP = {"shared": {"every": 1, "keep": 9}}
LARGE = 1_000_000


class Loader:
    """A data loader's position, as torchdata's StatefulDataLoader keeps it: numbers, and tensors of a generator."""

    def __init__(self, position: int) -> None:
        self.position, self.generator = position, torch.Generator().manual_seed(position)

    def state_dict(self) -> dict[str, Any]:
        ahead = torch.zeros(self.position)  # what workers have prefetched: not as much on each rank
        return {"position": self.position, "generator": {"state": self.generator.get_state()}, "ahead": ahead}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.position = state["position"]
        assert len(state["ahead"]) == self.position
        self.generator.set_state(state["generator"]["state"])

    def drawn(self) -> list[Any]:
        return [self.position, torch.rand(1, generator=self.generator).item()]


class Trainer:
    """A model and a counter behind one state_dict."""

    def __init__(self, seen: int) -> None:
        self.seen, self.weight = seen, torch.arange(float(LARGE))

    def state_dict(self) -> dict[str, Any]:
        return {"seen": self.seen, "weight": self.weight}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.seen = state["seen"]
        self.weight.copy_(state["weight"])


class Common:
    """One that says that rank 0's is everybody's."""

    per_rank = False

    def __init__(self, value: int) -> None:
        self.value = value

    def state_dict(self) -> dict[str, Any]:
        return {"value": self.value}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.value = state["value"]


def _state(number: int) -> dict[str, Any]:
    return {
        "loader": Loader(number),
        "trainer": Trainer(10 * number),
        "best": 0.5 * number,
        "count": torch.tensor(number),
        "same": {"lr": 0.1, "table": torch.arange(5)},
        "common": Common(number),
        "model": nn.Linear(3, 3),
    }


def _values(state: dict[str, Any]) -> list[Any]:
    plain = [state["best"], state["count"].item()]
    return [*state["loader"].drawn(), state["trainer"].seen, *plain, state["common"].value]


def _save(run: CurrentRun) -> list[Any]:
    torch.manual_seed(0)
    state = _state(1 + run.rank.rank)
    with Checkpointer(EACH_STEP, run) as saving:
        saving.restore(dict(state))
        for step in (1, 2, 3):
            assert saving.save(step, state)
            assert saving.wait()
    return _values(state)


def _restore(run: CurrentRun) -> list[Any]:
    state = _state(0)
    with Checkpointer(EACH_STEP, run) as saving:
        assert saving.restore(state) == 3
    assert torch.equal(state["trainer"].weight, torch.arange(float(LARGE)))
    assert state["same"]["table"].tolist() == [0, 1, 2, 3, 4]
    return _values(state)


def _checked(outcomes: list[Outcome]) -> list[list[Any]]:
    for outcome in outcomes:
        assert outcome.error is None, outcome.error + outcome.log
    return [outcome.value for outcome in outcomes]


def test_each_rank_goes_on_from_what_it_had(folder: Path, journal: Journal) -> None:
    saved = on_ranks(_save, folder, nodes=["here"] * 2)
    had = _checked(saved)
    assert had[0] != had[1]
    had[1][-1] = had[0][-1]  # of what says that rank 0's is everybody's
    told = [line for outcome in saved for line in outcome.log.splitlines() if "differs between the ranks" in line]
    assert len(told) == 1, "said once, by one rank"
    assert "state['best'], state['count'], state['loader'], state['trainer']:" in told[0]
    assert journal("checkpoint")[0]["bytes"] < 1.1 * 4 * LARGE, "what is large and the same is written once"

    assert _checked(on_ranks(_restore, folder, nodes=["here"] * 2, attempt=1)) == had
    more = on_ranks(_restore, folder, nodes=["here"] * 3, attempt=2)
    assert _checked(more) == [*had, had[0]]
    assert "each of 2 ranks had its own, and now there are 3" in more[0].log
    fewer = on_ranks(_restore, folder, nodes=["here"], attempt=3)
    assert _checked(fewer) == had[:1]
    assert "those of the other ranks are left out" in fewer[0].log


def _grow_apart(run: CurrentRun) -> list[Any]:
    """Alike at first: the first plan does not know of any difference."""
    state = {"count": 0, "model": nn.Linear(3, 3), "seen": torch.zeros(3)}
    found = []
    with Checkpointer(EACH_STEP, run) as saving:
        found.append(saving.restore(state))
        found += [state["count"], state["seen"].tolist()]
        if run.attempt == 0:
            for step in (1, 2):
                state["count"] = step * run.rank.rank
                state["seen"] += (step - 1) * run.rank.rank
                assert saving.save(step, state)
                assert saving.wait()
    return found


def test_ranks_that_come_to_differ_keep_their_own_from_then_on(folder: Path) -> None:
    _checked(on_ranks(_grow_apart, folder, nodes=["here"] * 2))
    found = _checked(on_ranks(_grow_apart, folder, nodes=["here"] * 2, attempt=1))
    assert found == [[2, 0, [0.0] * 3], [2, 2, [1.0] * 3]]


class Cache:
    """An object with tensors of some size in host memory: of each rank's own, and the same on all."""

    def __init__(self, own: list[torch.Tensor], same: torch.Tensor) -> None:
        self.own, self.same = own, same

    def state_dict(self) -> dict[str, Any]:
        return {"own": self.own, "same": self.same}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.own, self.same = state["own"], state["same"]


BUFFER = 250_000
"""Elements: a megabyte, which is more than what lies together with other small tensors."""


def _caches(rank: int, step: int) -> dict[str, Any]:
    """A large tensor differs from the start, or from the second save on; others grow, come late, and turn the same."""
    number = float(1 + rank)
    late = number if step > 1 else 0.0
    grown = 10 if step == 1 else BUFFER
    return {
        "large": torch.full((BUFFER,), number),
        "late": {"tensor": torch.full((BUFFER,), late)},
        "cache": Cache(
            [
                torch.full((grown,), number),
                torch.full((BUFFER,), number if step == 1 else 7.0),
                torch.full((BUFFER if rank else 10,), number),
                *[torch.full((BUFFER,), number + at) for at in range(step - 1)],
            ],
            torch.arange(float(LARGE)),
        ),
    }


def _flat(state: dict[str, Any]) -> list[Any]:
    tensors = [state["large"], state["late"]["tensor"], *state["cache"].own]
    for tensor in tensors:
        assert tensor.eq(tensor[0]).all(), "of one rank alone, and no mixture"
    assert torch.equal(state["cache"].same, torch.arange(float(LARGE)))
    return [[len(tensor), tensor[0].item()] for tensor in tensors]


def _save_caches(run: CurrentRun, last: int) -> list[Any]:
    with Checkpointer(EACH_STEP, run) as saving:
        for step in range(1, last + 1):
            state = _caches(run.rank.rank, step)
            assert saving.save(step, state)
            assert saving.wait()
    return _flat(state)


def _restore_caches(run: CurrentRun, last: int) -> list[Any]:
    state = _caches(9, 1)
    with Checkpointer(EACH_STEP, run) as saving:
        assert saving.restore(state) == last
    return _flat(state)


@pytest.mark.parametrize("last", [1, 2, 3])
def test_large_tensors_that_differ_are_each_ranks_own(folder: Path, journal: Journal, last: int) -> None:
    had = _checked(on_ranks(_save_caches, folder, last, nodes=["here"] * 2))
    assert had[0] != had[1]
    own = 2 * 4 * BUFFER * (4 + last)
    assert journal("checkpoint")[-1]["bytes"] < 1.2 * (own + 4 * LARGE), "what is large and the same is written once"
    assert _checked(on_ranks(_restore_caches, folder, last, nodes=["here"] * 2, attempt=1)) == had
    assert _checked(on_ranks(_restore_caches, folder, last, nodes=["here"] * 3, attempt=2)) == [*had, had[0]]
    assert _checked(on_ranks(_restore_caches, folder, last, nodes=["here"], attempt=3)) == had[:1]


def test_entries_of_which_one_has_the_name_of_anothers_part_are_kept_apart(folder: Path) -> None:
    def state(number: float) -> dict[str, Any]:
        return {"a": {"b": torch.full((3,), number)}, "a.b": torch.full((3,), 2 * number)}

    with Checkpointer(EACH_STEP, alone(folder)) as saving:
        assert saving.save(1, state(1.0))
        assert saving.wait()
    here = state(0.0)
    with Checkpointer(EACH_STEP, alone(folder, 1)) as saving:
        assert saving.restore(here) == 1
    assert [here["a"]["b"][0].item(), here["a.b"][0].item()] == [1.0, 2.0]


class OwnNet(nn.Sequential):
    """A model that each rank has its own of, as in an ensemble."""

    per_rank = True


class Extra(nn.Linear):
    """A model with a state that is no tensor, and differs between the ranks; its weights do not."""

    def __init__(self, seen: int) -> None:
        super().__init__(3, 3)
        self.seen = {"steps": seen}

    def get_extra_state(self) -> Any:
        return self.seen

    def set_extra_state(self, state: Any) -> None:
        self.seen = state


def _models(run: CurrentRun) -> list[Any]:
    rank = run.rank.rank
    torch.manual_seed(1 + rank + 10 * run.attempt)
    own = OwnNet(nn.Linear(4, 4), nn.BatchNorm1d(4))
    own[1].running_mean.normal_()
    common = Extra(rank if run.attempt == 0 else 9)
    nn.init.constant_(common.weight, 1.0 + run.attempt)
    state = {"own": torch.compile(own) if run.attempt == 2 else own, "common": common}
    if run.attempt == 2:
        state["own"].per_rank = True  # a compiled model has attributes of its own
    with Checkpointer(EACH_STEP, run) as saving:
        if not (saving.restore(state)):
            assert saving.save(1, state)
            assert saving.wait()
    return [own[0].weight.tolist(), own[1].running_mean.tolist(), common.seen, common.weight.tolist()]


def test_a_model_that_each_rank_has_its_own_of_is_restored(folder: Path) -> None:
    had = _checked(on_ranks(_models, folder, nodes=["here"] * 2))
    assert had[0] != had[1]
    assert _checked(on_ranks(_models, folder, nodes=["here"] * 2, attempt=1)) == had
    assert _checked(on_ranks(_models, folder, nodes=["here"] * 2, attempt=2)) == had
    assert _checked(on_ranks(_models, folder, nodes=["here"] * 3, attempt=3)) == [*had, had[0]]
