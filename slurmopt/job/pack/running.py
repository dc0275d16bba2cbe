"""The state of one running attempt of a point: its ranks, the signals sent to it, and what it left."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass, field
from typing import Any

from slurmopt.job import failures
from slurmopt.job.pack.process import usage as processes
from slurmopt.job.pack.process.fork import Child
from slurmopt.job.supervisor.heartbeats import read_all
from slurmopt.job.supervisor.judge_attempt import Beats
from slurmopt.run_folder.access.files import open_append
from slurmopt.run_folder.heartbeat import Heartbeat
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.outcome import KILLED

_GRACE_SECONDS = 5.0
"""Seconds for the other ranks to report what they lost, after one has failed."""


@dataclass
class Running:
    """One running attempt of a point. Times are seconds of the monotonic clock."""

    point: int
    run: RunFolder
    attempt: int
    place: int
    """The slot, and so the share of the array task, that it has."""
    port: int
    ranks: int
    children: dict[int, tuple[int, Child]] = field(default_factory=dict)
    """The running ranks: process id → rank and process."""
    started: float = field(default_factory=time.monotonic)
    cause: str | None = None
    """Why the parent has ended the attempt: a word of `slurmopt.restart.causes`."""
    trouble: str | None = None
    """Why a rank could not start."""
    watchdog: int | None = None
    """The process id of the watchdog."""
    signals: tuple[str, ...] = ()
    """The signals that asked all ranks to save and stop: USR1, TERM."""
    _error: str | None = None
    """`cause` with details."""
    _sessions: set[int] = field(default_factory=set)
    _last_words: dict[int, dict[str, Any]] = field(default_factory=dict)
    _kill_at: float | None = None

    def take(self, rank: int, child: Child) -> None:
        """Adds a rank that was started."""
        self.children[child.pid] = (rank, child)
        self._sessions.add(child.pid)

    def ended(self, pid: int, status: int) -> None:
        """Notes that a rank has ended. The first failure ends the others."""
        rank, child = self.children.pop(pid)
        word = child.last_word()
        if word is not None and "trouble" in word:
            self.trouble = self.trouble or str(word["trouble"])
        else:
            self._last_words[rank] = word or _of_status(status)
        if self._pruned is not None and self.children:
            self.end_soon(0)  # rank 0 alone was told; the others wait for it
        elif status != 0 and self.children:
            self.end_soon(_GRACE_SECONDS)

    def end_soon(self, grace: float, cause: str | None = None) -> None:
        """Sends SIGTERM now, and SIGKILL after `grace` seconds, because of `cause`."""
        if self.cause is None:
            self.cause = self._error = cause
        if self._kill_at is None:
            processes.kill(list(self.children), signal.SIGTERM)
            self._kill_at = time.monotonic() + grace

    def tell(self, number: signal.Signals) -> None:
        """Asks all ranks to save and stop. Those that are too young for the signal find the stop file."""
        self.signals += (number.name.removeprefix("SIG"),)
        os.close(open_append(self.run.stop_request(self.attempt)))
        processes.kill(list(self.children), number)

    def end(self, cause: str, error: str) -> None:
        """Ends the attempt now, because of `cause`."""
        if self.cause is None:
            self.cause, self._error = cause, error
        processes.kill(self.processes())

    def look(self) -> None:
        """Kills the ranks that have not ended in time."""
        if self._kill_at is not None and time.monotonic() >= self._kill_at:
            processes.kill(self.processes())

    def processes(self) -> list[int]:
        """All running processes of the attempt."""
        return processes.with_descendants(list(self.children))

    def clear_up(self, others: set[int]) -> None:
        """Ends processes that the ranks left behind. `others` are processes of the parent itself."""
        orphans = [pid for pid in processes.adopted(others) if processes.session(pid) in self._sessions]
        if orphans:
            processes.kill(processes.with_descendants(orphans))

    def beats(self) -> Beats:
        """The ranks' heartbeats. One without an outcome gets what the parent knows of the rank's end."""
        beats = read_all(self.run, self.attempt)
        for rank, word in self._last_words.items():
            if self._error is not None and word["outcome"] == KILLED:
                word = {**word, "error": self._error}
            beat = beats.setdefault(rank, Heartbeat(rank, self.ranks, _node(), 0))
            if beat.outcome is None or self._pruned is not None:
                beat.outcome = self._pruned or word
        return beats

    @property
    def _pruned(self) -> dict[str, Any] | None:
        """What a rank said whose search gave the trial up: that is how all ranks have ended."""
        return next((word for word in self._last_words.values() if word.get("pruned")), None)


def _of_status(status: int) -> dict[str, Any]:
    """For a rank that could say nothing itself: it was killed, or left by another door."""
    if status < 0:
        hint = " (out of memory?)" if status == -signal.SIGKILL else ""
        return failures.killed(-status, f"killed by {_name(-status)}{hint}").as_dict()
    error = f"ended with exit status {status} before its task was over (os._exit?)"
    return failures.user_error(error, exit_code=status or 1).as_dict()


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"


def _node() -> str:
    return os.environ.get("SLURMD_NODENAME") or os.uname().nodename
