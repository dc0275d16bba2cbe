"""`slurmopt logs`: what the ranks wrote, as they wrote it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from slurmopt.errors import RunError, one_line, plain_lines
from slurmopt.grid.records import readable
from slurmopt.run_folder.layout import RunFolder
from slurmopt.runs import options
from slurmopt.runs.find import find
from slurmopt.runs.logs.follow import stream
from slurmopt.runs.status.failure import report
from slurmopt.runs.status.query import Status, gather
from slurmopt.runs.tail import Lines, Tail


def main(argv: list[str]) -> int:
    """The command; returns the exit status."""
    given = parser().parse_args(argv)
    return show(given, find(given.run, given.folder))


def show(given: argparse.Namespace, run: RunFolder) -> int:
    """Shows the logs of `run` that were asked for."""
    if given.errors:
        status = _status(run)
        told = report(status, given.attempt)
        print(told if status.owner is None else plain_lines(told))
        return 0
    if given.follow:
        return _follow(run, given)
    empty = True
    for piece in _pieces(_sources(_status(run), given.rank, given.attempt)):
        sys.stdout.write(piece)
        empty = empty and not piece
    if empty:
        print(f"slurmopt: the log of {one_line(f'{run.name}/{run.id}')} is empty", file=sys.stderr)
    return 0


def parser() -> argparse.ArgumentParser:
    """The options of `slurmopt logs`."""
    made = options.parser("logs", "What the ranks of a run wrote.")
    options.add_run(made)
    made.add_argument("--rank", type=_rank, default=0, metavar="N", help="which rank, or `all` (default: 0)")
    made.add_argument("--attempt", type=_natural, metavar="K", help="which attempt (default: the latest)")
    how = made.add_mutually_exclusive_group()
    how.add_argument("--follow", action="store_true", help="go on until the run has ended")
    how.add_argument("--errors", action="store_true", help="the first rank that failed: its traceback, its log's end")
    return made


def _natural(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise argparse.ArgumentTypeError(f"{text!r} is no number; valid: 0, 1, 2, …")
    return int(text)


def _rank(text: str) -> int | None:
    return None if text == "all" else _natural(text)


def _status(run: RunFolder) -> Status:
    return gather([run], details=True)[0][0]


def _follow(run: RunFolder, given: argparse.Namespace) -> int:
    run = readable(run)
    if given.attempt is not None and given.attempt < max(run.attempts(), default=0):
        raise RunError(f"attempt {given.attempt} is over; leave out --follow to read its log")
    stream(run, sys.stdout, given.rank)
    return 0


def _sources(status: Status, rank: int | None, attempt: int | None) -> list[Tail | Lines]:
    """The logs that were asked for; the job's own where no rank has one."""
    folder = readable(status.folder)  # Slurm has been asked meanwhile
    attempts, mine = folder.attempts(), status.owner is None
    if attempt is not None and attempt not in attempts:
        raise RunError(f"{status.label} has no attempt {attempt}; valid: {_listed(attempts)}")
    chosen = attempt if attempt is not None else max(attempts, default=None)
    ranks = folder.ranks_with_logs(chosen) if chosen is not None else []
    if chosen is None or not ranks:
        return [Tail(_job_log(status), mine)]
    if rank is None:
        return [Lines(folder.rank_log(chosen, one), f"[rank {one}] ", mine) for one in ranks]
    if rank not in ranks:
        raise RunError(f"attempt {chosen} of {status.label} has no log of rank {rank}; valid: {_listed(ranks)}, all")
    return [Tail(folder.rank_log(chosen, rank), mine)]


def _listed(numbers: list[int]) -> str:
    if len(numbers) > 8:
        return f"{numbers[0]} to {numbers[-1]}"
    return ", ".join(map(str, numbers)) or "none yet"


def _job_log(status: Status) -> Path:
    if (path := job_log(status)) is None:
        why = f" ({status.detail})" if status.detail else ""
        hint = f"; wait for it: slurmopt logs {status.label} --follow" if status.alive else ""
        raise RunError(f"{status.label} has no log: it is {status.state}{why}{hint}")
    print(f"slurmopt: no rank has a log; this is the job's own, {one_line(str(path))}", file=sys.stderr)
    return path


def job_log(status: Status) -> Path | None:
    """What the latest job's batch shell and slurmstepd said, if anything."""
    path = status.folder.job_log(status.journal.job) if status.journal.job else None
    return path if path is not None and path.exists() else None


def _pieces(sources: list[Tail | Lines]) -> Iterator[str]:
    for source in sources:
        yield from source.read()
        yield source.rest()
