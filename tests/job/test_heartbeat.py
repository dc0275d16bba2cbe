"""What a rank's heartbeat tells, and when."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from job.harness import Runner, wait_for

import slurmopt
from slurmopt.errors import JobError
from slurmopt.job.facts.rank_facts import facts_from
from slurmopt.job.failures import finished
from slurmopt.job.heartbeat.child_reports import PROGRESS, ChildReports
from slurmopt.job.heartbeat.heartbeat_writer import HeartbeatWriter
from slurmopt.run_folder import heartbeat
from slurmopt.run_folder.heartbeat import Heartbeat

EVERY = 1000.0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "attempt-0" / "rank-0.json"


@pytest.fixture
def live(path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HeartbeatWriter]:
    """A rank that would beat every quarter of an hour, had it nothing to tell."""
    monkeypatch.setenv(PROGRESS, "")  # `start` sets it: let it be forgotten
    rank = HeartbeatWriter(path, facts_from({}), EVERY, lambda: None)
    rank.start()
    yield rank
    rank.end(finished())
    rank.close()


def read(path: Path) -> Heartbeat:
    beat = heartbeat.read(path)
    assert beat is not None
    return beat


def test_a_heartbeat_names_its_interval(live: HeartbeatWriter, path: Path) -> None:
    beat = heartbeat.read(path)
    assert beat is not None
    assert beat.interval == EVERY
    assert beat.silent_after == 3 * EVERY + 30


def test_who_asked_first_is_told_at_once(live: HeartbeatWriter, path: Path) -> None:
    assert read(path).asked is None
    live.note_asked("USR1")
    wait_for(lambda: read(path).asked == "USR1", "the word in the file")
    live.note_asked("TERM")
    live.tell_address("10.0.0.1:7")
    wait_for(lambda: read(path).address == "10.0.0.1:7", "the address in the file")
    assert read(path).asked == "USR1"


def test_a_phase_is_dated_when_it_is_first_entered(live: HeartbeatWriter, path: Path) -> None:
    for phase in ("running", "restoring"):
        live.enter(phase)
    wait_for(lambda: read(path).phase == "restoring", "the phase in the file")
    first = read(path).phases
    live.enter("running")
    wait_for(lambda: read(path).phase == "running", "the phase in the file")
    assert read(path).phases == first
    assert list(first) == ["starting", "running", "restoring"]
    assert first["starting"] <= first["running"] <= first["restoring"] <= time.time()
    live.end(finished())
    assert list(read(path).phases)[-1] == "ended"


def test_a_steps_time_is_when_it_rose(live: HeartbeatWriter, path: Path) -> None:
    live.report(5, 10, {})
    wait_for(lambda: read(path).step == 5, "the step in the file")
    rose = read(path).step_time
    assert rose == read(path).first_step_time
    live.report(5, None, {"loss": 1.0})
    wait_for(lambda: read(path).metrics == {"loss": 1.0}, "the metric in the file")
    assert read(path).step_time == rose
    live.report(6, None, {})
    wait_for(lambda: read(path).step == 6, "the next step in the file")
    assert (read(path).step_time or 0) > (rose or 0)


def test_a_step_is_taken_in_while_the_file_system_is_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulated: a rename that does not return, as where a file server does not answer."""
    monkeypatch.setenv(PROGRESS, "")
    real, begun, back = os.replace, threading.Event(), threading.Event()

    def replace(source: Path, target: Path) -> None:
        begun.set()
        back.wait()
        real(source, target)

    path = tmp_path / "rank-0.json"
    rank = HeartbeatWriter(path, facts_from({}), EVERY, lambda: None)
    rank.start()
    monkeypatch.setattr(os, "replace", replace)
    rank.report(1, None, {})
    wait_for(begun.is_set, "the writer at the rename")
    training = threading.Thread(target=rank.report, args=(2, None, {}), daemon=True)
    training.start()
    training.join(30)
    assert not training.is_alive()
    back.set()
    rank.end(finished())
    rank.close()
    assert read(path).step == 2


def test_a_folder_that_cannot_be_looked_at_ends_no_heartbeat(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(PROGRESS, "")
    looks: list[int] = []

    def watch() -> None:
        looks.append(1)
        raise OSError(errno.ESTALE, "Stale file handle")

    rank = HeartbeatWriter(path, facts_from({}), 0.01, watch)
    rank.start()
    wait_for(lambda: looks, "the first look")
    rank.report(5, None, {})
    wait_for(lambda: read(path).step == 5, "a heartbeat after it")
    wait_for(lambda: len(looks) > 1, "another look")
    rank.end(finished())
    rank.close()
    assert capsys.readouterr().err.count("Stale file handle") == 1


def test_a_folder_that_is_read_only_at_the_start_gets_a_heartbeat_once_it_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if os.getuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,ro", "tmpfs", tmp_path]).returncode:
        pytest.skip("NOT TESTED: no file system can be mounted here")
    monkeypatch.setenv(PROGRESS, "")
    path = tmp_path / "heartbeat" / "attempt-0" / "rank-0.json"
    rank = HeartbeatWriter(path, facts_from({}), 0.05, lambda: None)
    try:
        rank.start()
        rank.report(3, None, {})
        assert not path.exists()
        subprocess.run(["mount", "-o", "remount,rw", tmp_path], check=True)
        wait_for(lambda: path.exists() and read(path).step == 3, "the heartbeat")
        rank.end(finished())
        assert (read(path).outcome or {})["outcome"] == "finished"
    finally:
        rank.close()
        subprocess.run(["umount", "-l", tmp_path], check=True)
    assert capsys.readouterr().err.count("the heartbeat cannot be written: [Errno 30] Read-only file system") == 1


def test_steps_of_a_child_that_find_the_rank_busy_are_told_later() -> None:
    """Another user of the node may keep the queue full: no step waits for it, and none is lost."""
    name = f"slurmopt-test-{os.getpid()}"
    kind = socket.SOCK_DGRAM | socket.SOCK_NONBLOCK
    with socket.socket(socket.AF_UNIX, kind) as inbox, socket.socket(socket.AF_UNIX, kind) as other:
        inbox.bind("\0" + name)
        _until_it_blocks(lambda: other.sendto(b"noise", "\0" + name))
        child = ChildReports(name)
        child.report(1, None, {"loss": 2.0})
        _until_it_blocks(lambda: inbox.recv(100))
        child.close()
        assert json.loads(inbox.recv(100)) == [1, None, {"loss": 2.0}]


def _until_it_blocks(call: Callable[[], object]) -> None:
    with contextlib.suppress(BlockingIOError):
        while True:
            call()


PHASES = """
import os, time
from slurmopt import phase, progress


def main(config=None):
    progress(1)
    with phase("evaluation"):
        while not os.path.exists("evaluated"):
            time.sleep(0.02)
    while not os.path.exists("enough"):
        time.sleep(0.02)


if __name__ == "__main__":
    main()
"""


@pytest.mark.parametrize("task", [("--function", "train.main"), ("--", sys.executable, "train.py")])
def test_what_a_training_or_a_commands_python_does_shows_as_its_phase(runner: Runner, task: tuple[str, ...]) -> None:
    runner.module("train", PHASES)
    process = runner.start(1, "--heartbeat", "0.3", *task)
    for phase, file in (("evaluation", "evaluated"), ("running", "enough")):
        wait_for(lambda: (beat := runner.beat(0)) and beat.step == 1 and beat.phase == phase, phase)  # noqa: B023
        (runner.code / file).touch()
    assert runner.finish(process) == 0
    with pytest.raises(JobError, match="another name, such as 'evaluation'"), slurmopt.phase("ended"):
        pass


def test_rank_0_keeps_a_thinned_history_of_its_metrics(live: HeartbeatWriter, path: Path) -> None:
    for step in range(1, 1001):
        live.report(step, 1000, {"loss": 1.0 / step, **{f"m{number}": 1.0 for number in range(step // 500 * 20)}})
    live.end(finished())
    history = read(path).history
    assert 32 <= len(history["loss"]) <= 64
    assert history["loss"][0] == 1.0
    assert history["loss"] == sorted(history["loss"], reverse=True)
    assert history["loss"][-1] < 0.0011
    assert len(history) == 6
    assert path.stat().st_size < 8000


def test_other_ranks_keep_none(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PROGRESS, "")
    facts = facts_from({"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"})
    rank = HeartbeatWriter(path, facts, EVERY, lambda: None)
    rank.start()
    rank.report(1, None, {"loss": 1.0})
    rank.end(finished())
    rank.close()
    assert (read(path).metrics, read(path).history) == ({"loss": 1.0}, {})
