"""When a tier gets a checkpoint, how much of it is written, and how long it is kept."""

from __future__ import annotations

import itertools
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoint.ranks import Outcome, on_ranks

from slurmopt.checkpoint import Checkpointer, checkpointer
from slurmopt.job.worker.current_run import CurrentRun

Attempt = Callable[..., Any]
Journal = Callable[[str], list[dict[str, Any]]]


def save_steps(run: Any, config: dict[str, Any], state: dict[str, Any], steps: range, **metrics: list[float]) -> None:
    """Trains one float of `moving` for `steps`; each checkpoint is durable before the next step."""
    with Checkpointer(config, run) as saving:
        saving.restore(state)
        for step in steps:
            if "moving" in state:
                state["moving"].fill_(step)
            saving.save(step, state, metrics={name: values[step] for name, values in metrics.items()})
            assert saving.wait()


def steps_on(root: Path) -> list[int]:
    """The steps of which something lies there."""
    return sorted(int(path.name.removeprefix("step-")) for path in root.glob("step-*"))


def payload_bytes(root: Path, step: int) -> int:
    return sum(path.stat().st_size for path in root.glob(f"step-{step:08d}/*/*.bin"))


def test_each_tier_has_its_own_rhythm(attempt: Attempt, journal: Journal, tmp_path: Path, folder: Path) -> None:
    config = {
        "scratch": {"path": str(tmp_path / "scratch"), "every": 2, "keep": 9},
        "shared": {"every": "3", "keep": 9},
    }
    state = {"moving": torch.zeros(1000)}
    save_steps(attempt(0), config, state, range(1, 9))
    durable = [(event["tier"], event["step"]) for event in journal("checkpoint")]
    assert sorted(durable) == [*(("scratch", step) for step in (2, 4, 6, 8)), ("shared", 3), ("shared", 6)]
    assert steps_on(tmp_path / "scratch" / "demo" / "0001") == [2, 4, 6, 8]
    assert steps_on(folder / "checkpoints") == [3, 6]


def test_wait_is_for_the_durable_tier_of_the_config(attempt: Attempt, tmp_path: Path, folder: Path) -> None:
    """Nothing can be written to shared here: only who waits for it learns of that."""
    scratch = {"path": str(tmp_path / "scratch"), "every": 1}
    for durable, outcome in (("scratch", True), ("shared", False), ("auto", False)):
        shared = tmp_path / f"shared for {durable}"
        config = {"scratch": scratch, "shared": {"every": 1, "path": str(shared)}, "durable": durable}
        with Checkpointer(config, attempt(0)) as saving:
            (shared / "demo" / "0001" / "step-00000001").write_text("in the way")
            saving.save(1, {"w": torch.ones(5)})
            assert saving.wait() is outcome, durable


def test_no_tier_saves_nothing(attempt: Attempt) -> None:
    with Checkpointer({"shared": {"path": None}}, attempt(0)) as saving:
        assert saving.restore({"w": torch.ones(1)}) == 0
        assert saving.save(1, {"w": torch.ones(1)}, force=True) is False
        assert saving.wait()


class Clock:
    """What the schedule reads, moved by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(checkpointer, "time", types.SimpleNamespace(monotonic=clock))
    return clock


def test_every_may_be_a_time(attempt: Attempt, clock: Clock) -> None:
    saved = []
    with Checkpointer({"shared": {"every": "1min"}}, attempt(0)) as saving:
        for step in range(1, 101):
            clock.now += 3.0
            if saving.save(step, {"w": torch.ones(5)}):
                saved.append(step)
                saving.wait()
    assert {later - earlier for earlier, later in itertools.pairwise([0, *saved])} <= {19, 20}


def test_auto_measures_first_and_says_what_it_chose(attempt: Attempt, clock: Clock, capfd: Any) -> None:
    """A snapshot of 2 s and a failure an hour: Daly's interval is √(2·2·3600)·[1 + ⅓√(2/7200) + …] - 2 = 118.7 s."""
    state = {"slow": Slow(clock)}
    saved = []
    with Checkpointer({"shared": {"every": "auto"}, "mtbf": "1h"}, attempt(0)) as saving:
        for step in range(1, 301):
            clock.now += 5.0
            if saving.save(step, state):
                saved.append(step)
                assert saving.wait()
    assert saved[:2] == [10, 20], "not among the first steps, which say little; nor by the first save, which plans"
    assert {later - earlier for earlier, later in itertools.pairwise(saved[1:])} <= {23, 24, 25}
    told = [line for line in capfd.readouterr().err.splitlines() if "Daly" in line]
    assert told
    assert "shared every 24 steps" in told[0]


class Slow:
    """Its snapshot takes two seconds of the clock."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def state_dict(self) -> dict[str, Any]:
        self.clock.now += 2.0
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass


def _only_when_due(run: CurrentRun) -> int:
    """Rank 1 does not even ask while nothing is due: were that a meeting, rank 0 would wait for it."""
    with Checkpointer({"shared": {"every": 5}}, run) as saving:
        for step in range(1, 6):
            if run.rank.rank == 0 or step == 5:
                saved = saving.save(step, {"w": torch.ones(10)})
        assert saved
        return saving.wait()


def test_a_step_at_which_nothing_is_due_needs_no_other_rank(folder: Path) -> None:
    assert values(on_ranks(_only_when_due, folder, nodes=["here"] * 2)) == [True, True]


def values(outcomes: list[Outcome]) -> list[Any]:
    for outcome in outcomes:
        assert outcome.error is None, outcome.error + outcome.log
    return [outcome.value for outcome in outcomes]


FROZEN = 3_000_000


def lora(step: int = 0) -> dict[str, Any]:
    return {"frozen": torch.arange(float(FROZEN)), "moving": torch.full((5000,), float(step))}


@pytest.mark.parametrize("incremental", [True, False])
def test_what_does_not_change_is_written_once(
    attempt: Attempt, journal: Journal, folder: Path, incremental: bool
) -> None:
    config = {"shared": {"every": 1, "keep": 2}, "incremental": incremental}
    save_steps(attempt(0), config, lora(), range(1, 6))
    sizes = [event["bytes"] for event in journal("checkpoint")]
    assert all((size > 4 * FROZEN) == (not incremental or step == 1) for step, size in enumerate(sizes, 1))
    kept = [1, 4, 5] if incremental else [4, 5]  # the first one holds what the others refer to
    assert steps_on(folder / "checkpoints") == kept
    state = lora(step=99)
    state["frozen"].zero_()
    with Checkpointer(config, attempt(1)) as saving:
        assert saving.restore(state) == 5
        assert torch.equal(state["frozen"], torch.arange(float(FROZEN)))
        assert torch.equal(state["moving"], torch.full((5000,), 5.0))
        assert saving.save(6, state)
        assert saving.wait()
    assert (payload_bytes(folder / "checkpoints", 6) < 4 * FROZEN) == incremental, "of what was restored, too"


def test_a_reference_reaches_only_as_far_as_what_changed(attempt: Attempt, folder: Path) -> None:
    """Of a tensor of 24 MB one piece changes; later the tensor is frozen again."""
    config = {"shared": {"every": 1, "keep": 1}}
    large = torch.arange(6_000_000, dtype=torch.float32)
    with Checkpointer(config, attempt(0)) as saving:
        for step, changed in ((1, 0), (2, 5_999_999), (3, None), (4, 1)):
            if changed is not None:
                large[changed] += 0.5
            saving.save(step, {"large": large})
            assert saving.wait()
    expected = large.clone()
    with Checkpointer(config, attempt(1)) as saving:
        assert saving.restore({"large": large.zero_()}) == 4
    assert torch.equal(large, expected)
    assert payload_bytes(folder / "checkpoints", 4) < 9_000_000


@pytest.mark.filterwarnings("error")
def test_compression_on_one_tier(attempt: Attempt, tmp_path: Path, folder: Path) -> None:
    scratch = tmp_path / "scratch"
    config = {
        "scratch": {"path": str(scratch), "every": 1, "compression": None},
        "shared": {"every": 1, "compression": "zstd"},
    }
    state = {"even": torch.ones(3_000_000), "random": torch.randn(1000, 1000), "small": torch.arange(9), "note": "x"}
    with Checkpointer(config, attempt(0)) as saving:
        for step in (1, 2):
            state["random"] += step
            saving.save(step, state)
            assert saving.wait()
    expected = {name: value.clone() for name, value in state.items() if name != "note"}
    assert payload_bytes(folder / "checkpoints", 1) < payload_bytes(scratch / "demo" / "0001", 1) / 2
    only_shared = {"shared": config["shared"]}
    with Checkpointer(only_shared, attempt(1)) as saving:
        fresh = {name: torch.zeros_like(value) for name, value in expected.items()} | {"note": None}
        assert saving.restore(fresh) == 2
    assert fresh["note"] == "x"
    assert all(torch.equal(value, fresh[name]) for name, value in expected.items())


@pytest.mark.parametrize(
    ("rule", "kept"),
    [
        ({"keep": 1}, [12]),
        ({"keep": 3}, [10, 11, 12]),
        ({"keep": 1, "keep_every": 5}, [5, 10, 12]),
        ({"keep": 1, "best": 2}, [4, 7, 12]),
    ],
)
def test_retention(attempt: Attempt, journal: Journal, folder: Path, rule: dict[str, Any], kept: list[int]) -> None:
    config = {"shared": {"every": 1, **rule}, "metric": "val_loss", "mode": "min"}
    loss = [9.0, 5.0, 5.0, 5.0, 1.0, 5.0, float("nan"), 2.0, 5.0, 5.0, 5.0, 5.0, 5.0]
    save_steps(attempt(0), config, {"moving": torch.zeros(5)}, range(1, 13), val_loss=loss)
    assert steps_on(folder / "checkpoints") == kept
    pruned = {int(name[5:13]) for event in journal("checkpoint-pruned") for name in event["checkpoints"]}
    assert pruned == set(range(1, 13)) - set(kept), "each is told"
    state = {"moving": torch.zeros(5)}
    with Checkpointer(config, attempt(1)) as saving:
        assert saving.restore(state) == 12


def test_the_best_may_be_the_largest(attempt: Attempt, folder: Path) -> None:
    config = {"shared": {"every": 1, "keep": 1, "best": 1}, "metric": "accuracy", "mode": "max"}
    save_steps(attempt(0), config, {"moving": torch.zeros(5)}, range(1, 6), accuracy=[0, 0.1, 0.8, 0.3, 0.2, 0.2])
    assert steps_on(folder / "checkpoints") == [2, 5]
