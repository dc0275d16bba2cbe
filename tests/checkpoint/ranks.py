"""Runs a function on several real ranks over gloo: forked from one process that has imported torch once."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import time
import traceback
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from slurmopt.job.facts.rank_facts import RankFacts
from slurmopt.job.worker.current_run import CurrentRun
from slurmopt.run_folder.layout import RunFolder

_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload(
    ["pytest", "numpy", "torch._dynamo", "torch.distributed.checkpoint", "slurmopt.checkpoint.checkpointer"]
)


@dataclass
class Outcome:
    """What became of one rank. `error` is the traceback of what it raised; `status` its exit code, -9 after SIGKILL."""

    value: Any
    error: str | None
    status: int | None
    log: str

    @property
    def last_line(self) -> str:
        """The error as its reader sees it first."""
        return (self.error or "").strip().rpartition("\n")[2]


def on_ranks(
    function: Callable[..., Any],
    folder: Path,
    *arguments: Any,
    nodes: list[str],
    attempt: int = 0,
    timeout: float = 240,
) -> list[Outcome]:
    """Calls `function(run, *arguments)` of a test module on as many ranks as `nodes` has names; each rank is a process
    group of its own, and killed with it after `timeout` seconds. Whether a rank raised is for the caller to see."""
    meeting = folder.parent / f"meeting-{uuid.uuid4().hex}"
    meeting.parent.mkdir(parents=True, exist_ok=True)
    started = []
    for rank, facts in enumerate(_facts(nodes)):
        ours, theirs = _SERVER.Pipe(duplex=False)
        log = meeting.with_name(f"{meeting.name}.log-{rank}")
        run = CurrentRun(RunFolder(folder), attempt, facts)
        process = _SERVER.Process(target=_rank_main, args=(function, run, arguments, str(meeting), str(log), theirs))
        process.start()
        theirs.close()
        started.append((process, ours, log))
    deadline = time.monotonic() + timeout
    return [_outcome(process, ours, log, deadline) for process, ours, log in started]


def alone(folder: Path, attempt: int = 0) -> CurrentRun:
    """The run as a world of one process sees it."""
    return CurrentRun(RunFolder(folder), attempt, _facts(["here"])[0])


def _facts(nodes: list[str]) -> list[RankFacts]:
    names = list(dict.fromkeys(nodes))
    return [
        RankFacts(
            rank=rank,
            local_rank=nodes[:rank].count(node),
            world_size=len(nodes),
            local_world_size=nodes.count(node),
            node_rank=names.index(node),
            nodes=len(names),
            node=node,
            master_addr="127.0.0.1",
            master_port=0,
        )
        for rank, node in enumerate(nodes)
    ]


def _outcome(process: Any, answers: Connection, log: Path, deadline: float) -> Outcome:
    value, error = None, "the rank had to be killed: it was not done in time"
    try:
        if answers.poll(max(0.0, deadline - time.monotonic())):
            value, error = answers.recv()
    except EOFError:
        error = "the rank ended without a report"
    process.join(max(1.0, deadline - time.monotonic()))
    with contextlib.suppress(ProcessLookupError):  # its writer ends with it, as on a node that is lost
        os.killpg(process.pid, signal.SIGKILL)
    process.join()
    return Outcome(value, error, process.exitcode, log.read_text() if log.exists() else "")


def _rank_main(
    function: Callable[..., Any], run: CurrentRun, arguments: Any, meeting: str, log: str, answers: Connection
) -> None:
    os.setpgid(0, 0)
    descriptor = os.open(log, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    try:
        if run.rank.world_size > 1:
            dist.init_process_group(
                "gloo",
                init_method=f"file://{meeting}",
                rank=run.rank.rank,
                world_size=run.rank.world_size,
                timeout=timedelta(seconds=90),
            )
        answers.send((function(run, *arguments), None))
    except BaseException:  # noqa: BLE001 - whatever it was, the test is to see it
        answers.send((None, traceback.format_exc()))
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    # No destroy_process_group: a rank that failed must not wait there for the others.


def writer_of(pid: int) -> int:
    """The process id of the youngest writer that process `pid` has started."""
    return max(writers_of(pid))[1]


def writers_of(parent: int) -> list[tuple[int, int]]:
    """The start (clock ticks since boot; process ids wrap around at 32,768) and the process id of each that lives."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                words = (entry / "cmdline").read_bytes().split(b"\0")
                state, owner, *rest = (entry / "stat").read_text().rpartition(")")[2].split()
                if b"slurmopt.checkpoint.writer.main" in words and int(owner) == parent and state != "Z":
                    found.append((int(rest[17]), int(entry.name)))
    return found
