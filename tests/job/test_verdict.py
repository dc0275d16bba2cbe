"""The verdict from the ranks' own accounts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from slurmopt.job import failures
from slurmopt.job.supervisor import verdict
from slurmopt.job.supervisor.judge_attempt import numbers
from slurmopt.job.supervisor.log_tail import last_traceback
from slurmopt.restart.policy import Policy
from slurmopt.run_folder import events
from slurmopt.run_folder.heartbeat import Heartbeat
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.outcome import EXIT_STATUS, Outcome

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
    step: int | None = None,
) -> None:
    beat = Heartbeat(rank=rank, world_size=3, node=f"node{rank}", pid=1, asked=asked, step=step)
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


FRAMES = """Exception raised from checkForNCCLErrors at ProcessGroupNCCL.cpp:2363 (most recent call first):
frame #0: c10::Error::Error(c10::SourceLocation, std::string) + 0x96 (0x7f in libc10.so)
frame #1: <unknown function> + 0x94ac3 (0x7f in /lib/x86_64-linux-gnu/libc.so.6)

"""
GROUP = "[PG ID 0 PG GUID 0(default_pg) Rank {rank}] Process group watchdog thread terminated with exception: "
ECC = "CUDA error: uncorrectable ECC error encountered"
REMOTE = """NCCL error: remote process exited or there was a network error, NCCL version 2.27.5
ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.
Last error:
socketProgressOpt: Call to recv from 10.0.0.4<49901> failed : Broken pipe"""
TIMEOUT = (
    "[Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=199, OpType=ALLREDUCE, NumelIn=7,"
    " NumelOut=7, Timeout(ms)=600000) ran for 600049 milliseconds before timing out."
)
FIRST = "srun: error: node{rank}: task {rank}: Aborted (core dumped)\n"
ENDED = "srun: launch/slurm: _step_signal: Terminating StepId=7.0\nsrun: error: {others}: Killed\n"


def _abort(folder: RunFolder, rank: int, what: str, prefix: str = "") -> None:
    """What a rank's log ends with when torch's watchdog for NCCL takes it down; simulated, for there is no GPU."""
    what = (GROUP + what).format(rank=rank)
    logged = f"[rank{rank}]:[E817 17:40:34.227531918 ProcessGroupNCCL.cpp:2057] {what}\n{FRAMES}"
    uncaught = f"terminate called after throwing an instance of 'c10::DistBackendError'\n  what():  {what}\n{FRAMES}"
    text = "".join(f"{prefix}{line}\n" for line in f"step 7\n{logged}{uncaught}".splitlines())
    folder.rank_log(0, rank).write_text(text)


def _die(folder: RunFolder, log: str, **steps: int) -> dict[str, object]:
    """Three ranks of which none could say how it ended."""
    events.append(folder.events, "attempt", attempt=0, job="7", nodes="node[0-2]", log_from=0)
    folder.job_log("7").write_text(log)
    for rank in range(3):
        if not folder.heartbeat(0, rank).exists():
            _rank(folder, rank, None, step=steps.get(f"rank{rank}", 7))
    return _judge(folder, 134)[1]


def _excluded(folder: RunFolder) -> list[str]:
    return [str(event["nodes"]) for event in events.read(folder.events) if event["event"] == "node-excluded"]


def test_a_gpu_that_breaks_down_under_nccl_is_the_infrastructures_fault_and_its_node_is_left_out(
    folder: RunFolder,
) -> None:
    _abort(folder, 0, REMOTE)  # it followed, and is the lowest
    _abort(folder, 2, ECC)
    result = _die(folder, FIRST.format(rank=2) + ENDED.format(others="node[0-1]: tasks 0-1"))
    assert (result["cause"], result["rank"], result["node"]) == ("infrastructure", 2, "node2")
    assert str(result["error"]).startswith("the process aborted: c10::DistBackendError: [PG ID 0 ")
    assert str(result["error"]).endswith(ECC)
    assert _excluded(folder) == ["node2"]


def test_of_several_aborts_the_first_one_that_srun_names_counts(folder: RunFolder) -> None:
    for rank in range(3):
        _abort(folder, rank, ECC)
    result = _die(folder, FIRST.format(rank=1) + FIRST.format(rank=0) + ENDED.format(others="node2: task 2"))
    assert (result["cause"], result["rank"]) == ("infrastructure", 1)


def test_aborts_that_only_miss_a_killed_rank_are_not_the_cause(folder: RunFolder) -> None:
    _abort(folder, 0, REMOTE)
    log = "srun: error: node1: task 1: Killed\n" + FIRST.format(rank=0) + ENDED.format(others="node2: task 2")
    result = _die(folder, log)
    assert (result["cause"], result["rank"], result["node"]) == ("killed", 1, "node1")
    assert _excluded(folder) == []


def test_aborts_that_only_miss_a_node_leave_the_cause_to_srun(folder: RunFolder) -> None:
    for rank in (0, 1):
        _abort(folder, rank, REMOTE)
    lost = "srun: error: Node failure on node2\nsrun: error: Timed out waiting for job step to complete\n"
    result = _die(folder, FIRST.format(rank=0) + FIRST.format(rank=1) + lost)
    assert result["cause"] == "node failure"
    assert _excluded(folder) == ["node2"]


def test_a_collective_that_timed_out_is_a_hang_of_the_rank_that_did_not_come(folder: RunFolder) -> None:
    for rank in (0, 2):
        _abort(folder, rank, TIMEOUT)
    log = FIRST.format(rank=0) + ENDED.format(others="node[1-2]: tasks 1-2")
    result = _die(folder, log, rank0=8, rank1=6, rank2=8)
    assert (result["cause"], result["rank"], result["node"]) == ("hang", 1, "node1")
    assert "rank 1 on node1 stopped first; the process aborted: " in str(result["error"])
    assert _excluded(folder) == []


@pytest.mark.parametrize(("what", "cause", "outcome"), [
    ("CUDA error: device-side assert triggered", "user error", "user error"),
    ("NCCL error: invalid usage\nncclInvalidUsage: This usually reflects invalid usage", "user error", "user error"),
    ("NCCL error: unhandled system error (run with NCCL_DEBUG=INFO)", "infrastructure", "infrastructure"),
])  # fmt: skip
def test_an_abort_is_judged_by_what_it_says(folder: RunFolder, what: str, cause: str, outcome: str) -> None:
    _abort(folder, 1, what)
    result = _die(folder, FIRST.format(rank=1) + ENDED.format(others="node[0,2]: tasks 0,2"))
    assert (result["cause"], result["outcome"], result["rank"]) == (cause, outcome, 1)


@pytest.mark.parametrize(("log", "cause"), [
    ("terminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc\n", "out of memory"),
    ("terminate called after throwing an instance of 'Mine'\n", "killed"),
    ("step 7\n", "killed"),
])  # fmt: skip
def test_other_ends_without_a_word(folder: RunFolder, log: str, cause: str) -> None:
    folder.rank_log(0, 1).write_text(log)
    result = _die(folder, FIRST.format(rank=1) + ENDED.format(others="node[0,2]: tasks 0,2"))
    assert (result["cause"], result["rank"], result["node"]) == (cause, 1, "node1")


def test_the_workers_of_a_launcher_abort_too(folder: RunFolder) -> None:
    """torchrun ends with status 1 and a traceback of its own."""
    _abort(folder, 1, ECC, prefix="[rank5]: ")
    with folder.rank_log(0, 1).open("a") as log:
        log.write('Traceback (most recent call last):\n  File "run.py", line 9\ntorch.ChildFailedError: \n')
    _rank(folder, 1, "user error", error="torchrun ended with exit status 1")
    result = _die(
        folder, "srun: error: node1: task 1: Exited with exit code 1\n" + ENDED.format(others="node0: task 0")
    )
    assert (result["cause"], result["rank"]) == ("infrastructure", 1)
    assert str(result["error"]).endswith(ECC)


REQUEUED = "slurmstepd: error: *** JOB 25 ON node1 CANCELLED AT 2026-11-21T12:00:10 DUE TO JOB REQUEUE ***\n"


@pytest.mark.parametrize(
    ("signals", "asked", "no_progress", "cause", "answer"),
    [
        (["USR1", "TERM"], "USR1", 2, "time limit", "requeue"),
        (["USR1", "TERM"], "file", 2, "time limit", "requeue"),  # the shell's, found before its signal came
        (["TERM"], "file", 2, "requeued", "requeue"),
        (["USR1", "TERM"], "USR1", 1, "time limit", "cancel"),  # Slurm would start the job again
        (["TERM"], "TERM", 2, "requeued", "requeue"),
    ],
)
def test_a_job_that_its_training_requeued_when_it_was_told(
    folder: RunFolder,
    capsys: pytest.CaptureFixture[str],
    signals: list[str],
    asked: str,
    no_progress: int,
    cause: str,
    answer: str,
) -> None:
    events.append(folder.events, "attempt", attempt=0, job="25", log_from=0)
    for number in signals:
        events.append(folder.events, "signal", attempt=0, signal=number)
    folder.job_log("25").write_text(REQUEUED)
    for rank in range(3):
        beat = Heartbeat(rank=rank, world_size=3, node="node1", pid=1, asked=asked)
        beat.outcome = failures.left().as_dict()
        beat.write(folder.heartbeat(0, rank))
    verdict.main([str(folder.path), "0", "3", "0", Policy(no_progress=no_progress).to_json_arg(), "25", "0"])
    assert capsys.readouterr().out.split()[0] == answer
    assert json.loads(folder.result.read_text())["cause"] == cause


def test_numbers() -> None:
    assert numbers([0, 2, 3, 4, 7]) == "0, 2-4, 7"


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
