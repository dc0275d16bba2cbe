"""The verdict from the ranks' own accounts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from slurmopt.folder import events
from slurmopt.folder.heartbeat import Heartbeat
from slurmopt.folder.layout import RunFolder
from slurmopt.folder.outcome import EXIT_STATUS, Outcome
from slurmopt.runtime import failures, verdict
from slurmopt.runtime.logtail import last_traceback

PEER = "RuntimeError: [pair.cc:553] Connection closed by peer [10.0.0.2]:4711"


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    folder = RunFolder(tmp_path / "runs" / "test" / "one")
    folder.make()
    for part in (folder.logs, folder.heartbeats):
        (part / "attempt-0").mkdir()
    return folder


def _rank(
    folder: RunFolder,
    rank: int,
    outcome: str | None,
    time: float = 1.0,
    error: str | None = None,
    asked: str | None = None,
) -> None:
    beat = Heartbeat(rank=rank, world_size=3, node=f"node{rank}", pid=1, asked=asked)
    if outcome is not None:
        beat.outcome = Outcome(outcome, time, EXIT_STATUS[outcome], error=error).as_dict()
    beat.write(folder.heartbeat(0, rank))


def _judge(folder: RunFolder, step_exit: int = 1) -> tuple[int, dict[str, object]]:
    status = verdict.main([str(folder.path), "0", "3", str(step_exit)])
    value = json.loads(folder.result.read_text())
    return status, value


def test_finished_only_when_all_ranks_finished(folder: RunFolder) -> None:
    for rank in range(3):
        _rank(folder, rank, "finished")
    assert _judge(folder, 0)[0] == 0
    _rank(folder, 1, None)
    status, result = _judge(folder)
    assert (status, result["outcome"], result["rank"]) == (137, "killed", 1)
    assert events.read(folder.events)[-1]["outcome"] == "killed"


def test_a_failed_step_whose_ranks_all_finished_has_finished(folder: RunFolder) -> None:
    for rank in range(3):
        _rank(folder, rank, "finished")
    status, result = _judge(folder, 1)
    assert (status, result["step_exit_code"]) == (0, 1)


def test_the_earliest_error_is_the_cause(folder: RunFolder) -> None:
    _rank(folder, 0, "user error", 5.0, "ValueError: later")
    _rank(folder, 1, "infrastructure", 9.0, "OSError: latest")
    _rank(folder, 2, "user error", 3.0, "ValueError: first")
    status, result = _judge(folder)
    assert (status, result["rank"], result["error"]) == (1, 2, "ValueError: first")


def test_a_lost_peer_is_not_the_cause_though_it_is_told_first(folder: RunFolder) -> None:
    _rank(folder, 0, "infrastructure", 1.0, PEER)
    _rank(folder, 1, "user error", 2.0, "ValueError: cause")
    _rank(folder, 2, None)
    assert _judge(folder)[1]["rank"] == 1


def test_a_silent_rank_explains_the_lost_peer(folder: RunFolder) -> None:
    _rank(folder, 0, "infrastructure", 1.0, PEER)
    _rank(folder, 1, None)
    _rank(folder, 2, "infrastructure", 1.1, PEER)
    status, result = _judge(folder)
    assert (status, result["outcome"], result["rank"], result["node"]) == (137, "killed", 1, "node1")


def test_only_lost_peers_are_the_infrastructures(folder: RunFolder) -> None:
    for rank in range(3):
        _rank(folder, rank, "infrastructure", 1.0 + rank, PEER)
    assert _judge(folder)[0] == 69


def test_one_wish_to_be_requeued_counts_for_all(folder: RunFolder) -> None:
    _rank(folder, 0, "finished")
    _rank(folder, 1, "requeue")
    _rank(folder, 2, "finished")
    assert _judge(folder, 0)[0] == 75


def test_a_wish_does_not_hide_an_error(folder: RunFolder) -> None:
    _rank(folder, 0, "requeue", 1.0)
    _rank(folder, 1, "user error", 2.0, "ValueError: x")
    _rank(folder, 2, "requeue", 1.0)
    assert _judge(folder)[0] == 1


def test_no_rank_at_all(folder: RunFolder) -> None:
    status, result = _judge(folder, 127)
    assert status == 69
    assert "exit status 127" in str(result["error"])


def test_the_requeue_file_is_for_one_attempt(folder: RunFolder) -> None:
    (folder.path / "requeue").touch()
    for rank in range(3):
        _rank(folder, rank, "requeue")
    _judge(folder, 0)
    assert not (folder.path / "requeue").exists()


HELD_DEAD = """srun: error: Node failure on node5
srun: Job step aborted: Waiting up to 7 seconds for job step to finish.
"""
"""As Slurm 22.05 wrote it, when the slurmd of the batch host had been killed and all else there lived on."""


def _leave(folder: RunFolder, log: str, slurm: str, asked: str | None) -> dict[str, object]:
    """Three ranks that saved and left; the batch shell got no signal."""
    events.append(folder.events, "attempt", attempt=0, job="7", nodes="node[5-6]", log_from=0)
    folder.job_log("7").write_text(log)
    folder.slurm_said(0).write_text(slurm)
    for rank in range(3):
        _rank(folder, rank, "requeue", error="saved step 511 before the job ends", asked=asked)
    return _judge(folder, 0)[1]


def test_a_batch_host_that_slurm_gave_up_is_the_cause_though_its_shell_lives_on(folder: RunFolder) -> None:
    result = _leave(folder, HELD_DEAD, "JobId=7 JobState=COMPLETING Restarts=1 NodeList=node6 BatchHost=node5", "TERM")
    assert (result["cause"], result["next"]) == ("node failure", "requeue")
    (excluded,) = [event for event in events.read(folder.events) if event["event"] == "node-excluded"]
    assert excluded["nodes"] == "node5"


def test_a_signal_that_only_the_ranks_got_is_not_their_own_wish(folder: RunFolder) -> None:
    assert _leave(folder, "", "JobId=7 JobState=COMPLETING Restarts=1", "TERM")["cause"] == "requeued"


@pytest.mark.parametrize("asked", [None, "TERM"])
def test_who_leaves_of_its_own_accord_or_by_somebodys_kill_has_asked(folder: RunFolder, asked: str | None) -> None:
    assert _leave(folder, "", "JobId=7 JobState=RUNNING Restarts=0", asked)["cause"] == "asked"


def test_numbers() -> None:
    assert verdict.numbers([0, 2, 3, 4, 7]) == "0, 2-4, 7"


def test_the_telling_traceback_of_a_log(tmp_path: Path) -> None:
    log = tmp_path / "rank-0.log"
    cause = 'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n    f()\nValueError: cause\n'
    launcher = 'Traceback (most recent call last):\n  File "run.py", line 9\ntorch.ChildFailedError: \n'
    log.write_text(
        "step 1\n" + "".join(f"[rank1]: {line}\n" for line in cause.splitlines()) + "W torchrun\n" + launcher
    )
    assert last_traceback(log) == cause
    log.write_text("all is well\n")
    assert last_traceback(log) is None
    assert last_traceback(tmp_path / "absent") is None


class DistBackendError(RuntimeError):
    """Named as torch's."""


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (ValueError("x"), "user error"),
        (RuntimeError("CUDA out of memory"), "user error"),
        (RuntimeError("CUDA error: uncorrectable ECC error encountered"), "infrastructure"),
        (RuntimeError(PEER), "infrastructure"),
        (DistBackendError("NCCL error: unhandled system error"), "infrastructure"),
        (DistBackendError("ncclInvalidUsage: Duplicate GPU detected"), "user error"),
        (OSError(116, "Stale file handle"), "infrastructure"),
        (FileNotFoundError(2, "No such file"), "user error"),
        (ConnectionRefusedError(111, "Connection refused"), "user error"),
        (SystemExit(75), "requeue"),
        (SystemExit(0), "finished"),
        (KeyboardInterrupt(), "killed"),
    ],
)
def test_what_an_exception_is(error: BaseException, outcome: str) -> None:
    assert failures.outcome_of(error).outcome == outcome
