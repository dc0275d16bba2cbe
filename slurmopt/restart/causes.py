"""Why an attempt ended: the words, what follows from each, and the tables that read them from Slurm's lines and errors.

The words stand in the journal (`cause` of an `end` event) and on the screen:

    finished
    time limit             the limit came near, or was reached
    preemption             a job of higher priority took the nodes
    requeued               by an administrator's `scontrol requeue`
    asked                  the training asked to be started again, without any signal
    node failure           a node died, or was cut off
    hang                   no rank made a step for too long, or a collective timed out
    out of memory          of the host
    GPU out of memory
    infrastructure         NCCL, CUDA, ECC, network, file system, a failed health check
    killed                 a rank got a signal that nobody accounts for
    user error
    cancelled              by `slurmopt cancel` or scancel
    unknown

To add a cause: its word above and as a constant, the groups that it belongs to, its default budget in `Budgets`, and in
the tables what Slurm's lines or an error say then. In the docs: its row in docs/survival.md, and
`scripts/configuration_reference.py`. A cause that several kinds of evidence show together is a rule in
`slurmopt.restart.classify`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from slurmopt.run_folder import outcome

FINISHED = "finished"
TIME_LIMIT = "time limit"
PREEMPTION = "preemption"
REQUEUED = "requeued"
ASKED = "asked"
NODE_FAILURE = "node failure"
HANG = "hang"
OUT_OF_MEMORY = "out of memory"
GPU_OUT_OF_MEMORY = "GPU out of memory"
INFRASTRUCTURE = "infrastructure"
KILLED = "killed"
USER_ERROR = "user error"
CANCELLED = "cancelled"
UNKNOWN = "unknown"

OUTCOMES = {
    FINISHED: outcome.FINISHED,
    USER_ERROR: outcome.USER_ERROR,
    GPU_OUT_OF_MEMORY: outcome.USER_ERROR,
    INFRASTRUCTURE: outcome.INFRASTRUCTURE,
    NODE_FAILURE: outcome.INFRASTRUCTURE,
}
"""The outcome of an attempt that left none, by its cause; after all others it is KILLED."""
SLURM_RETURNS = frozenset({PREEMPTION, REQUEUED, NODE_FAILURE})
"""After these Slurm starts the job again by itself, unless the site cancels what it preempts."""
OF_THE_CLUSTER = frozenset({INFRASTRUCTURE, NODE_FAILURE, PREEMPTION, REQUEUED})
"""An attempt that these kept from its task does not count as one without progress."""
OF_A_NODE = frozenset({INFRASTRUCTURE, NODE_FAILURE})
"""After these the node at fault is left out of the next attempts."""
PAUSED = frozenset({INFRASTRUCTURE})
"""After these, where no node is at fault, the next attempt waits: other nodes would fare no better."""
NOBODYS_ERROR = frozenset({KILLED, TIME_LIMIT, PREEMPTION, REQUEUED, NODE_FAILURE, HANG, OUT_OF_MEMORY})
"""A run that had saved and may not come back after one of these counts as killed, not as failed."""
OF_MEMORY = (GPU_OUT_OF_MEMORY, OUT_OF_MEMORY)
"""Causes that less work at a time would avoid."""
RETRY_OPTIONS = {OUT_OF_MEMORY: " --more-memory 1.5", TIME_LIMIT: " --more-time 2"}
"""What `slurmopt retry` needs after these."""


@dataclass(kw_only=True)
class Budgets:
    """How often a run comes back after each cause; null is without limit, as long as it makes progress."""

    time_limit: int | None = None
    """The time limit was near."""

    preemption: int | None = None
    """A job of higher priority took the nodes."""

    requeued: int | None = None
    """An administrator requeued the job."""

    asked: int | None = None
    """The training requested it: `Requeue`, exit status 75, the requeue file."""

    node_failure: int | None = 10
    """A node failed, or lost its network."""

    hang: int | None = 3
    """No rank made a step for `restart.hang_after`."""

    infrastructure: int | None = 5
    """NCCL, CUDA, ECC, the network, a file system, a node that failed its health check."""

    killed: int | None = 3
    """A rank was killed by an unknown sender."""

    unknown: int | None = 3
    """The cause of the end is unknown."""

    out_of_memory: int | None = 0
    """The memory of the host was not sufficient, and would not be in the next attempt. Use `slurmopt retry RUN
    --more-memory 1.5`."""

    gpu_out_of_memory: int | None = 0
    """The memory of the GPU was not sufficient."""

    user_error: int | None = 0
    """The training raised an exception, or its command failed."""


def key(cause: str) -> str:
    """The cause as a key of `restart.budgets`: "GPU out of memory" is gpu_out_of_memory."""
    return cause.lower().replace(" ", "_")


_OF_PATTERNS = (INFRASTRUCTURE, USER_ERROR, OUT_OF_MEMORY, GPU_OUT_OF_MEMORY, NODE_FAILURE, HANG)
_BY_KEY = {key(cause): cause for cause in _OF_PATTERNS}
PATTERN_KEYS = tuple(_BY_KEY)
"""The causes that the owner's own `restart.patterns` may tell."""

# slurmstepd: error: *** JOB 12 ON node1 CANCELLED AT 2026-11-21T12:00:00 DUE TO TIME LIMIT ***
_ENDED = re.compile(r"\*\*\* JOB \S+ ON (\S+) CANCELLED AT \S+(?: DUE TO ([A-Z ]+))?")
_SLURM_SAYS = {
    "TIME LIMIT": TIME_LIMIT,
    "PREEMPTION": PREEMPTION,
    "JOB REQUEUE": REQUEUED,
    "NODE FAILURE": NODE_FAILURE,
    "FAILED NODE": NODE_FAILURE,
}
_SLURM_STATES = {
    "TIMEOUT": TIME_LIMIT,
    "DEADLINE": TIME_LIMIT,
    "PREEMPTED": PREEMPTION,
    "NODE_FAIL": NODE_FAILURE,
    "BOOT_FAIL": NODE_FAILURE,
    "OUT_OF_MEMORY": OUT_OF_MEMORY,
    "CANCELLED": CANCELLED,
    "REVOKED": CANCELLED,
}

_TEXTS = (
    (
        GPU_OUT_OF_MEMORY,
        r"(cuda|hip|xpu|gpu)( error:)? out of memory|torch\.(cuda\.)?OutOfMemoryError|CUBLAS_STATUS_ALLOC",
    ),
    (
        OUT_OF_MEMORY,
        r"oom[_-]kill|\bOut Of Memory\b|^MemoryError|DefaultCPUAllocator: (can't|not enough)|cannot allocate memory"
        r"|std::bad_alloc|Exceeded (job|step) memory limit|numpy[.\w]*_ArrayMemoryError|Unable to allocate .*iB",
    ),
    (HANG, r"watchdog caught collective operation timeout|timed out waiting \d+ ?ms for (recv|send) operation"),
    (USER_ERROR, r"device-side assert triggered|ncclInvalid(Usage|Argument)|Duplicate GPU detected"),
    (NODE_FAILURE, r"srun: error: Node failure on|node .* has failed|Timed out waiting for job step to complete"),
    (
        INFRASTRUCTURE,
        r"uncorrectable (ecc|nvlink)|fallen off the bus|devices? ?(\(s\))? ?(unavailable|is/are busy)|NVRM: Xid"
        r"|system not yet initialized|no cuda-capable device is detected|CUDA driver (initialization failed|error)"
        r"|stale file handle|transport endpoint is (not connected|shutdown)|input/output error|remote I/O error"
        r"|No space left on device|Disk quota exceeded"
        r"|nccl(System|Internal)Error|unhandled (system|cuda) error|CUDA error: (an illegal|unspecified) launch failure"
        r"|libfabric|fi_(send|recv|read|write)\w* failed|DistBackendError|Failed to initialize NVML"
        r"|failed to listen on any .*\bEADDRINUSE\b|\bRanksLost: |gloo/transport/\S+:\d+\] |Too many open files",
    ),
)  # fmt: skip
"""A cause → what an error or a log says then, in any case; the first that matches counts."""
_BUILT_IN = tuple((cause, re.compile(pattern, re.IGNORECASE | re.MULTILINE)) for cause, pattern in _TEXTS)


# srun: error: node2: task 1: Out Of Memory, whole line: what else stands in a log may be anybody's words.
# slurmstepd of 26.05 puts the time where its name was.
_SLURM_LINES = tuple(
    (
        cause,
        re.compile(rf"^(?:(?:srun|slurmstepd)\S*:|\[[\d.:T-]+\]) error: (?:{pattern})", re.IGNORECASE | re.MULTILINE),
    )
    for cause, pattern in (
        (OUT_OF_MEMORY, r"\S+: tasks? \S+: Out Of Memory\s*$|Detected \d+ oom[-_ ]kill|.*exceeded .*memory limit"),
        (NODE_FAILURE, r"Node failure on|.*node .* has failed|Timed out waiting for job step to complete"),
    )
)
_NO_SPACE = re.compile(
    r"(?:No space left on device|Disk quota exceeded)(?: \(\d+\))?\W*$", re.IGNORECASE | re.MULTILINE
)
_LAST_LINES = 5
"""Behind such a line dd, for one, has three more."""
_OWN_LINES = re.compile(r"^slurmopt: .*$", re.MULTILINE)
"""They ask whether memory was short where a process was killed: no evidence that it was."""

# As the last line of a traceback. The second is torchrun's: it was told to end.
_LEFT = re.compile(r"^(?:\[\S+\]:? ?)?(?:\w+\.)*(?:Requeue(?::|$)|SignalException: Process \d+ got signal)")


def of_text(text: str | None, patterns: Mapping[str, str] | None = None) -> str | None:
    """The cause that an error tells of, None where no table knows it.

    `patterns`: the user's own, a regular expression → a key such as `gpu_out_of_memory`; they win.
    """
    if not text:
        return None
    return _of_patterns(text, patterns) or next((cause for cause, words in _BUILT_IN if words.search(text)), None)


def of_slurm_lines(text: str, patterns: Mapping[str, str] | None = None) -> str | None:
    """The cause that srun's and slurmstepd's own lines in a log name: memory, or a node. Other lines are ignored, since
    a training also logs errors that it recovers from. The user's own `patterns` are searched in all lines, and win."""
    return _of_patterns(text, patterns) or next((cause for cause, line in _SLURM_LINES if line.search(text)), None)


def of_log(text: str, patterns: Mapping[str, str] | None = None) -> str | None:
    """The cause that the end of a log tells of, where its last traceback told none: a program that is not Python says
    that it lacks memory, or last of all that a disk is full; words of broken machines may be about a mistyped path."""
    program_lines = _OWN_LINES.sub("", text)
    cause = of_text(program_lines)
    if cause not in OF_MEMORY:
        cause = INFRASTRUCTURE if _NO_SPACE.search("\n".join(program_lines.splitlines()[-_LAST_LINES:])) else None
    return of_slurm_lines(text, patterns) or cause


def left_when_told(error: str | None) -> bool:
    """Whether an error, or the last line of its traceback, says that the process left because it was told to end, or
    asked to be started again: some launchers and libraries make exit status 1 of that."""
    lines = (error or "").strip().splitlines()
    return bool(lines) and _LEFT.match(lines[-1]) is not None


def _of_patterns(text: str, patterns: Mapping[str, str] | None) -> str | None:
    return next((_BY_KEY[name] for pattern, name in (patterns or {}).items() if re.search(pattern, text)), None)


def of_job_log(text: str) -> str | None:
    """Why Slurm ended the job, by slurmstepd's last line in `text`, the job's log from the start of an attempt on.

    A line without a reason is scancel's. None where there is no such line. Its time stamp is not looked at: it is in
    the time zone of the node's slurmd, which need not be the job's.
    """
    endings = list(_ENDED.finditer(text))
    return _of_reason(endings[-1][2]) if endings else None


def _of_reason(reason: str | None) -> str:
    if reason is None:
        return CANCELLED
    return next((cause for words, cause in _SLURM_SAYS.items() if reason.strip().startswith(words)), UNKNOWN)


def failed_node(log: str) -> str | None:
    """The node that srun says has failed. One that comes back soon may still get what Slurm had to say to it."""
    nodes = re.findall(r"^srun: error: Node failure on (\S+)", log, re.MULTILINE)
    return nodes[-1] if nodes else None


def of_state(state: str) -> str | None:
    """Slurm's long word for a job's end, such as NODE_FAIL or "CANCELLED by 0"; None for others."""
    return _SLURM_STATES.get((state.split() or [""])[0].rstrip("+").upper())
