"""Evidence becomes a cause. The lines are as a real Slurm 22.05 wrote them; no files, no processes."""

from __future__ import annotations

from typing import Any

import pytest

from slurmopt.restart import causes, classify
from slurmopt.restart.evidence import Evidence
from slurmopt.run_folder.outcome import FINISHED, INFRASTRUCTURE, KILLED, REQUEUE, USER_ERROR

HANG = {"rank": 1, "node": "node2", "seconds": 300}
NODE_FAILED = "srun: error: Node failure on node2\n"
OUT_OF_MEMORY = "slurmstepd: error: Detected 1 oom_kill event in StepId=1.0.\n"
NOT_PREEMPTED = {"JobState": "RUNNING", "PreemptTime": "None"}
PREEMPTED = {"JobState": "RUNNING", "PreemptTime": "2026-11-21T12:00:00"}
RESTARTED = {"JobState": "COMPLETING", "Restarts": "1"}


def ended(reason: str = "") -> str:
    return f"slurmstepd: error: *** JOB 12 ON node1 CANCELLED AT 2026-11-21T12:00:00{reason} ***\n"


LIMIT, REQUEUED, SCANCEL = ended(" DUE TO TIME LIMIT"), ended(" DUE TO JOB REQUEUE"), ended()

AT_END: dict[str, tuple[dict[str, Any], str]] = {
    "finished, whatever came last": ({"outcome": FINISHED, "job_log": LIMIT, "cancelled": True}, causes.FINISHED),
    "who ended it knows best": ({"outcome": KILLED, "ended_by": causes.HANG, "job_log": SCANCEL}, causes.HANG),
    "cancelled by slurmopt": ({"outcome": KILLED, "cancelled": True, "hang": HANG}, causes.CANCELLED),
    "cancelled by scancel": ({"outcome": KILLED, "job_log": SCANCEL}, causes.CANCELLED),
    "scancel --signal, job lives on": (
        {"outcome": KILLED, "job_log": SCANCEL, "slurm": NOT_PREEMPTED},
        causes.KILLED,
    ),
    "hang, although Slurm ended it": ({"outcome": KILLED, "hang": HANG, "job_log": LIMIT}, causes.HANG),
    "Slurm's line": ({"outcome": KILLED, "job_log": LIMIT}, causes.TIME_LIMIT),
    "requeued by the training, when it was told": (
        {"outcome": REQUEUE, "job_log": REQUEUED, "asked": frozenset({"USR1"})},
        causes.TIME_LIMIT,
    ),
    "the same, told by the shell's file": (
        {"outcome": REQUEUE, "job_log": REQUEUED, "asked": frozenset({"file"}), "signals": ("USR1", "TERM")},
        causes.TIME_LIMIT,
    ),
    "requeued by an administrator": (
        {"outcome": REQUEUE, "job_log": REQUEUED, "asked": frozenset({"file"}), "signals": ("TERM",)},
        causes.REQUEUED,
    ),
    "preemption in its grace time": ({"outcome": KILLED, "slurm": PREEMPTED}, causes.PREEMPTION),
    "a failure before preemption was heard of": ({"outcome": USER_ERROR, "slurm": PREEMPTED}, causes.USER_ERROR),
    "the limit came near": ({"outcome": REQUEUE, "signals": ("USR1",)}, causes.TIME_LIMIT),
    "an error after USR1": ({"outcome": USER_ERROR, "signals": ("USR1",), "error": "KeyError: 'x'"}, causes.USER_ERROR),
    "told to leave, with exit status 1": (
        {"outcome": USER_ERROR, "signals": ("USR1",), "error": "x.SignalException: Process 7 got signal: 15"},
        causes.TIME_LIMIT,
    ),
    "SIGTERM at the limit": (
        {"outcome": KILLED, "signals": ("TERM",), "slurm": {"Reason": "TimeLimit"}},
        causes.TIME_LIMIT,
    ),
    "SIGTERM, and Slurm restarts the job": (
        {"outcome": KILLED, "signals": ("TERM",), "slurm": RESTARTED},
        causes.REQUEUED,
    ),
    "SIGTERM, restarted before": (
        {"outcome": KILLED, "signals": ("TERM",), "slurm": RESTARTED, "restarts": 1},
        causes.CANCELLED,
    ),
    "SIGTERM to a job that lives on": (
        {"outcome": KILLED, "signals": ("TERM",), "slurm": NOT_PREEMPTED},
        causes.KILLED,
    ),
    "a wish": ({"outcome": REQUEUE}, causes.ASKED),
    "SIGTERM to ranks beside a dead node": (
        {"outcome": REQUEUE, "asked": frozenset({"TERM"}), "job_log": NODE_FAILED},
        causes.NODE_FAILURE,
    ),
    "SIGTERM to ranks, requeued": (
        {"outcome": REQUEUE, "asked": frozenset({"rank"}), "slurm": RESTARTED},
        causes.REQUEUED,
    ),
    "killed, memory": ({"outcome": KILLED, "job_log": OUT_OF_MEMORY}, causes.OUT_OF_MEMORY),
    "killed, its log speaks of ECC": ({"outcome": KILLED, "rank_logs": "uncorrectable ECC error"}, causes.KILLED),
    "killed, by Slurm's state": ({"outcome": KILLED, "slurm": {"JobState": "OUT_OF_MEMORY"}}, causes.OUT_OF_MEMORY),
    "killed, the disk is full": ({"outcome": KILLED, "full_disk": "No space left on device"}, causes.INFRASTRUCTURE),
    "killed by a signal for memory, the disk is full": (
        {"outcome": KILLED, "full_disk": "No space left on device", "job_log": OUT_OF_MEMORY},
        causes.OUT_OF_MEMORY,
    ),
    "a failed health check": ({"outcome": INFRASTRUCTURE, "error": "bad node"}, causes.INFRASTRUCTURE),
    "an error": ({"outcome": USER_ERROR, "error": "CUDA out of memory"}, causes.GPU_OUT_OF_MEMORY),
    "a program's log": ({"outcome": USER_ERROR, "rank_logs": "HIP out of memory"}, causes.GPU_OUT_OF_MEMORY),
}


@pytest.mark.parametrize("case", AT_END)
def test_at_end(case: str) -> None:
    known, cause = AT_END[case]
    assert classify.at_end(Evidence(**known)) == cause


def test_patterns_of_the_user_win() -> None:
    evidence = Evidence(outcome=USER_ERROR, error="CUDA out of memory: licence")
    assert classify.at_end(evidence, {"licence": "infrastructure"}) == causes.INFRASTRUCTURE


@pytest.mark.parametrize(
    ("known", "same_job", "cause"),
    [
        ({}, True, causes.NODE_FAILURE),
        ({}, False, causes.UNKNOWN),
        ({"hang": HANG, "job_log": LIMIT}, True, causes.HANG),
        ({"hang": HANG, "job_log": SCANCEL}, False, causes.REQUEUED),
        ({"job_log": REQUEUED}, True, causes.REQUEUED),
        ({"job_log": REQUEUED, "signals": ("USR1",)}, True, causes.TIME_LIMIT),
        ({"job_log": ended(" DUE TO PREEMPTION")}, True, causes.PREEMPTION),
    ],
)
def test_by_next_attempt(known: dict[str, Any], same_job: bool, cause: str) -> None:
    assert classify.by_next_attempt(Evidence(**known), same_job) == cause


@pytest.mark.parametrize(
    ("known", "cause"),
    [
        ({}, causes.NODE_FAILURE),
        ({"state": "COMPLETED"}, causes.UNKNOWN),
        ({"state": "TIMEOUT", "job_log": ended(" DUE TO PREEMPTION")}, causes.TIME_LIMIT),
        ({"state": "TIMEOUT", "job_log": SCANCEL}, causes.CANCELLED),
        ({"state": "NODE_FAIL", "hang": HANG}, causes.HANG),
        ({"state": "CANCELLED by 0", "hang": HANG}, causes.CANCELLED),
        ({"outcome": FINISHED, "state": "COMPLETED"}, causes.FINISHED),
        ({"outcome": REQUEUE, "state": "COMPLETED"}, causes.ASKED),
        ({"outcome": KILLED, "error": "was memory short?", "state": "FAILED"}, causes.KILLED),
        ({"outcome": KILLED, "job_log": NODE_FAILED, "state": "FAILED"}, causes.NODE_FAILURE),
        ({"outcome": USER_ERROR, "error": "MemoryError", "state": "FAILED"}, causes.OUT_OF_MEMORY),
        ({"outcome": USER_ERROR, "error": "MemoryError", "state": "NODE_FAIL"}, causes.NODE_FAILURE),
        ({"outcome": INFRASTRUCTURE, "error": "bad node"}, causes.INFRASTRUCTURE),
    ],
)
def test_by_login_side(known: dict[str, Any], cause: str) -> None:
    assert classify.by_login_side(Evidence(**known)) == cause


@pytest.mark.parametrize(
    ("state", "cause"),
    [(None, causes.UNKNOWN), ("FAILED", causes.INFRASTRUCTURE), ("BOOT_FAIL", causes.NODE_FAILURE)],
)
def test_before_start(state: str | None, cause: str) -> None:
    assert classify.before_start(Evidence(state=state)) == cause


@pytest.mark.parametrize(
    ("task", "cause"),
    [
        (causes.CANCELLED, causes.REQUEUED),
        (causes.FINISHED, causes.UNKNOWN),
        (causes.USER_ERROR, causes.UNKNOWN),
        (None, causes.UNKNOWN),
        (causes.NODE_FAILURE, causes.NODE_FAILURE),
    ],
)
def test_of_point(task: str | None, cause: str) -> None:
    assert classify.of_point(task) == cause


def test_of_killed_shell() -> None:
    assert classify.of_killed_shell(Evidence(cancelled=True)) == causes.CANCELLED
    assert classify.of_killed_shell(Evidence()) == causes.KILLED


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        ("std::runtime_error: nobody knows", KILLED),
        ("c10::DistBackendError: NCCL communicator", INFRASTRUCTURE),
        ("Watchdog caught collective operation timeout", INFRASTRUCTURE),
        ("std::bad_alloc", USER_ERROR),
    ],
)
def test_outcome_of_abort(error: str, outcome: str) -> None:
    assert classify.outcome_of_abort(error) == outcome


def test_slurm_requeues_by_its_own_line() -> None:
    preempted = Evidence(hang=HANG, job_log=ended(" DUE TO PREEMPTION"))
    assert classify.is_requeued_by_slurm(causes.HANG, preempted)
    assert not classify.is_requeued_by_slurm(causes.FINISHED, preempted)
    assert not classify.is_requeued_by_slurm(causes.TIME_LIMIT, Evidence(job_log=LIMIT))
