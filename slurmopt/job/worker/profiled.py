"""A function that is profiled. nsys and ncu must start the process that uses the GPU: this one starts the rank again
below them, passes signals on, and ends as the rank does. py-spy looks into the rank's own process."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Iterator

from slurmopt import log
from slurmopt.job import signals
from slurmopt.job.external_profilers.attached import own_pid
from slurmopt.job.external_profilers.choose import attached, is_attached, wrapped
from slurmopt.job.external_profilers.wrapped import Wrapped
from slurmopt.job.facts import process_tree
from slurmopt.job.facts.rank_facts import RankFacts, launched_facts
from slurmopt.job.rank_args import SUPERVISOR, RankArgs, parse
from slurmopt.job.worker import current_run as run

_BELOW = "SLURMOPT_BELOW_PROFILER"
"""Environment variable: set for the rank that the profiler has started."""


def run_below_profiler(argv: list[str]) -> int | None:
    """Runs this rank in a process below nsys or ncu, if its function is profiled by them. Returns the exit status, or
    None where this process is to run it."""
    if os.environ.pop(_BELOW, None) is not None or "--profiler" not in argv or "--function" not in argv:
        return None
    attempt = int(os.environ.get(run.ATTEMPT) or 0)
    chosen = wrapped(parse(argv), attempt, launched_facts(os.environ))
    return None if chosen is None else _Rank(chosen).run()


@contextlib.contextmanager
def observed(call: RankArgs, attempt: int, facts: RankFacts) -> Iterator[None]:
    """py-spy samples this process during the block, if it runs a function that is profiled so."""
    profiler = None
    if call.function is not None and is_attached(call):
        profiler = attached(call, attempt, facts, own_pid())
    try:
        yield
    finally:
        if profiler is not None:
            profiler.close()


class _Rank:
    """The rank below a profiler, as seen by the process that srun, or the local runner, has started for it."""

    def __init__(self, below: Wrapped) -> None:
        self._below = below
        self._arrived: deque[int] = deque()
        self._supervisor = int(os.environ.get(SUPERVISOR) or 0)

    def run(self) -> int | None:
        process_tree.adopt_orphans()
        signals.listen(self._pass_on)
        for number in signals.arrived():
            self._pass_on(number)
        environment = {name: value for name, value in os.environ.items() if name != SUPERVISOR} | {_BELOW: "1"}
        try:
            profiler = subprocess.Popen(self._below.words(sys.orig_argv), env=environment)
        except OSError as error:
            log.warning(f"the profiler cannot be started: {error.strerror}; the training goes on without it")
            return None
        status = self._below.wait(profiler, self._look, signals.requested)
        if status is not None and status < 0:
            _end_by(-status)
        return status

    def _pass_on(self, number: int) -> None:
        self._arrived.append(number)
        self._deliver()

    def _deliver(self) -> None:
        """Passes on what has arrived, once the rank has started. It takes two of the same within a second as one."""
        rank = self._below.training()
        while rank is not None and self._arrived:
            with contextlib.suppress(IndexError):  # another thread has taken it
                process_tree.send([rank], signal.Signals(self._arrived.popleft()))

    def _look(self) -> None:
        self._deliver()
        if self._supervisor and os.getppid() != self._supervisor:
            process_tree.kill_below(os.getpid())
            os._exit(128 + signal.SIGKILL)


def _end_by(number: int) -> None:
    """Ends this process as the rank ended, so that the local runner and srun see the same."""
    if number not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    os.kill(os.getpid(), number)
