"""One running attempt of a point whose ranks are a job step of their own, on all nodes of the array task.

srun forwards SIGUSR1 to the ranks. At SIGTERM it kills them, and waits until their nodes say so.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

from slurmopt.job import failures
from slurmopt.job.facts.rank_facts import started_with
from slurmopt.job.pack.pack_args import Pack
from slurmopt.job.pack.process import usage as processes
from slurmopt.job.pack.process.fork import Child, forked
from slurmopt.job.pack.running import Running
from slurmopt.job.rendezvous.attempt_secret import attempt_secret
from slurmopt.job.supervisor.heartbeats import settled
from slurmopt.job.supervisor.judge_attempt import Beats
from slurmopt.run_folder import heartbeat
from slurmopt.run_folder.access.files import open_append
from slurmopt.run_folder.heartbeat import Heartbeat
from slurmopt.run_folder.layout import RunFolder

_PATIENCE = 60.0
"""Seconds that srun may take to kill the ranks, before it is killed itself."""


@dataclass
class Step(Running):
    """`children` has srun alone."""

    _status: int = 0

    def start(self, pack: Pack, words: dict[str, str]) -> None:
        """Starts the step; `words` are the variables of the point. OSError if no process can be created."""
        attempt_secret(self.run, self.attempt)  # here, or a node would look for it too early
        environment = started_with() | words | {"MASTER_PORT": str(self.port)}
        ranks = [sys.executable, "-m", "slurmopt.job", str(self.run.path), *pack.words]
        argv = ["srun", *pack.srun, f"--output={_pattern(self.run, self.attempt)}", *ranks]
        log = open_append(self.run.job_log(pack.job))
        try:
            pid = forked(partial(_become, argv, environment, log))
            self.take(0, Child(pid, os.open(os.devnull, os.O_RDONLY)))
        finally:
            os.close(log)

    def ended(self, pid: int, status: int) -> None:
        """Notes that srun has ended."""
        super().ended(pid, status)
        self._status = status

    def tell(self, number: signal.Signals) -> None:
        """Asks all ranks to save and stop. Of SIGTERM Slurm itself tells them."""
        self.signals += (number.name.removeprefix("SIG"),)
        os.close(open_append(self.run.stop_request(self.attempt)))
        if number == signal.SIGUSR1:
            processes.kill(list(self.children), number)

    def end(self, cause: str, error: str) -> None:
        """Ends the attempt now, because of `cause`."""
        if self.cause is None:
            self.cause, self._error = cause, error
        self.end_soon(_PATIENCE)

    def look(self) -> None:
        """Ends the step once rank 0 has given up the trial: it alone was told, and the others wait for it."""
        if self._kill_at is None and _pruned(self._first()) is not None:
            self.end_soon(_PATIENCE)
        super().look()

    def _first(self) -> Heartbeat | None:
        with contextlib.suppress(OSError):  # a stale NFS handle: the next look finds the new file
            return heartbeat.read(self.run.heartbeat(self.attempt, 0))
        return None

    def clear_up(self, others: set[int]) -> None:
        """Does nothing: Slurm ends what the ranks left behind."""

    def beats(self) -> Beats:
        """The ranks' heartbeats, once the file system shows them."""
        beats = settled(self.run, self.attempt, self.ranks, self._status)
        pruned = _pruned(beats.get(0))
        for rank in range(self.ranks) if pruned else ():
            beats.setdefault(rank, Heartbeat(rank, self.ranks, "", 0)).outcome = pruned
        for beat in beats.values():
            if beat.outcome is None and self._error is not None:
                beat.outcome = failures.killed(signal.SIGKILL, self._error).as_dict()
        return beats


def _become(argv: list[str], environment: dict[str, str], log: int) -> NoReturn:
    nothing = os.open(os.devnull, os.O_RDONLY)
    for target, source in ((0, nothing), (1, log), (2, log)):
        os.dup2(source, target)
    for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, signal.valid_signals())
    os.execvpe(argv[0], argv, environment)  # noqa: S606 - no shell


def _pattern(run: RunFolder, attempt: int) -> str:
    """The ranks' logs as srun's --output takes them."""
    logs = str(run.attempt_logs(attempt))
    if "%" in logs:  # Slurm 26.05 reads the %% of srun as %
        logs = os.path.relpath(logs)
    return logs.replace("%", "%%") + "/rank-%t.log"


def _pruned(first: Heartbeat | None) -> dict[str, Any] | None:
    """What rank 0 said whose search gave the trial up: that is how all ranks have ended."""
    outcome = None if first is None else first.outcome
    return outcome if outcome is not None and outcome.get("pruned") else None
