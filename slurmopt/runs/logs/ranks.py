"""Prints the logs of a run's ranks, as the ranks wrote them."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, NamedTuple

from slurmopt import command_output
from slurmopt.errors import RunError, one_line, plain_lines
from slurmopt.grid.records import readable
from slurmopt.run_folder.layout import RunFolder
from slurmopt.runs.logs.follow import stream
from slurmopt.runs.status.errors_page import report
from slurmopt.runs.status.failure import Failure, failure
from slurmopt.runs.status.query import Status, gather
from slurmopt.runs.tail import Lines, Tail


def show(run: RunFolder, rank: int | None, attempt: int | None) -> None:
    """Prints the log of `rank` (None: of all ranks) in `attempt` (None: the latest)."""
    is_empty = True
    for piece in read(run, rank, attempt):
        sys.stdout.write(piece)
        is_empty = is_empty and not piece
    if is_empty:
        command_output.warn(f"the log of {one_line(f'{run.name}/{run.id}')} is empty")


def read(run: RunFolder, rank: int | None, attempt: int | None) -> Iterator[str]:
    """The log of `rank` (None: of all ranks) in `attempt` (None: the latest), in pieces. RunError where there is
    none."""
    logs = _logs(_status(run), rank, attempt)
    prefixes = ["" if rank is not None or log.rank is None else f"[rank {log.rank}] " for log in logs]
    return _pieces(
        [
            Lines(log.path, prefix, log.is_own) if prefix else Tail(log.path, log.is_own)
            for log, prefix in zip(logs, prefixes, strict=True)
        ]
    )


def as_dicts(run: RunFolder, rank: int | None, attempt: int | None) -> list[dict[str, Any]]:
    """What `--json` prints: each log as a whole."""
    return [
        {"rank": log.rank, "file": str(log.path), "text": "".join(_pieces([Tail(log.path, log.is_own)]))}
        for log in _logs(_status(run), rank, attempt)
    ]


def show_errors(run: RunFolder, attempt: int | None) -> None:
    """Prints the first failed rank of `attempt` (None: the latest): its traceback and the end of its log."""
    print(errors(run, attempt))


def failure_dict(run: RunFolder, attempt: int | None) -> dict[str, Any]:
    """What `--errors --json` prints of a run: the failed rank's own account, null where there is none, and the page."""
    status = _status(run)
    latest = status.journal.attempt.number if status.journal.attempt else None
    number = attempt if attempt is not None else latest
    failed = failure(status.folder, number) if number is not None else None
    own = asdict(failed) if failed is not None else dict.fromkeys(field.name for field in fields(Failure))
    text = report(status, attempt)
    return {"attempt": number, **own, "text": text}


def errors(run: RunFolder, attempt: int | None) -> str:
    """The first failed rank of `attempt` (None: the latest): its traceback and the end of its log."""
    status = _status(run)
    text = report(status, attempt)
    return text if status.owner is None else plain_lines(text)


def follow(run: RunFolder, rank: int | None, attempt: int | None) -> None:
    """Prints the log of `rank` (None: of all ranks) as it grows, until the run has ended. RunError where `attempt` is
    not the latest."""
    run = readable(run)
    if attempt is not None and attempt < max(run.attempts(), default=0):
        raise RunError(f"attempt {attempt} is over; leave out --follow to read its log")
    stream(run, sys.stdout, rank)


def _status(run: RunFolder) -> Status:
    return gather([run], details=True)[0][0]


class _Log(NamedTuple):
    """One log; `rank` is None for the job's own. `is_own`: whether the run is this user's."""

    rank: int | None
    path: Path
    is_own: bool


def _logs(status: Status, rank: int | None, attempt: int | None) -> list[_Log]:
    """The logs of the ranks; the job's own log where no rank has one."""
    folder = readable(status.folder)  # Slurm has been asked meanwhile
    attempts, is_own = folder.attempts(), status.owner is None
    if attempt is not None and attempt not in attempts:
        raise RunError(f"{status.label} has no attempt {attempt}; valid: {_listed(attempts)}")
    shown = attempt if attempt is not None else max(attempts, default=None)
    ranks = folder.ranks_with_logs(shown) if shown is not None else []
    if shown is None or not ranks:
        return [_Log(None, _job_log(status), is_own)]
    if rank is not None and rank not in ranks:
        raise RunError(f"attempt {shown} of {status.label} has no log of rank {rank}; valid: {_listed(ranks)}, all")
    return [_Log(number, folder.rank_log(shown, number), is_own) for number in ranks if rank in (None, number)]


def _listed(numbers: list[int]) -> str:
    if len(numbers) > 8:
        return f"{numbers[0]} to {numbers[-1]}"
    return ", ".join(map(str, numbers)) or "none yet"


def _job_log(status: Status) -> Path:
    if (path := job_log(status)) is None:
        why = f" ({status.detail})" if status.detail else ""
        hint = f"; wait for it: slurmopt logs {shlex.quote(status.label)} --follow" if status.alive else ""
        raise RunError(f"{status.label} has no log: it is {status.state}{why}{hint}")
    command_output.warn(f"no rank has a log; this is the job's own, {one_line(str(path))}")
    return path


def job_log(status: Status) -> Path | None:
    """The log of the latest job's batch shell and slurmstepd; None where there is none."""
    path = status.folder.job_log(status.journal.job) if status.journal.job else None
    return path if path is not None and path.exists() else None


def _pieces(logs: Iterable[Tail | Lines]) -> Iterator[str]:
    for log in logs:
        yield from log.read()
        yield log.rest()
