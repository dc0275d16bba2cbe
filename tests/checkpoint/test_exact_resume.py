"""A training that is killed again and again ends with the very bits of one that never was; a state is the same on any
number of ranks."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from slurmopt.run_folder import events

pytestmark = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="NOT TESTED: torch is not installed")
SCRIPT = Path(__file__).with_name("scenarios.py")
SAMPLES, STEPS = 205, 60
DEADLINE = 300


def play(scenario: str, folder: Path) -> Path:
    """Has real ranks play a scenario of scenarios.py."""
    words = [sys.executable, str(SCRIPT), scenario, str(folder)]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=DEADLINE)
    assert ended.returncode == 0, ended.stderr
    return folder


@pytest.fixture(scope="module")
def exact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return play("exact", tmp_path_factory.mktemp("exact"))


@pytest.fixture(scope="module")
def reshaped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return play("reshaped", tmp_path_factory.mktemp("reshaped"))


@pytest.fixture(scope="module")
def sharded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return play("sharded", tmp_path_factory.mktemp("sharded"))


def final(folder: Path) -> dict[str, Any]:
    """What each rank's state was in the end: digests of all bits."""
    return {path.name: json.loads(path.read_text()) for path in folder.glob("final-*.json")}


def steps_of(folder: Path, rank: int) -> list[dict[str, Any]]:
    return events.read(folder / f"steps-{rank}.jsonl")


def lasting(folder: Path, rank: int) -> list[dict[str, Any]]:
    """The steps that count, in order: of one that was done again, the last time."""
    return [step for _, step in sorted({step["step"]: step for step in steps_of(folder, rank)}.items())]


@pytest.mark.parametrize("ranks", [2, 4])
def test_six_kills_change_no_bit_of_the_end(exact: Path, ranks: int) -> None:
    plain, killed = final(exact / f"plain-{ranks}"), final(exact / f"killed-{ranks}")
    assert len(plain) == ranks
    assert killed == plain
    assert len(list((exact / f"killed-{ranks}" / "logs").iterdir())) == 7


@pytest.mark.parametrize("ranks", [2, 4])
def test_a_step_that_is_done_again_is_the_same_step(exact: Path, ranks: int) -> None:
    """The same samples, the same loss to the last bit, the same random numbers."""
    again = 0
    for rank in range(ranks):
        plain = {step["step"]: step for step in lasting(exact / f"plain-{ranks}", rank)}
        done = steps_of(exact / f"killed-{ranks}", rank)
        again += len(done) - STEPS
        for step in done:
            for word in ("epoch", "seen", "loss", "dice"):
                assert step[word] == plain[step["step"]][word], (rank, step)
    assert again > 0


@pytest.mark.parametrize("ranks", [2, 4])
def test_each_sample_is_seen_once_an_epoch_across_the_kills(exact: Path, ranks: int) -> None:
    steps = [step for rank in range(ranks) for step in lasting(exact / f"killed-{ranks}", rank)]
    last = max(step["epoch"] for step in steps)
    assert last >= 2
    for epoch in range(last):
        seen = Counter(index for step in steps if step["epoch"] == epoch for index in step["seen"])
        assert seen == Counter(range(SAMPLES)), epoch


@pytest.mark.parametrize("ranks", [2, 4])
def test_each_attempt_goes_on_from_the_newest_durable_checkpoint_or_a_newer_one(exact: Path, ranks: int) -> None:
    """What was reported durable is never lost; an older attempt's writer may commit a last one after its report."""
    told = events.read(exact / f"killed-{ranks}" / "events.jsonl")
    durable, restores = 0, []
    for event in told:
        if event["event"] == "checkpoint":
            durable = max(durable, event["step"])
        if event["event"] == "restored":
            restores.append(event["step"])
            assert event["step"] >= durable
    assert len(restores) >= 4
    assert all(earlier <= later for earlier, later in pairwise(restores))
    for rank in range(ranks):
        starts = {step["attempt"]: step["step"] for step in reversed(steps_of(exact / f"killed-{ranks}", rank))}
        went_on = {event["attempt"]: event["step"] + 1 for event in told if event["event"] == "restored"}
        assert {attempt: starts[attempt] for attempt in went_on} == went_on


def states(folder: Path, attempt: int) -> dict[int, dict[str, str]]:
    """The digests of each rank's state in one attempt."""
    return {
        int(path.stem.rpartition("-")[2]): json.loads(path.read_text())
        for path in folder.glob(f"state-{attempt}-*.json")
    }


@pytest.mark.parametrize(("attempt", "saved"), [(0, 2), (1, 4)])
@pytest.mark.parametrize(("later", "restored"), [(2, 1), (3, 2), (4, 3), (5, 8)])
def test_a_ddp_state_is_the_same_on_any_number_of_ranks(
    reshaped: Path, attempt: int, saved: int, later: int, restored: int
) -> None:
    before, after = states(reshaped / str(saved), attempt), states(reshaped / str(saved), later)
    assert (len(before), len(after)) == (saved, restored)
    for state in after.values():
        assert {**state, "rng": None} == {**before[0], "rng": None}
    for rank in range(min(saved, restored)):
        assert after[rank]["rng"] == before[rank]["rng"]
    assert len({state["rng"] for state in after.values()}) == restored


@pytest.mark.parametrize(("attempt", "restored"), [(1, 1), (2, 2), (3, 4)])
def test_an_fsdp_state_is_the_same_on_any_number_of_ranks(sharded: Path, attempt: int, restored: int) -> None:
    before, after = states(sharded, 0), states(sharded, attempt)
    assert (len(before), len(after)) == (2, restored)
    for state in after.values():
        assert {**state, "rng": None} == {**before[0], "rng": None}
    log = (sharded / "logs" / f"attempt-{attempt}" / "rank-0.log").read_text()
    assert "Traceback" not in log  # of the step that the optimizer then did
