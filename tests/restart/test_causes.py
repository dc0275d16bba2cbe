"""Slurm's lines and error texts become causes. The lines are as a real Slurm 22.05 wrote them."""

from __future__ import annotations

import pytest

from slurmopt.restart import causes

NOISE = "srun: got SIGCONT\nsrun: forcing job termination\n"


def line(reason: str) -> str:
    return f"slurmstepd-node1: error: *** JOB 25 ON node1 CANCELLED AT 2026-11-21T12:00:10{reason} ***\n{NOISE}"


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        (" DUE TO TIME LIMIT", causes.TIME_LIMIT),
        (" DUE TO PREEMPTION", causes.PREEMPTION),
        (" DUE TO JOB REQUEUE", causes.REQUEUED),
        (" DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS", causes.NODE_FAILURE),
        ("", causes.CANCELLED),
        (" DUE TO SUNSPOTS", causes.UNKNOWN),
    ],
)
def test_slurmstepds_line_tells_the_cause(reason: str, cause: str) -> None:
    assert causes.of_job_log(NOISE + line(reason)) == cause


def test_the_last_line_counts() -> None:
    assert causes.of_job_log(line(" DUE TO PREEMPTION") + line(" DUE TO TIME LIMIT")) == causes.TIME_LIMIT


def test_a_steps_line_and_no_line_say_nothing() -> None:
    step = "slurmstepd-node1: error: *** STEP 21.0 ON node1 CANCELLED AT 2026-11-21T12:00:10 ***"
    assert causes.of_job_log(step) is None
    assert causes.of_job_log("") is None


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB", causes.GPU_OUT_OF_MEMORY),
        ("MemoryError", causes.OUT_OF_MEMORY),
        ("srun: error: node2: task 1: Out Of Memory", causes.OUT_OF_MEMORY),
        ("slurmstepd-node2: error: Detected 1 oom-kill event(s) in StepId=1.0.", causes.OUT_OF_MEMORY),
        ("RuntimeError: [enforce fail] . DefaultCPUAllocator: can't allocate memory", causes.OUT_OF_MEMORY),
        ("srun: error: Node failure on node2", causes.NODE_FAILURE),
        ("RuntimeError: CUDA error: uncorrectable ECC error encountered", causes.INFRASTRUCTURE),
        ("kernel: NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.", causes.INFRASTRUCTURE),
        ("OSError: [Errno 116] Stale file handle: '/fsx/data'", causes.INFRASTRUCTURE),
        ("torch.distributed.DistBackendError: NCCL error in: ncclSystemError", causes.INFRASTRUCTURE),
        (
            "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address."
            " port: 15007, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use",
            causes.INFRASTRUCTURE,
        ),
        ("OSError: [Errno 24] Too many open files: '/fsx/data/7.bin'", causes.INFRASTRUCTURE),
        ("ValueError: batch of 3 does not fit", None),
        ("", None),
        (None, None),
    ],
)  # fmt: skip
def test_errors_tell_the_cause(text: str | None, cause: str | None) -> None:
    assert causes.of_text(text) == cause


def test_the_users_own_patterns_win() -> None:
    own = {r"licence server": "infrastructure", "CUDA out of memory": "infrastructure"}
    assert causes.of_text("FlexError: the licence server is away", own) == causes.INFRASTRUCTURE
    assert causes.of_text("CUDA out of memory", own) == causes.INFRASTRUCTURE


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("srun: error: node2: task 1: Out Of Memory", causes.OUT_OF_MEMORY),
        ("srun: error: node2: tasks 1-3: Out Of Memory", causes.OUT_OF_MEMORY),
        ("slurmstepd-node2: error: Detected 1 oom-kill event(s) in StepId=1.0.", causes.OUT_OF_MEMORY),
        ("slurmstepd: error: Detected 1 oom_kill event in StepId=1.0. Some of the step tasks …", causes.OUT_OF_MEMORY),
        ("slurmstepd: error: Step 1.0 exceeded memory limit (2 > 1), being killed", causes.OUT_OF_MEMORY),
        ("[2026-11-22T04:40:29.730] error: Detected 1 oom_kill event in StepId=1.0. Some …", causes.OUT_OF_MEMORY),
        ("CUDA out of memory, trying again\nsrun: error: node2: task 1: Out Of Memory\n", causes.OUT_OF_MEMORY),
        ("srun: error: Node failure on node2", causes.NODE_FAILURE),
        ("W dataloader: cannot allocate memory for a pinned buffer, falling back", None),
        ("retry after: srun: error: node2: task 1: Out Of Memory", None),
        ("srun: error: node2: task 1: Killed", None),
    ],
)
def test_of_a_killed_rank_only_slurms_own_lines_tell(text: str, cause: str | None) -> None:
    assert causes.of_slurm_lines(f"step 1\n{text}\nstep 2\n") == cause
    assert causes.of_slurm_lines(text, {"": "hang"}) == causes.HANG


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("cat: data.bin: Input/output error", None),
        ("OSError: [Errno 116] Stale file handle, trying again", None),
        ("terminate called after throwing an instance of 'std::bad_alloc'", causes.OUT_OF_MEMORY),
        ("HIP out of memory", causes.GPU_OUT_OF_MEMORY),
    ],
)
def test_outside_a_traceback_words_of_broken_machines_do_not_count(text: str, cause: str | None) -> None:
    assert causes.of_log(text) == cause
    assert causes.of_log(text, {".": "infrastructure"}) == causes.INFRASTRUCTURE


@pytest.mark.parametrize(
    ("error", "told"),
    [
        ("Traceback (most recent call last):\n  …\nslurmopt.errors.Requeue: saved\n", True),
        ("torch.distributed.elastic.multiprocessing.api.SignalException: Process 5 got signal: 15", True),
        ("Requeue", True),
        ("slurmopt.errors.Requeue: saved\nValueError: bad data\n", False),
        ("RequeueError: Requeue", False),
        ("", False),
        (None, False),
    ],
)
def test_who_left_because_it_was_told_to(error: str | None, told: bool) -> None:
    assert causes.left_when_told(error) is told


def test_ranks_that_were_lost_are_the_infrastructures_fault() -> None:
    assert causes.of_text("slurmopt.errors.RanksLost: the other ranks did not come: …") == causes.INFRASTRUCTURE
    gloo = "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:547] Read error [10.0.0.2]:4711: "
    assert causes.of_text(gloo + "No route to host") == causes.INFRASTRUCTURE


@pytest.mark.parametrize(
    ("state", "cause"),
    [("NODE_FAIL", "node failure"), ("CANCELLED by 1000", "cancelled"), ("OUT_OF_ME+", None),
     ("PREEMPTED", "preemption"), ("TIMEOUT", "time limit"), ("COMPLETED", None), ("", None)],
)  # fmt: skip
def test_slurms_states_tell_the_cause(state: str, cause: str | None) -> None:
    assert causes.of_state(state) == cause
