"""Lists this user's jobs with squeue: one call serves all commands for 15 seconds."""

from __future__ import annotations

import os
import time
from dataclasses import astuple
from typing import Any

from slurmopt.errors import SlurmError, SlurmRefused, SlurmUnreachable
from slurmopt.slurm import client
from slurmopt.slurm.cluster import cache
from slurmopt.slurm.environment import clean_environment
from slurmopt.slurm.queue_entry import Queue, QueueEntry, without_placeholder

MAX_AGE = 15.0
"""Seconds for which an answer is used."""

_OLD_AGE = 60.0
"""Seconds for which an answer is used while another process asks."""
_TIMEOUT = 30.0

# Without a size squeue cuts at 20 characters; with 0 it never does. In the order of QueueEntry's fields.
_FIELDS = (
    "JobArrayID", "State", "Reason", "NodeList", "StartTime", "TimeUsed", "TimeLimit", "RestartCnt", "BatchHost",
    "Comment", "Command", "EndTime", "Requeue",
)  # fmt: skip


def queue(fresh: bool = False) -> Queue:
    """This user's jobs, including those that ended a few minutes ago. At most 15 s old; with `fresh` Slurm is asked
    now.

    Raises squeue's failure. Failures are cached for as long, so that a slurmctld in trouble is not asked more often.
    """
    if fresh:
        return _ask()
    stored = _stored(MAX_AGE)
    if stored is not None:
        return stored
    with cache.lock("queue", 0) as is_ours:
        if is_ours:
            return _stored(MAX_AGE) or _ask()
    stored = _stored(_OLD_AGE)
    return _wait() if stored is None else stored


def _wait() -> Queue:
    """Waits for the answer of another process, as there is no older one. That process may have been stopped by
    Ctrl-Z."""
    with cache.lock("queue", _TIMEOUT + 5):
        stored = _stored(MAX_AGE)
        return _ask() if stored is None else stored


def _stored(max_age: float) -> Queue | None:
    cached = cache.read("queue", max_age)
    if cached is None:
        return None
    value, age = cached
    try:
        if "error" in value:
            raise _ERRORS[value["error"]](value["message"])
        answer = Queue({row[0]: QueueEntry(*row) for row in value["jobs"]})
    except (TypeError, KeyError, IndexError):
        return None  # left by another version, or damaged
    answer.age = age
    return answer


_ERRORS: dict[str, type[SlurmError]] = {error.__name__: error for error in (SlurmUnreachable, SlurmRefused)}


def _ask() -> Queue:
    asked_at = time.time()
    try:
        entries = _squeue()
    except (SlurmUnreachable, SlurmRefused) as error:
        # From now on: waiting for it took longer than an answer is shared for.
        cache.write("queue", {"error": type(error).__name__, "message": str(error)}, time.time())
        raise
    cache.write("queue", {"jobs": [astuple(entry) for entry in entries]}, asked_at)
    return Queue({entry.job_id: entry for entry in entries})


def _squeue() -> list[QueueEntry]:
    # Job names and comments may hold anything, newlines too, but not a word drawn after they were written.
    field, record = (f"<{os.urandom(8).hex()}>" for _ in range(2))
    columns = ",".join(f"{name}:0{record if name == _FIELDS[-1] else field}" for name in _FIELDS)
    argv = ["squeue", "--me", "--states=all", "--noheader", "--Format", columns]
    # Without the variable squeue cuts the indices of an array at 64 characters.
    environment = {**clean_environment(os.environ), "SLURM_BITSTR_LEN": "0"}
    output = client.run(argv, _TIMEOUT, environment, time_format="%s")
    return parse_queue(output, field, record)


def parse_queue(output: str, field: str, record: str) -> list[QueueEntry]:
    """Parses squeue's output, whose fields end with `field` and jobs with `record`."""
    rows = [row.split(field) for row in output.split(record)]
    return [_entry(row) for row in rows if len(row) == len(_FIELDS)]


def _entry(row: list[str]) -> QueueEntry:
    values: list[Any] = [without_placeholder(value) for value in row]
    job_id, state, reason, nodes, start, used, limit, restarts, host, comment, command, end, requeue = values
    return QueueEntry(
        job_id=job_id.split("\n")[-1],  # the newline of the job before, or a line "CLUSTER: name"
        state=state,
        reason="" if reason == "None" else reason,
        nodes=nodes,
        start=float(start) if start.isdigit() else None,
        time_used=clock_seconds(used),
        time_limit=clock_seconds(limit),
        restarts=int(restarts) if restarts.isdigit() else 0,
        batch_host=host,
        comment=comment,
        command=command,
        end=float(end) if end.isdigit() else None,
        requeue={"0": False, "1": True}.get(requeue),
    )


def clock_seconds(text: str) -> int | None:
    """Seconds of "1-02:03:04", "2:03:04" or "3:04"; None of "UNLIMITED", "INVALID" and the like."""
    days, _, clock = text.rpartition("-")
    parts = clock.split(":")
    if not all(part.isdigit() for part in parts) or not (days or "0").isdigit():
        return None
    hours, minutes, secs = ([0, 0, 0] + [int(part) for part in parts])[-3:]
    return ((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + secs
