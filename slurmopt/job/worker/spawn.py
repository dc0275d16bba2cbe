"""Starts the ranks as processes on this machine, as srun would, for the local backend.

python -m slurmopt.job.worker.spawn --ranks N FOLDER … (--function pkg.mod.fn | -- word word …)
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from types import FrameType

from slurmopt.job import failures
from slurmopt.job.facts import process_tree
from slurmopt.job.rank_args import SUPERVISOR, RankArgs, parse
from slurmopt.job.rendezvous.ports import free_port
from slurmopt.run_folder import heartbeat
from slurmopt.run_folder.access.files import make_folders, open_append
from slurmopt.run_folder.process import module_start

_FORWARDED = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM, signal.SIGHUP, signal.SIGCONT, signal.SIGINT)
_GRACE_SECONDS = 5.0


class Ranks:
    """Runs all ranks of one attempt."""

    def __init__(self, call: RankArgs, attempt: int, count: int) -> None:
        self._call, self._attempt, self._count = call, attempt, count
        self._running: dict[int, int] = {}  # process id: rank
        self._codes: list[int] = []
        self._failed_at: float | None = None
        # A function is imported from the working directory; what starts a command takes no module from there.
        self._start = ["-m"] if call.command is None else module_start()

    def start(self, words: list[str]) -> None:
        """Starts the ranks, each in its own session, so that Ctrl-C in a terminal reaches only this process. The
        signals to forward are blocked meanwhile, or those to come would reach only the ranks that are started."""
        make_folders(self._call.folder.attempt_logs(self._attempt))
        for rank in range(self._count):
            self._running[self._start_one(rank, words)] = rank

    def _start_one(self, rank: int, words: list[str]) -> int:
        with os.fdopen(open_append(self._call.folder.rank_log(self._attempt, rank)), "ab") as log:
            process = subprocess.Popen(
                [sys.executable, *self._start, "slurmopt.job", *words],
                env=_environment(rank, self._count),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_unblock,
            )
        process.returncode = 0  # `wait` below reaps it: keep subprocess's own bookkeeping out of it
        return process.pid

    def forward(self, number: int, frame: FrameType | None = None) -> None:
        """Forwards a signal to every rank; Ctrl-C as SIGTERM."""
        for pid in list(self._running):
            _send(pid, signal.SIGTERM if number == signal.SIGINT else number)

    def wait(self) -> int:
        """Waits until all ranks have ended. The first failure ends the others; its status is returned."""
        while self._running:
            pid, status = os.waitpid(-1, 0 if self._failed_at is None else os.WNOHANG)
            if pid in self._running:
                self._ended(self._running.pop(pid), os.waitstatus_to_exitcode(status))
            elif pid == 0:
                self._hurry()
        process_tree.clear_up()  # what the ranks left behind
        return next((code for code in self._codes if code), 0)

    def _ended(self, rank: int, code: int) -> None:
        self._codes.append(code if code >= 0 else 128 - code)
        if code < 0 and self._failed_at is None:
            self._speak_for(rank, -code)
        if code != 0 and self._failed_at is None:
            self._failed_at = time.monotonic()
            self.forward(signal.SIGTERM)

    def _speak_for(self, rank: int, number: int) -> None:
        """Writes the outcome of a rank that was killed and could not write it itself. It was the first to end, so it is
        the cause."""
        path = self._call.folder.heartbeat(self._attempt, rank)
        beat = heartbeat.read(path)
        if beat is not None and beat.outcome is None:
            hint = " (out of memory?)" if number == signal.SIGKILL else ""
            beat.outcome = failures.killed(number, f"killed by {signal.Signals(number).name}{hint}").as_dict()
            beat.phase = "ended"
            with contextlib.suppress(OSError):  # a full disk: the verdict finds that
                beat.write(path)

    def _hurry(self) -> None:
        if self._failed_at is not None and time.monotonic() - self._failed_at > _GRACE_SECONDS:
            process_tree.kill_below(os.getpid())
        time.sleep(0.05)


def _unblock() -> None:
    """Ends in a rank what `main` blocks, except USR1: it would kill the rank until the rank itself blocks it, and so
    waits for the rank instead."""
    others = set(_FORWARDED) - {signal.SIGUSR1}
    for number in others:  # this process's own handlers would run here
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, others)


def _send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:  # it has just ended, and will be reaped
        return


def _environment(rank: int, count: int) -> dict[str, str]:
    """torchrun's variables for one rank, without srun's, which would take precedence and belong to an enclosing
    allocation."""
    inherited = {name: value for name, value in os.environ.items() if name not in ("SLURM_PROCID", "SLURM_STEP_ID")}
    words = {
        "RANK": rank,
        "LOCAL_RANK": rank,
        "WORLD_SIZE": count,
        "LOCAL_WORLD_SIZE": count,
        "NODE_RANK": 0,
        "NNODES": 1,
        SUPERVISOR: os.getpid(),
    }
    defaults = {"MASTER_ADDR": "127.0.0.1", "OMP_NUM_THREADS": max(1, len(os.sched_getaffinity(0)) // count)}
    return {**{k: str(v) for k, v in defaults.items()}, **inherited, **{k: str(v) for k, v in words.items()}}


def _choose_port() -> None:
    if not os.environ.get("MASTER_PORT"):
        os.environ["MASTER_PORT"] = str(free_port(set()))


def main(argv: list[str]) -> int:
    """Starts the ranks and waits for them."""
    if len(argv) < 2 or argv[0] != "--ranks" or not argv[1].isdigit() or int(argv[1]) < 1:
        print("usage: python -m slurmopt.job.worker.spawn --ranks N FOLDER …", file=sys.stderr)
        return 2
    words = argv[2:]
    process_tree.adopt_orphans()
    ranks = Ranks(parse(words), int(os.environ.get("SLURMOPT_ATTEMPT") or 0), int(argv[1]))
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _FORWARDED)  # the kernel keeps them until all ranks are started
    for number in _FORWARDED:
        signal.signal(number, ranks.forward)
    _choose_port()
    ranks.start(words)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    return ranks.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
