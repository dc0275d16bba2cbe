"""Waits for a sweep in a Hydra application: polls the journals of its points, and squeue less often."""

from __future__ import annotations

import os
import shlex
import sys
import time

from hydra.core.utils import JobReturn, JobStatus

from slurmopt.errors import JobError
from slurmopt.grid.records import Records
from slurmopt.hydra_app import returns
from slurmopt.run_folder.sweep_layout import SweepFolder
from slurmopt.runs.logs.follow import Note
from slurmopt.runs.status.state import ALIVE
from slurmopt.sweeps.status.point_states import Point, SweepStates
from slurmopt.sweeps.status.query import sweep_states
from slurmopt.sweeps.submit import backlog

_POLL = 0.5
"""The minimum polling interval in seconds."""
_SHARE = 4.0
"""The minimum polling interval as a multiple of the time that a poll takes, which grows with the number of points."""
_LAG = 10.0
"""The delay in seconds before a state is read again, because a shared file system may show the last writes of a job
late."""
_SAY = 30.0
"""The interval of progress lines in seconds if standard error is not a terminal."""


def wait(sweep: SweepFolder, jobs: list[list[str]]) -> list[JobReturn]:
    """Waits until all jobs have ended and returns their values. Ctrl-C ends the waiting with exit status 130; the jobs
    continue."""
    try:
        states = _until_over(sweep)
    except KeyboardInterrupt:
        print(f"\nslurmopt: interrupted; the jobs continue; {commands(sweep)}", file=sys.stderr, flush=True)
        raise SystemExit(130) from None
    records = Records(sweep)
    returned = [_returned(states, number, words, records) for number, words in enumerate(jobs)]
    failed = sum(job.status is JobStatus.FAILED for job in returned)
    if failed:
        print(f"slurmopt: {failed} of {len(returned)} jobs failed; {commands(sweep)}", file=sys.stderr, flush=True)
    return returned


def _until_over(sweep: SweepFolder) -> SweepStates:
    progress, doubted = Progress(), False
    while True:
        began = time.monotonic()
        states = sweep_states(sweep)
        counts = states.counts()
        alive = any(word in counts for word in ALIVE)
        pause = max(_POLL, _SHARE * (time.monotonic() - began))
        if not alive and "unsubmitted" in counts:
            backlog.main([str(sweep.path)])  # no array task is left to submit it
            pause = _LAG
        elif not alive and "unknown" not in counts:
            if doubted or "lost" not in counts:
                progress.end()
                return states
            doubted, pause = True, _LAG
        progress.show(counts)
        time.sleep(pause)


class Progress:
    """A line with the number of jobs in each state, rewritten in place on a terminal, else printed at intervals."""

    def __init__(self) -> None:
        self._note = Note()
        self._next = 0.0

    def show(self, counts: dict[str, int]) -> None:
        if sys.stderr.isatty() or time.monotonic() >= self._next:
            self._next = time.monotonic() + _SAY
            self._note.show(", ".join(f"{count:,} {word}" for word, count in counts.items()))

    def end(self) -> None:
        self._note.clear()


def _returned(states: SweepStates, number: int, words: list[str], records: Records) -> JobReturn:
    """Returns the JobReturn of a point; a failed one if its last attempt has not written any."""
    point = states.of(number)
    try:
        left = returns.of_point(records, number)
    except (JobError, OSError) as error:  # the other jobs are still returned
        return JobReturn(overrides=words, status=JobStatus.FAILED, _return_value=JobError(str(error)))
    if left is None or left.attempt != point.attempt or (left.job.status is JobStatus.COMPLETED) != _well(point):
        return _without_word(states, point, words)
    if left.lost is not None:
        print(f"slurmopt: job {number}: {left.lost}", file=sys.stderr, flush=True)
    if left.trace is not None and hasattr(left.job._return_value, "add_note"):  # Python 3.11
        left.job._return_value.add_note(f"\nIn its job, {_place(states, number)}:\n{left.trace}")
    return left.job


def _well(point: Point) -> bool:
    return point.state == "finished"


def _without_word(states: SweepStates, point: Point, words: list[str]) -> JobReturn:
    """Returns a JobReturn for a job that was killed or lost, or whose function raised SystemExit."""
    if _well(point):
        return JobReturn(overrides=words, status=JobStatus.COMPLETED)
    why = point.error or point.detail or point.cause or "unknown cause"
    error = JobError(f"{_place(states, point.number)} {point.state}: {why}")
    return JobReturn(overrides=words, status=JobStatus.FAILED, _return_value=error)


def _place(states: SweepStates, number: int) -> str:
    return f"point {number} of {states.sweep.path}"


def commands(sweep: SweepFolder) -> str:
    """Returns the commands for the sweep, with its path relative to the current directory."""
    path = os.path.relpath(sweep.path)
    word = shlex.quote(path if not path.startswith("..") else str(sweep.path))
    return f"slurmopt status {word} · slurmopt results {word} · slurmopt cancel {word}"
