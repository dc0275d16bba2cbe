"""Which ranks are traced and when, from heartbeats; what keeps a run from being traced."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from slurmopt.errors import InputError, RunError
from slurmopt.run_folder import captures, events
from slurmopt.run_folder.captures import NOTICE
from slurmopt.run_folder.heartbeat import Heartbeat
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.traced_ranks import chosen, ranks_of
from slurmopt.runs.profiling.request import ask
from slurmopt.runs.status.query import Status, gather


def beat(rank: int, step_time: float, world_size: int = 4, **more: Any) -> Heartbeat:
    """A rank that has made 100 steps."""
    steps = {"first_step": 0, "first_step_time": 1000.0, "step": 100, "step_time": 1000.0 + 100 * step_time}
    return Heartbeat(rank, world_size, "node1", 1, **steps, **more)  # type: ignore[arg-type]


SPEEDS = {0: 0.3, 1: 0.1, 2: 0.4, 3: 0.2}


def test_slowest_and_median_by_the_time_of_a_step() -> None:
    ranks = ranks_of({rank: beat(rank, step_time) for rank, step_time in SPEEDS.items()})
    assert chosen(["slowest", "median", "1"], ranks) == ([1, 2, 3], [])
    assert chosen(["all"], ranks) == ([0, 1, 2, 3], [])


def test_the_slowest_of_a_ddp_training_waits_least() -> None:
    waits = {0: 0.03, 1: 0.02, 2: 0.05, 3: 0.001}
    counted = {rank: {"ddp_sampled": 10.0, "ddp_exposed": 10 * wait, "steps": 1000.0} for rank, wait in waits.items()}
    ranks = ranks_of({rank: beat(rank, 0.1, counted=counted[rank]) for rank in waits})
    assert chosen(["slowest"], ranks) == ([3], [])
    assert chosen(["median"], ranks) == ([0], [])


def test_nodes_whose_command_starts_several_ranks() -> None:
    ranks = ranks_of({node: beat(node, 0.1 + node, world_size=2, launches=4) for node in (0, 1)})
    assert ranks.count == 8
    assert chosen(["slowest", "7"], ranks) == ([4, 7], [])
    assert ranks.beat_of(7) is ranks.beats[1]
    unknown = ranks_of({0: beat(0, 0.1, world_size=2, launches=0)})
    assert unknown.count is None
    assert chosen(["12"], unknown) == ([12], [])
    with pytest.raises(InputError, match="how many ranks the command starts is not known"):
        chosen(["all"], unknown)


@pytest.mark.parametrize("wrong", [{"world_size": "many"}, {"launches": None}, {"step": "x"}, {"counted": []}])
def test_heartbeats_that_somebody_has_edited(wrong: dict[str, Any]) -> None:
    edited = beat(0, 0.1)
    for name, value in wrong.items():
        setattr(edited, name, value)
    assert chosen(["0"], ranks_of({0: edited})) == ([0], [])


@pytest.fixture
def status(tmp_path: Path) -> Status:
    """A run with two ranks."""
    run = RunFolder(tmp_path / "runs" / "test" / "one")
    run.make()
    run.config.write_text("profile:\n  most: 1KB\n  count: 2\n")
    events.append(run.events, "attempt", attempt=0, job="7", nodes="node1")
    for rank in (0, 1):
        path = run.heartbeat(0, rank)
        path.parent.mkdir(exist_ok=True)
        beat(rank, 0.1, world_size=2).write(path)
    (status,), _ = gather([run])
    return status


def test_the_start_is_by_the_clock_of_the_nodes(status: Status) -> None:
    for rank in (0, 1):
        edited = beat(rank, 0.1, world_size=2)
        edited.write(status.folder.heartbeat(0, rank))
        text = status.folder.heartbeat(0, rank).read_text()
        status.folder.heartbeat(0, rank).write_text(
            text.replace(f'"time": {edited.time}', f'"time": {edited.time + 90}')
        )
    capture, _ = ask(status, 0, ["0"], None, None)
    assert capture.start == pytest.approx(time.time() + NOTICE + 90, abs=5)
    assert capture.requested_at == pytest.approx(time.time(), abs=5)


def test_one_capture_at_a_time_and_no_more_than_the_budgets_allow(status: Status) -> None:
    capture, remarks = ask(status, 0, ["slowest", "median", "0"], None, None)
    assert remarks == []
    with pytest.raises(RunError, match="is being traced already"):
        ask(status, 0, ["0"], None, None)
    for rank in capture.ranks:
        captures.note(status.folder, capture, rank, {"error": "lost"})
    second, _ = ask(status, 0, ["0"], 2, None)
    assert second.seconds == pytest.approx(0.3, abs=0.01)
    captures.note(status.folder, second, 0, {"error": "lost"})
    with pytest.raises(RunError, match=r"was traced 2 times: profile\.count=2"):
        ask(status, 0, ["0"], None, None)
    (status.folder.capture(second.name) / "rank-0.json.gz").write_bytes(bytes(2000))
    with pytest.raises(RunError, match=r"profile\.most=1KB; remove some of "):
        ask(status, 0, ["0"], None, None)


def test_steps_that_take_too_long(status: Status) -> None:
    with pytest.raises(InputError, match="100000 steps take 2h46m, and a trace at most 10m00s"):
        ask(status, 0, ["0"], 100_000, None)


def test_ranks_that_have_ended_or_not_begun(status: Status) -> None:
    for rank in (0, 1):
        beat(rank, 0.1, outcome={"outcome": "finished"}).write(status.folder.heartbeat(0, rank))
    with pytest.raises(RunError, match="its ranks have ended"):
        ask(status, 0, ["0"], None, None)
    for rank in (0, 1):
        status.folder.heartbeat(0, rank).unlink()
    with pytest.raises(RunError, match="its ranks have not started yet"):
        ask(status, 0, ["0"], None, None)
