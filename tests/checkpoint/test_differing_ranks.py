"""State that differs between the ranks: each rank gets back what it had, and is told once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from checkpoint.ranks import Outcome, on_ranks
from torch import nn

from slurmopt.checkpoint import Checkpointer
from slurmopt.runtime.run import CurrentRun

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
