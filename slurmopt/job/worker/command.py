"""Runs the user's command without a shell, and interprets how it ended."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import deque

from slurmopt.errors import JobError
from slurmopt.job import failures, signals
from slurmopt.job.external_profilers.attached import let_in
from slurmopt.job.external_profilers.choose import attached, is_attached, wrapped
from slurmopt.job.external_profilers.wrapped import Wrapped, runs
from slurmopt.job.facts import environment_info, process_tree
from slurmopt.job.facts.rank_facts import RankFacts, gets_signals_alone
from slurmopt.job.heartbeat.heartbeat_writer import HeartbeatWriter
from slurmopt.job.rank_args import RankArgs
from slurmopt.job.rendezvous import launcher_flags
from slurmopt.job.worker import whole_job
from slurmopt.run_folder.access.open_folders import held
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.outcome import Outcome
from slurmopt.run_folder.variables import Unset, fill

_PR_SET_PDEATHSIG = 1
_SIGNAL_DELAY = 0.05
"""Seconds within which all processes of a node get the same signal from Slurm."""
_LOOK_SECONDS = 0.2
_LONGEST_SAVE = 900
"""Seconds that processes which the command left behind may take to save, unless the job ends earlier."""


class CommandTask:
    """One run of the user's command in one rank."""

    def __init__(self, call: RankArgs, facts: RankFacts, attempt: int, live: HeartbeatWriter) -> None:
        self._call, self._facts, self._attempt, self._live = call, facts, attempt, live
        self._process: subprocess.Popen[bytes] | None = None
        self._is_starting = False  # from here on Slurm's signals to all processes of the step may reach the command
        self._arrived: deque[tuple[int, float, bool]] = deque()  # signal, when, whether the command was starting
        self._delivering = threading.Lock()
        self._told: signal.Signals | None = None
        self._told_at = 0.0
        self._told_alone = False  # whether the command itself is all that has been told
        self._wrapped: Wrapped | None = None

    def run(self) -> Outcome:
        """Starts the command and waits for it."""
        try:
            words = [expand(word) for word in self._call.command or []]
            if self._call.per == "node":
                words = launcher_flags.completed(words, self._facts, os.environ)
            self._listen()
            process = self._start_profiled(words)
        except JobError as error:
            print(f"slurmopt: {error}", file=sys.stderr)
            return failures.user_error(str(error), exit_code=127)
        self._deliver()  # what arrived before the process id was known
        self._live.meter.clock.end_first_step()  # most commands report no steps; a child that does tells of its first
        self._live.enter("running")
        if self._facts.rank == 0:
            environment_info.note(self._call.folder, self._attempt, self._facts)
        profiler = attached(self._call, self._attempt, self._facts, process.pid)
        try:
            status = self._wait(process, words)
        except JobError as error:  # without its profiler
            return failures.user_error(str(error), exit_code=127)
        if profiler is not None:
            profiler.close()
        if not signals.told():  # Slurm signals one process after the other: the command may have heard it first
            time.sleep(_SIGNAL_DELAY)
        if self._call.per == "job" and not signals.requested() and whole_job.is_preempted():
            signals.request("TERM")
            self._tell(signal.SIGTERM)  # its tasks have heard what this process did not
        if self._told is not None and status in (-self._told, 128 + self._told):
            self._let_save(self._told)
        return outcome_of(status, words, self._call.folder, self._told)

    def _let_save(self, stop_signal: signal.Signals) -> None:
        """Lets the processes below a shell save after the shell has died of the signal. A shell that caught it for its
        EXIT trap has not forwarded it to the training."""
        if self._told_alone:
            process_tree.tell_below(os.getpid(), stop_signal)
        deadline = time.monotonic() + _LONGEST_SAVE
        while process_tree.has_catching(os.getpid(), stop_signal) and time.monotonic() < deadline:
            time.sleep(_LOOK_SECONDS)

    def leave(self) -> None:
        """Does nothing: processes that the command left behind end with the step."""

    def _wait(self, process: subprocess.Popen[bytes], words: list[str]) -> int:
        """Waits for the command, and returns its exit status, as in subprocess."""
        if self._wrapped is not None:
            status = self._wrapped.wait(process, self._deliver, signals.requested)
            if status is not None:
                return status
            self._wrapped = None
            process = self._process = self._start(words)
            self._deliver()
        process_tree.wait(process.pid)
        return process.wait()

    def _start_profiled(self, words: list[str]) -> subprocess.Popen[bytes]:
        """Starts the command, below nsys or ncu where this rank is profiled by them."""
        if shutil.which(words[0]) is not None:  # else the command itself is what cannot start
            self._wrapped = wrapped(self._call, self._attempt, self._facts)
        if self._wrapped is not None:
            words = self._wrapped.words(words, unblocked=self._forward == signal.SIGUSR1)
        self._process = self._start(words)
        return self._process

    def _listen(self) -> None:
        process_tree.adopt_orphans()
        signals.listen(self._pass_on)
        for number in signals.arrived():  # while the node was checked
            self._pass_on(number)

    def _start(self, words: list[str]) -> subprocess.Popen[bytes]:
        # USR1 is blocked in this process, and so in the command, which outlives one then; unless it is promised one.
        promised = self._forward == signal.SIGUSR1 and self._wrapped is None
        shown = is_attached(self._call)
        libc, parent = ctypes.CDLL(None), os.getpid()

        def prepare() -> None:
            # Slurm finds a step's processes by their parents: the command must not outlive this one as an orphan.
            libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != parent:
                os._exit(128 + signal.SIGKILL)
            if shown:
                let_in()
            if promised:
                signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR1})

        self._is_starting = True
        try:
            return subprocess.Popen(words, preexec_fn=prepare)
        except OSError as error:
            raise JobError(_cannot_start(words[0], error)) from error

    @property
    def _forward(self) -> signal.Signals | None:
        return signal.Signals[f"SIG{self._call.forward}"] if self._call.forward else None

    def _pass_on(self, number: int) -> None:
        """Queues a signal for the command. May run in any thread, and in the main thread between any two
        instructions."""
        self._arrived.append((number, time.monotonic(), self._is_starting))
        self._deliver()

    def _deliver(self) -> None:
        """Delivers the queued signals, once the command's process id is known, each once and in their order. The thread
        that is at it takes what arrives meanwhile: waiting for it would never end in a signal handler of that
        thread."""
        while self._arrived and (pid := self._pid()) is not None and self._delivering.acquire(blocking=False):
            try:
                while self._arrived:
                    self._deliver_one(pid, *self._arrived.popleft())
            finally:
                self._delivering.release()

    def _pid(self) -> int | None:
        """The command's process id, once it has started; below a profiler that is not the child of this process."""
        if self._process is None:
            return None
        return self._process.pid if self._wrapped is None else self._wrapped.training()

    def _deliver_one(self, pid: int, number: int, arrived_at: float, was_starting: bool) -> None:
        forwarded = signal.SIGTERM if number == signal.SIGTERM else self._forward
        if forwarded is None or (forwarded == self._told and arrived_at - self._told_at < signals.BURST):
            return
        # The command has got it as well, and may have left already.
        if was_starting and forwarded == number and not gets_signals_alone(os.environ):
            self._tell(forwarded)
        elif runs(pid) if self._wrapped is not None else process_tree.is_running(pid):
            self._tell(forwarded)
            if self._call.per == "job":
                signalled = whole_job.send(pid, forwarded, tasks_are_told=number == signal.SIGTERM)
            else:
                signalled = process_tree.tell(pid, forwarded)
            self._told_alone = signalled == [pid]

    def _tell(self, number: signal.Signals) -> None:
        self._told, self._told_at = number, time.monotonic()
        signals.tell()


def expand(word: str) -> str:
    """`word` with `${oc.env:NAME}` and `${oc.env:NAME,default}` filled in from this rank's environment."""
    try:
        return fill(word, os.environ)
    except Unset as error:
        raise JobError(
            f"task.command: {word!r} needs the environment variable {error}, which this rank lacks"
        ) from error


def _cannot_start(program: str, error: OSError) -> str:
    where = f"task.command: {program!r}"
    if error.errno == errno.ENOENT and os.path.exists(program):
        return f"{where}: the interpreter in its first line is not found"
    if error.errno == errno.ENOENT:
        place = f"in {os.getcwd()}" if "/" in program else "on PATH (a script needs ./ or its interpreter before it)"
        return f"{where} is not found {place}"
    if error.errno == errno.EACCES:
        return f"{where} is not executable: chmod +x it, or put its interpreter before it"
    if error.errno == errno.ENOEXEC:
        return f"{where} is not a program: it lacks a #! line, or is made for another machine"
    return f"{where} cannot be started: {error.strerror}"


def outcome_of(status: int, words: list[str], folder: RunFolder, stop_signal: signal.Signals | None = None) -> Outcome:
    """The outcome of a command that ended with `status`, as in subprocess (negative: by a signal). `stop_signal` is the
    signal that it got before."""
    if status == 75 or os.path.isfile(held(folder.requeue_wish())):  # a folder of that name is somebody's mistake
        return failures.requeue("exit status 75" if status == 75 else "the requeue file is there")
    if status == 0:
        return failures.finished()
    if status < 0 or status - 128 in (signal.SIGKILL, signal.SIGTERM, stop_signal):
        number = -status if status < 0 else status - 128
        hint = " (out of memory?)" if number == signal.SIGKILL else ""
        return failures.killed(number, f"{words[0]} was killed by {signal.Signals(number).name}{hint}")
    how = f"{words[0]} ended with exit status {status}"
    if stop_signal is not None:  # the program's own way of leaving, or what followed when other ranks left
        return failures.left(f"{how} after it had received {stop_signal.name}", exit_code=status)
    return failures.user_error(how, exit_code=status)
