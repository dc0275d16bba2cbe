"""A tier that lags, is away or refuses keeps no save from the tiers that work, and ends no run."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from checkpoint.ranks import on_ranks, writers_of
from s3_server import BUCKET, S3Server, new_folder
from storage.proxy import proxy

from slurmopt import Requeue
from slurmopt.checkpoint import Checkpointer
from slurmopt.checkpoint.writer.route import route
from slurmopt.errors import CheckpointError
from slurmopt.job.failures import is_peer_lost, outcome_of
from slurmopt.job.worker.current_run import FOLDER, CurrentRun
from slurmopt.run_folder import events
from slurmopt.run_folder.outcome import INFRASTRUCTURE

Attempt = Callable[..., Any]
Journal = Callable[[str], list[dict[str, Any]]]
SECONDS = 60.0


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    pytest.importorskip("boto3")
    found = S3Server.start(new_folder())
    with pytest.MonkeyPatch.context() as patch:
        for name, value in found.environment.items():
            patch.setenv(name, value)
        yield found
    found.stop()


def s3(server: S3Server, folder: str, **more: Any) -> dict[str, Any]:
    return {"url": f"s3://{BUCKET}/{folder}", "endpoint": server.endpoint, **more}


def durable_on(tier: str, path: Path) -> int:
    found = [event for event in events.read(path / "events.jsonl") if event["event"] == "checkpoint"]
    return max((event["step"] for event in found if event["tier"] == tier), default=0)


class Training:
    """Steps with a save each, of which rank 0 says how many."""

    def __init__(self, run: CurrentRun, saving: Checkpointer) -> None:
        self.run, self.saving, self.state = run, saving, {"w": torch.zeros(100_000)}
        self.step = saving.restore(self.state)

    def until(self, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + SECONDS
        while not self.is_so(holds):
            assert time.monotonic() < deadline, f"it never came true; at step {self.step}"
            self.step += 1
            self.state["w"].fill_(self.step)
            self.saving.save(self.step, self.state)
            time.sleep(0.01)

    def is_so(self, holds: Callable[[], bool]) -> bool:
        said = [self.run.rank.rank == 0 and holds()]
        if self.run.rank.world_size > 1:
            dist.broadcast_object_list(said)
        return bool(said[0])

    def durable(self, tier: str, more: int) -> None:
        """Until so many more steps are durable there."""
        at = self.step
        self.until(lambda: durable_on(tier, self.run.folder.path) > at + more)


def _with_s3_away(run: CurrentRun, config: dict[str, Any], server: S3Server, stop: bool) -> int:
    """The last step. `stop`: while S3 is away the job is told to end; else S3 comes back first."""
    os.environ.update(server.environment, **{FOLDER: str(run.folder.path)})
    with Checkpointer(config, run) as saving:
        training = Training(run, saving)
        training.durable("s3", 0)
        training.is_so(lambda: server.kill() is None)
        training.durable("shared", 20)  # many are due on S3 meanwhile
        if not stop:
            training.is_so(lambda: server.restart() is None)
            training.durable("s3", 0)
            return training.step
        if run.rank.rank == 0:
            os.kill(os.getpid(), signal.SIGUSR1)
        with pytest.raises(Requeue, match="saved step"):
            training.until(lambda: False)
    return training.step


@pytest.mark.parametrize(("ranks", "buffers", "stop"), [(1, 1, False), (2, 2, True)])
def test_saves_go_on_and_a_stop_saves_while_s3_is_away(
    folder: Path, attempt: Attempt, server: S3Server, ranks: int, buffers: int, stop: bool
) -> None:
    """Uploads are given up after ten minutes only, and most are of steps that are not due on shared: each would hold a
    buffer."""
    place = s3(server, f"away-{ranks}", every=2, keep=2)
    config = {"shared": {"every": 3, "keep": 2}, "s3": place, "buffers": buffers}
    outcomes = on_ranks(_with_s3_away, folder, config, server, stop, nodes=["here"] * ranks, timeout=2 * SECONDS)
    for outcome in outcomes:
        assert outcome.error is None, outcome.error + outcome.log
    if stop:
        assert durable_on("shared", folder) == outcomes[0].value
        server.restart()
    _comes_home(attempt, config, folder)
    assert not server.client().list_multipart_uploads(Bucket=BUCKET).get("Uploads")


def _comes_home(attempt: Attempt, config: dict[str, Any], folder: Path) -> None:
    """The next attempt brings S3 what it lacks."""
    left = max(durable_on(tier, folder) for tier in ("shared", "s3"))
    with Checkpointer(config, attempt(1)) as saving:
        training = Training(attempt(1), saving)
        assert training.step == left
        training.until(lambda: durable_on("s3", folder) >= left)
    state = {"w": torch.zeros(100_000)}
    with Checkpointer({**config, "shared": {"path": None}}, attempt(2)) as saving:
        newest = saving.restore(state)
    assert newest >= left, "S3 alone has it, whole"
    assert torch.equal(state["w"], torch.full((100_000,), float(newest)))


def test_a_tier_that_refuses_ends_no_run_while_another_saves(
    folder: Path, attempt: Attempt, server: S3Server, monkeypatch: pytest.MonkeyPatch, journal: Journal, capfd: Any
) -> None:
    """What is due there goes to the faster tier instead, far more often than that one asks for."""
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    config = {"shared": {"every": 1000}, "s3": s3(server, "refusing", every=1), "failures": 1}
    with Checkpointer(config, attempt(0)) as saving:
        training = Training(attempt(0), saving)
        training.until(lambda: len(journal("checkpoint-failed")) > 4)
        training.durable("shared", 3)
        assert training.step < 1000
    lines = capfd.readouterr().err.splitlines()
    assert lines.count("slurmopt: until s3 takes saves again, what is due there goes to shared as well") == 1


def test_before_a_failing_tier_ends_the_run_a_slower_one_gets_its_saves(
    folder: Path, attempt: Attempt, server: S3Server, journal: Journal
) -> None:
    (folder / "in the way").write_text("")
    shared = {"every": 1, "path": str(folder / "in the way")}
    config = {"shared": shared, "s3": s3(server, "instead", every=10**6), "failures": 50}
    with Checkpointer(config, attempt(0)) as saving:
        training = Training(attempt(0), saving)
        training.durable("s3", 0)
        training.durable("s3", 10)
    assert len([event for event in journal("checkpoint-failed") if event["tier"] == "shared"]) > 5


def _shared_alone(run: CurrentRun, config: dict[str, Any]) -> None:
    with Checkpointer(config, run) as saving:
        training = Training(run, saving)
        training.until(lambda: training.step == 100)


def test_a_run_without_any_working_tier_still_ends(folder: Path, attempt: Attempt) -> None:
    (folder / "in the way").write_text("")
    config = {
        "scratch": {"every": 5, "path": str(folder / "in the way")},
        "shared": {"every": 1, "path": str(folder / "in the way")},
        "failures": 3,
    }
    with pytest.raises(CheckpointError, match=r"no checkpoint can be saved: .*: Not a directory"):
        _shared_alone(attempt(0), config)


TIERS = ["scratch", "shared", "s3"]


@pytest.mark.parametrize(
    ("due", "busy", "failing", "buffers", "found"),
    [
        (["s3"], [], [], 2, ["s3"]),
        (["s3"], ["scratch"], ["shared"], 2, ["s3"]),
        (["s3"], [], [], 1, TIERS),
        (["s3"], ["s3"], [], 2, TIERS),
        (["s3"], ["shared"], [], 2, TIERS),
        (["s3"], [], ["s3"], 2, TIERS),
        (["shared", "s3"], [], ["s3"], 2, TIERS),
        (["shared"], ["s3"], [], 2, ["scratch", "shared"]),
        (["scratch", "s3"], ["s3"], ["s3"], 1, ["scratch", "s3"]),
        ([], ["s3"], ["s3"], 1, []),
    ],
)
def test_the_way_of_a_save(due: list[str], busy: list[str], failing: list[str], buffers: int, found: list[str]) -> None:
    assert route(due, TIERS, busy, failing, buffers) == found
    assert route(["s3"], ["s3"], busy, failing, buffers) == ["s3"], "there is no other way"


def _with_broken_s3(run: CurrentRun, config: dict[str, Any], server: S3Server) -> None:
    os.environ.update(server.environment, **{FOLDER: str(run.folder.path)})
    with Checkpointer(config, run) as saving:
        assert saving.save(1, {"w": torch.ones(3)})
        assert saving.wait()


def test_a_tier_that_gives_back_other_bytes_is_broken_and_nobodys_error(folder: Path, server: S3Server) -> None:
    """As a cache or a disk does that loses bits: what is written there is whole, and what is read is not."""

    def flip(data: bytes, _: int) -> bytes:
        return data[:-1] + b"\x01" if data.endswith(bytes(64)) else data

    with proxy(server.endpoint, spoil_answer=flip) as endpoint:
        broken = {"url": f"s3://{BUCKET}/broken", "endpoint": endpoint, "every": 1}
        on_both = {"shared": {"every": 1}, "s3": broken}
        (outcome,) = on_ranks(_with_broken_s3, folder, on_both, server, nodes=["here"])
        assert outcome.error is None, outcome.error
        assert "reads as something else (" in outcome.log
        assert "; saves there are tried anyway" in outcome.log
        alone = {"shared": {"path": None}, "s3": broken}
        nodes = ["one", "other"]
        first, second = on_ranks(_ends_as, folder, alone, server, nodes=nodes, attempt=1)
    assert [first.value[0], second.value[0]] == [INFRASTRUCTURE] * 2, [first, second]
    assert f"no checkpoint can be saved: s3://{BUCKET}/broken" in first.value[1]
    assert is_peer_lost(second.value[1]), "its node is not the one to leave out"
    assert [first.value[2], second.value[2]] == [[], []], "nobody could close these writers"


def _ends_as(run: CurrentRun, config: dict[str, Any], server: S3Server) -> list[Any]:
    try:
        _with_broken_s3(run, config, server)
    except Exception as error:  # noqa: BLE001 - as a rank takes whatever a function raises
        outcome = outcome_of(error)
        return [outcome.outcome, outcome.error or "", writers_of(os.getpid())]
    return []
