"""When a run is traced unasked: by the step times of its windows, and what rank 0 asks for then."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import Any

import pytest

from slurmopt.config.profile import Automatic, Profile, automatic_of, from_word
from slurmopt.errors import ConfigError
from slurmopt.job.profiling import own_requests as own_requests_module
from slurmopt.job.profiling.own_requests import OwnRequests
from slurmopt.job.profiling.triggers import BELOW, HEALTHY, SCHEDULE, SLOW, WINDOW_SECONDS, Triggers
from slurmopt.run_folder import captures
from slurmopt.run_folder.heartbeat import Heartbeat
from slurmopt.run_folder.layout import RunFolder

ALL = Automatic(most=10**9, count=9, healthy=True, slow_steps=True, cooldown=600, ranks=["slowest", "0"])


class Training:
    """Makes steps of given lengths; a look each window, as a process asks every five seconds."""

    def __init__(self, options: Automatic) -> None:
        self.triggers = Triggers(options, 0.0)
        self.steps = self.seconds = self.now = 0.0

    def windows(self, *step_times: float) -> list[str | None]:
        reasons = []
        for step_time in step_times:
            self.steps += WINDOW_SECONDS / step_time
            self.seconds += WINDOW_SECONDS
            self.now += WINDOW_SECONDS
            reasons.append(self.triggers.look(self.steps, self.seconds, self.now))
        return reasons


def jitter(count: int) -> list[float]:
    """Steps of 100 ms, 1 % more or less."""
    return [0.1 * (1 + 0.01 * (-1) ** index) for index in range(count)]


def test_a_healthy_trace_comes_first_and_steady_steps_need_no_other() -> None:
    reasons = Training(ALL).windows(*jitter(200))
    assert [(index, reason) for index, reason in enumerate(reasons) if reason] == [(6, HEALTHY)]


def test_slow_steps_are_traced_once_within_the_cooldown() -> None:
    training = Training(ALL)
    training.windows(*jitter(20))
    assert training.windows(0.2, 0.2, 0.1, 0.1) == [None] * 4  # not for long enough
    assert training.windows(0.12, 0.12, 0.12, 0.12) == [None, None, SLOW, None]
    training.windows(*jitter(140))
    assert SLOW in training.windows(0.12, 0.12, 0.12)


def test_training_that_gets_slower_by_and_by_is_below_its_best() -> None:
    training = Training(replace(ALL, slow_steps=False, below_best=0.2))
    reasons = training.windows(*jitter(10), *(0.1 + 0.001 * index for index in range(40)))
    (at,) = [index for index, reason in enumerate(reasons) if reason == BELOW]
    assert 10 + 24 <= at <= 10 + 28  # 0.125 s a step is 20 % below 0.1


def test_schedule() -> None:
    reasons = Training(Automatic(most=1, count=1, every=300)).windows(*jitter(150))
    assert [index for index, reason in enumerate(reasons) if reason == SCHEDULE] == [59, 119]


def test_a_training_without_steps_is_traced_after_a_minute() -> None:
    triggers = Triggers(ALL, 0.0)
    assert [triggers.look(0, float(now), now) for now in (5, 55, 60, 65)] == [None, None, HEALTHY, None]


def test_an_attempt_that_counts_anew_is_no_window_of_its_own() -> None:
    training = Training(ALL)
    training.windows(*jitter(10))
    training.steps = 0
    assert training.windows(*jitter(30)) == [None] * 30


def beat(rank: int, steps: float, step_time: float, **more: Any) -> Heartbeat:
    first = {"first_step": 1, "first_step_time": 1000.0}
    last = {"step": 1 + int(steps), "step_time": 1000.0 + steps * step_time}
    spent, counted = {"running": steps * step_time, "checkpoint": 50.0}, {"steps": steps}
    return Heartbeat(rank, 3, "node1", 1, spent=spent, counted=counted, **first, **last, **more)  # type: ignore[arg-type]


def captured(run: RunFolder) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted(run.traces.glob("*/capture.json"))]


def own_requests(run: RunFolder, options: Automatic) -> None:
    """Ten windows of rank 0."""
    for rank, step_time in ((0, 0.1), (1, 0.3), (2, 0.2)):
        beat(rank, 100, step_time).write(run.heartbeat(0, rank))
    steps = iter(range(0, 1000, 60))
    own = OwnRequests(run, 0, options, lambda: beat(0, next(steps), 0.1))
    for _ in range(10):
        own.look()


def test_rank_0_asks_the_slowest_rank_and_itself(run: RunFolder) -> None:
    own_requests(run, ALL)
    (capture,) = captured(run)
    assert capture["reason"] == HEALTHY
    assert capture["name"].endswith("-healthy")
    assert set(capture["ranks"]) == {"0", "1"}
    assert capture["seconds"] == pytest.approx(6 * 0.3)
    assert capture["steps"] == 5
    asked = captures.requested(run, 0)
    assert asked is not None
    assert (asked.ranks, asked.name) == ([0, 1], capture["name"])
    assert captures.goes_on(run, asked, time.time())


@pytest.mark.parametrize("budget", [{"count": 1}, {"most": 100}])
def test_a_spent_budget(run: RunFolder, budget: dict[str, int], capsys: pytest.CaptureFixture[str]) -> None:
    (run.traces / "a0-before").mkdir(parents=True)
    (run.traces / "a0-before" / "rank-0.json.gz").write_bytes(bytes(200))
    own_requests(run, replace(ALL, **budget))  # type: ignore[arg-type]
    assert captured(run) == []
    assert capsys.readouterr().err.count("the run is traced no more: 1 captures with 200 B are there") == 1


def test_a_folder_that_cannot_be_written(run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    run.traces.write_text("no folder")
    own_requests(run, ALL)
    assert capsys.readouterr().err.count("the run is not traced (healthy): ") == 1


def measured(run: RunFolder, waits: float, seconds: int = 600) -> None:
    """The series of a node whose two ranks wait for input for a share of their time."""
    ranks = {f"rank{rank}.{name}": value for rank in (0, 1)
             for name, value in (("running.share", 1 - waits), ("input.share", waits), ("steps", 9.0))}  # fmt: skip
    values = {**ranks, "node.cpu": 1.9, "node.memory": 1e9}
    header = {"slurmopt_series": 1, "node": "node1", "attempt": 0, "columns": [*values], "absent": {}}
    rows = [[1e9 + at, 10, *values.values()] for at in range(0, seconds, 10)]
    path = run.recent_series(0, "node1")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in [{**header, "facts": {"cpus": 2}}, *rows]))


def findings(run: RunFolder, looks: int, monkeypatch: pytest.MonkeyPatch, **options: Any) -> list[str]:
    """The reasons of so many looks, a minute apart; each capture is complete at once."""
    now = time.monotonic()
    monkeypatch.setattr(own_requests_module.time, "monotonic", lambda: now)
    monkeypatch.setattr(captures, "goes_on", lambda *_: False)
    for rank in (0, 1):
        beat(rank, 100, 0.1).write(run.heartbeat(0, rank))
    steps = iter(range(0, 60 * looks, 60))
    words: dict[str, Any] = {"slow_steps": False, "findings": True, "cooldown": 120.0, **options}
    own = OwnRequests(run, 0, replace(ALL, **words), lambda: beat(0, next(steps), 0.1))
    for _ in range(looks):
        now += 60
        own.look()
    return [capture["reason"] for capture in captured(run)]


def test_a_finding_is_traced_once_after_the_healthy_trace(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    measured(run, 0.4)
    assert findings(run, 30, monkeypatch) == ["finding-input-bound", HEALTHY]  # in the order of their names


@pytest.mark.parametrize(
    ("waits", "seconds", "options"), [(0.02, 600, {}), (0.4, 200, {}), (0.4, 600, {"findings": False})]
)
def test_no_finding_is_no_reason(
    run: RunFolder, monkeypatch: pytest.MonkeyPatch, waits: float, seconds: int, options: dict[str, Any]
) -> None:
    measured(run, waits, seconds)
    assert findings(run, 30, monkeypatch, **options) == [HEALTHY]


def test_measurements_that_cannot_be_read_are_no_reason(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    path = run.recent_series(0, "node1")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text('{"slurmopt_series": 1, "columns": 7}\n[[[[\n')
    assert findings(run, 30, monkeypatch) == [HEALTHY]


def test_the_config_and_what_the_job_is_told() -> None:
    assert automatic_of(Profile()) is None
    told = automatic_of(Profile(slow_steps=True, every="10m", most="1GB"))
    assert told is not None
    assert (told.healthy, told.every, told.most) == (True, 600, 2**30)
    assert from_word(told.to_json_arg()) == told
    assert from_word("off") is None


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"every": "10s"}, "profile.every: '10s' is not valid; valid: 5m or more"),
        ({"below_best": 20}, "profile.below_best: 20 is not valid; valid: between 0 and 1"),
        ({"ranks": ["first"]}, "profile.ranks: 'first' is not valid; valid: slowest, median, all, or numbers"),
        ({"ranks": []}, "profile.ranks: has no words"),
        ({"most": "0"}, "profile.most: '0' is not valid; valid: above 0"),
        ({"most": "much"}, "profile.most: not a size"),
        ({"count": 0}, "profile.count: 0 is not valid"),
        ({"steps": 0}, "profile.steps: 0 is not valid"),
    ],
)
def test_bad_values(values: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match="^" + says.replace("(", r"\(")):
        Profile(**values)
