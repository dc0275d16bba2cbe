"""Appends to and reads the run's journal, `events.jsonl`: one JSON object a line.

Every line has `time` (seconds since the epoch) and `event`; `attempt` and `rank` where they apply. The words:

    created     the launch made the run folder              name, id, cwd
    submitting  a submission is about to be tried           token, backend
    submitted   it was accepted                             token, backend, job; host, pid, pid_started locally
    submit-failed  it was not                               token, backend, reason
    attempt     the batch shell started                     attempt, job, nodes, log_from; gpus (of its node) and cpus
                                                            (as SLURM_JOB_CPUS_PER_NODE), where Slurm tells
    waits       a health check found what may pass          attempt, rank, node, reason, until
    signal      the batch shell got a signal                attempt, signal
    hang        no rank makes a step any more               attempt, rank, node, step, seconds
    requeue     the supervisor asks for another attempt     attempt, job
    requeue-refused  Slurm said no, or (`by`: batch shell) the folder was swapped  attempt, job, reason
    end         the verdict on an attempt                   attempt, outcome, exit_code, rank, node, error, cause, next,
                                                            reason, step, durable, mark, began; pause, where the next
                                                            one is to wait; by, where it came late; time_spent, of
                                                            `slurmopt.run_folder.time_spent`
    node-excluded  left out of the next attempts            attempt, nodes, until, reason
    retry       the user asked: budgets count from here     changes
    notified    the owner was told of the run's end         attempt, how
    notify-failed  that did not work                        attempt, how, reason
    then-failed what follows a sweep could not be launched  reason
    cancel      the user cancelled the run                  job
    cancel-failed  that did not reach the job               job
    checkpoint  one is durable on a tier                    attempt, step, tier, checkpoint, bytes, seconds
    checkpoint-failed  a save to a tier failed              attempt, step, tier, checkpoint, reason
    checkpoint-damaged  one was found broken and set aside  attempt, checkpoint, tier, reason
    checkpoint-pruned  these were deleted as `keep` says    attempt, tier, checkpoints
    restored    the training goes on from one               attempt, step, tier, checkpoint
    point       in an array task's journal: one of its points started or ended  point, state, attempt; of an end also
                                                            outcome, cause, next, error, seconds, step, metrics, result

`cause` is a word of `slurmopt.restart.causes`. `next` tells who brings the run back: "requeue", the batch shell;
"slurm", Slurm itself; "submit", a fresh submission; null: it has ended. `step` is the last one reported, `durable` the
newest checkpointed one, `mark` the time of the newest file of `task.checkpoints`. `began` is false where no rank came
to start the task; `pause` are the seconds until the next attempt may start. An attempt that died without a word gets
its `end` from the next one or from `slurmopt tend`: `by` says so.

A tier is `scratch`, `shared` or `s3`; null where a save failed before it came to any.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from slurmopt.run_folder.access.files import TooLarge, next_data, open_append, open_regular

OF_CHECKPOINTS = b'"event": "checkpoint'
"""In lines that a long run has by the million, and that say nothing of its state."""
_LOCK_TRIES = 50
_LARGEST = 4 << 30
"""Bytes. No journal is as large."""
_MOST = 64 << 20
"""Bytes of events that are kept in memory at once. A long run has more events on checkpoints."""
_PIECE = 4 << 20
_LONGEST = 16 << 20


def append(path: Path, event: str, **fields: Any) -> None:
    """Appends one line. Concurrent writers on several nodes never tear a line.

    One `write` to a file opened with O_APPEND is atomic on local file systems and Lustre. NFS clients can overwrite
    each other, so a lock is taken too if the file system has locks. A lock held for over a second belongs to a dead
    node and is ignored.
    """
    line = json.dumps({"time": round(time.time(), 3), "event": event, **fields}, default=str) + "\n"
    descriptor = open_append(path)
    try:
        with locked(descriptor):
            if torn(descriptor):  # a full disk or a crash cut the last line: keep ours apart from it
                line = "\n" + line
            data = line.encode()
            if os.write(descriptor, data) < len(data):  # a part of it filled the disk: the line is lost, and torn
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def locked(descriptor: int) -> Iterator[None]:
    """Holds the lock of an open file until the file is closed, if the file system has locks."""
    for _ in range(_LOCK_TRIES):
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EAGAIN):  # no locks on this file system
                break
            time.sleep(0.02)
    yield  # closing the descriptor releases the lock


def torn(descriptor: int) -> bool:
    """Whether the last line of a file lacks its newline."""
    end = os.lseek(descriptor, 0, os.SEEK_END)
    return end > 0 and os.pread(descriptor, 1, end - 1) != b"\n"


def read(path: Path, *words: str) -> list[dict[str, Any]]:
    """All events, or those whose word is one of `words`, oldest first. Lines that are no JSON objects (torn or foreign
    ones) are skipped. Raises OSError; TooLarge if they do not fit into the limit on memory."""
    if not words:
        return list(parse(lines(path)))
    pattern = re.compile(b'"(?:' + b"|".join(re.escape(word.encode()) for word in words) + b')"')
    found = (
        line for block in blocks(path) if pattern.search(block) for line in block.splitlines() if pattern.search(line)
    )
    return [event for event in parse(few(found, path)) if event["event"] in words]


def lines(path: Path) -> Iterator[bytes]:
    """The raw lines, oldest first, with a few MiB in memory at a time. Raises OSError."""
    for block in blocks(path):
        yield from block.splitlines()


def blocks(path: Path) -> Iterator[bytes]:
    """The same in blocks of some thousand lines. Lines over 16 MiB are cut. Raises OSError."""
    try:
        file = open_regular(path, _LARGEST)
    except FileNotFoundError:
        return
    rest = b""
    with file:
        while piece := file.read(_PIECE):
            if not piece.strip(b"\0"):  # it may go on like that for a terabyte
                file.seek(next_data(file.fileno(), file.tell()))
            whole, end, tail = piece.rpartition(b"\n")
            if end:
                yield rest + whole
                rest = tail
            elif len(rest) < _LONGEST:
                rest += tail
    if rest:
        yield rest


def without_checkpoints(path: Path) -> Iterator[bytes]:
    """The lines but for those on checkpoints. OSError; TooLarge where the others are more than any run has."""
    of_blocks = (block.splitlines() for block in blocks(path))
    return few((line for block in of_blocks for line in block if OF_CHECKPOINTS not in line), path)


def few(lines: Iterable[bytes], path: Path) -> Iterator[bytes]:
    """The lines, for callers that keep them. Raises TooLarge if they are larger than those of any run."""
    size = 0
    for line in lines:
        size += len(line)
        if size > _MOST:
            raise TooLarge(errno.EFBIG, f"its events have more than {_MOST >> 20} MiB", str(path))
        yield line


def parse(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """The events among `lines`."""
    for line in lines:
        with contextlib.suppress(ValueError, RecursionError):
            event = json.loads(line)
            if isinstance(event, dict) and "event" in event:
                yield event
