"""Follows a run's log as it grows, across restarts, until the run has ended."""

from __future__ import annotations

import sys
import time
from typing import TextIO

from slurmopt.errors import RunError
from slurmopt.grid.records import readable
from slurmopt.run_folder.access.open_folders import holding
from slurmopt.run_folder.layout import RunFolder
from slurmopt.runs import colour
from slurmopt.runs.ownership import owner_of
from slurmopt.runs.replaced_folders import refuse_swapped
from slurmopt.runs.status.query import Status, gather
from slurmopt.runs.status.view import page
from slurmopt.runs.tail import Lines, Tail

_POLL = 0.2
_QUERY_INTERVAL = 1.0
"""Seconds between two reads of the journal, the heartbeats and (through its cache) squeue."""


def follow(run: RunFolder, out: TextIO) -> int:
    """Shows rank 0's log until the run has ended, then its status page. Returns the exit status: 0 if it finished, else
    1. Raises RunError as `stream` does."""
    with holding([run.top]):
        status = stream(run, out, 0)
        print(f"\n{page(status, colour.wanted('auto', out))}", file=out, flush=True)
    return 0 if status.state == "finished" else 1


def stream(run: RunFolder, out: TextIO, rank: int | None) -> Status:
    """Writes the log of `rank` (None: of all ranks) to `out` until the run has ended; says on stderr why it waits.
    RunError where the run's folder is replaced meanwhile."""
    with holding([run.top]):
        return _stream(run, out, rank)


def _stream(run: RunFolder, out: TextIO, rank: int | None) -> Status:
    view = _View(run, out, rank)
    while True:
        status = gather([run], details=True)[0][0]
        view.refuse_swapped(status)
        view.turn_to(status)
        if not (status.alive or status.state == "unknown"):
            view.end(status)
            return status
        until = time.monotonic() + _QUERY_INTERVAL
        while time.monotonic() < until:
            view.show()
            time.sleep(_POLL)


class _View:
    """Shows the logs of a run's latest attempt."""

    def __init__(self, run: RunFolder, out: TextIO, rank: int | None) -> None:
        self._run = run
        self._out = out
        self._rank = rank
        self._is_own = owner_of(run) is None
        self._attempt: int | None = None
        self._logs: dict[int, Tail | Lines] = {}
        self._note = Note()
        self._shown = False

    def refuse_swapped(self, status: Status) -> None:
        """RunError where the run's folder was replaced. Clears the note first, so that the error has a line of its
        own."""
        try:
            refuse_swapped(self._run, [status.journal.job])
        except RunError:
            self._note.clear()
            raise

    def turn_to(self, status: Status) -> None:
        """Switches to the attempt that runs now, or says why none runs."""
        number = status.journal.attempt.number if status.journal.attempt else None
        self._find_logs()
        if number != self._attempt:
            self._finish_logs()
            self._attempt = number
            if number:
                self._note.line(f"attempt {number} of {status.label}")
        self._note.show(_waiting(status))

    def _find_logs(self) -> None:
        """Follows the logs of a point that its array task has archived to their new place."""
        run = readable(self._run)
        if run != self._run:
            self._run = run
            for rank, log in self._logs.items():
                log.path = run.rank_log(self._attempt or 0, rank)

    def show(self) -> None:
        """Writes what was added since the last call."""
        if self._attempt is None:
            return
        ranks = self._run.ranks_with_logs(self._attempt) if self._rank is None else [self._rank]
        for rank in ranks:
            self._write(self._log(rank))

    def _log(self, rank: int) -> Tail | Lines:
        if rank not in self._logs:
            path = self._run.rank_log(self._attempt or 0, rank)
            prefix = f"[rank {rank}] "
            self._logs[rank] = Tail(path, self._is_own) if self._rank is not None else Lines(path, prefix, self._is_own)
        return self._logs[rank]

    def _write(self, log: Tail | Lines) -> None:
        for piece in log.read():
            self._put(piece)
        self._out.flush()

    def _put(self, text: str) -> None:
        if text:
            self._note.clear()
            self._out.write(text)
            self._shown = True

    def _finish_logs(self) -> None:
        self.show()
        for log in self._logs.values():
            self._put(log.rest())
        self._logs.clear()

    def end(self, status: Status) -> None:
        """Writes the rest; where no rank wrote anything, the job's own log."""
        self._find_logs()
        self._finish_logs()
        self._note.clear()
        if not self._shown and status.journal.job and status.state != "finished":
            self._write(Tail(self._run.job_log(status.journal.job), self._is_own))


def _waiting(status: Status) -> str:
    """The note on why the log does not grow; "" while the run runs, or is about to start."""
    if status.state == "running" or not (status.alive or status.state == "unknown"):
        return ""
    if status.state == "pending" and status.journal.local:
        return ""
    why = {"requeued": "waits for its next attempt", "stopping": "saves and stops", "pending": "waits for its start"}
    return f"{status.label} is {status.state}: {status.detail or why.get(status.state, '')}"


class Note:
    """One line on stderr: rewritten in place on a terminal, printed once elsewhere."""

    def __init__(self) -> None:
        self._text = ""
        self._live = sys.stderr.isatty()

    def show(self, text: str) -> None:
        """Replaces the line by `text`."""
        if text == self._text:
            return
        self.clear()
        self._text = text
        if text:
            print(f"slurmopt: {text}", file=sys.stderr, end="" if self._live else "\n", flush=True)

    def clear(self) -> None:
        """Removes the line, where stderr is a terminal."""
        if self._text and self._live:
            print("\r\x1b[K", file=sys.stderr, end="", flush=True)
            self._text = ""

    def line(self, text: str) -> None:
        """Prints a line that stays."""
        self.clear()
        print(f"slurmopt: {text}", file=sys.stderr, flush=True)
