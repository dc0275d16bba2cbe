"""Runs the array tasks of a sweep as Slurm would: `python -m slurmopt.backends.array.runner SWEEP`.

It starts as many tasks at a time as the machine's CPUs, memory and GPUs and `sweep.at_once` allow, signals each before
its time limit and ends it at the limit, ends cancelled ones, and starts the next attempt where the script asks for it.
What it does is in `runner.json` before it happens: another runner, after this one was killed or the machine was
restarted, goes on from there and starts nothing twice.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from pathlib import Path

from slurmopt.backends.array import state as states
from slurmopt.backends.array import task as tasks
from slurmopt.backends.array.backlog import Backlog
from slurmopt.backends.array.machine import this_machine
from slurmopt.backends.array.needs import needs_of
from slurmopt.backends.array.slots import Place, Slots
from slurmopt.backends.array.state import Process
from slurmopt.backends.array.task import Task
from slurmopt.backends.array.then import launch_then
from slurmopt.backends.killed_shell import note_killed_shell
from slurmopt.errors import SlurmoptError, with_place
from slurmopt.grid.submissions import Submission
from slurmopt.job.facts import process_tree
from slurmopt.run_folder import attempts as story
from slurmopt.run_folder.access import file_lock
from slurmopt.run_folder.access.files import open_append
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.outcome import EXIT_STATUS, REQUEUE
from slurmopt.run_folder.private import hold_run, refuse_foreign_folder, refuse_open_folder
from slurmopt.run_folder.sweep_layout import SweepFolder
from slurmopt.slurm.script.job import lead
from slurmopt.units import seconds

_POLL = 0.2
_LOCK = 0.5
"""Seconds between two looks at another runner."""
_TRY_AGAIN = 5.0
"""Seconds after which a task that could not be started is tried again: no process or no disk space was left."""


class Runner:
    """Runs the array tasks of one sweep."""

    def __init__(self, sweep: SweepFolder) -> None:
        self.sweep = sweep
        self.state = states.read(sweep).of_this_process()
        self.machine = this_machine()
        self.slots = Slots(self.machine)
        self.backlog = Backlog(sweep, self.state)
        self.running: list[Task] = []
        self._is_saved = True
        self._not_before = 0.0

    def run(self) -> None:
        """Runs until no array task is left."""
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
        process_tree.adopt_orphans()
        self.backlog.look()
        self._take_over()
        self._save()
        while True:
            if self.backlog.look() or not self._is_saved:
                self._save()
            self._reap()
            for one in self.running:
                one.look(self.backlog.is_cancelled(one.submission, one.number))
            self._fill()
            if not self.running and not self.backlog.has_tasks and self._is_over():
                return
            signal.sigtimedwait([signal.SIGCHLD], _POLL)

    def _save(self) -> None:
        """Writes the state. On a full disk that is tried again; what the file lacks then, the journals tell."""
        try:
            states.write(self.sweep, self.state)
            self._is_saved = True
        except OSError as error:
            if self._is_saved:
                _say(f"{self.sweep.runner} cannot be written: {error.strerror}")
            self._is_saved = False

    def _is_over(self) -> bool:
        """Ends the runner's work, unless more was submitted meanwhile: a launcher sees either this runner, or that it
        has to start one."""
        self.state.pid = None
        self._save()
        if not self.backlog.look():
            return True
        self.state.pid = os.getpid()
        self._save()
        return False

    # ---- after an earlier runner -------------------------------------------------------------------------------------

    def _take_over(self) -> None:
        """Takes the tasks that an earlier runner has started: those that live, and the ends of the others."""
        before = states.read(self.sweep)
        for submission in self.backlog.submissions:
            for number, process in list(self.state.jobs[str(submission.job)].running.items()):
                place = Place(process.cpus, process.gpus, process.memory)
                self.slots.taken.append(place)
                one = Task(submission, number, process, place, None, *self._limits())
                if one.has_ended(before):
                    self._end(one, None)
                else:
                    self.running.append(one)

    # ---- starting ----------------------------------------------------------------------------------------------------

    def _fill(self) -> None:
        at_once = self.backlog.settings.sweep.at_once
        while time.monotonic() >= self._not_before and (at_once is None or len(self.running) < at_once):
            chosen = self.backlog.next()
            if chosen is None:
                return
            place = self.slots.take(needs_of(self.backlog.settings.resources, self.machine))
            if place is None:
                return
            if not self._start(*chosen, place):
                return

    def _start(self, submission: Submission, number: int, place: Place) -> bool:
        job = self.state.jobs[str(submission.job)]

        def note(process: Process) -> None:
            job.again.pop(number, None)
            job.running[number] = process
            states.write(self.sweep, self.state)

        self._check()
        try:
            shell, process = tasks.start(self.sweep, submission, number, place, self.machine, note)
        except OSError as error:
            _say(f"array task {number} is not started: {with_place(error)}")
            job.running.pop(number, None)
            self.slots.give_back(place)
            self._not_before = time.monotonic() + _TRY_AGAIN
            return False
        self.running.append(Task(submission, number, process, place, shell, *self._limits()))
        return True

    def _check(self) -> None:
        """Others may rename folders above the sweep meanwhile, and put a script of their own there: JobError ends this
        process, and leaves the tasks that run to themselves."""
        run = self.sweep.run
        hold_run(run)
        refuse_open_folder(run.path)
        for path in (run.path, run.script):
            refuse_foreign_folder(path)

    def _limits(self) -> tuple[float | None, float]:
        settings = self.backlog.settings
        limit = settings.resources.time
        return (None if limit is None else seconds(limit)), lead(settings)

    # ---- ending ------------------------------------------------------------------------------------------------------

    def _reap(self) -> None:
        for one in [one for one in self.running if one.has_ended(self.state)]:
            self.running.remove(one)
            self._end(one, None if one.shell is None else one.shell.returncode)
            self._save()
        self._reap_orphans()

    def _reap_orphans(self) -> None:
        """Adopted processes that have ended; the shells' own statuses are left to `_reap`."""
        shells = {one.process.pid for one in self.running}
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT | os.WNOHANG)) is not None:
                if ended.si_pid in shells:
                    return
                os.waitpid(ended.si_pid, 0)

    def _end(self, one: Task, status: int | None) -> None:
        """What follows the end of a task. `status`: of its shell; None where an earlier runner had started it."""
        tasks.clear_up(one.label)
        self.slots.give_back(one.place)
        job = self.state.jobs[str(one.submission.job)]
        del job.running[one.number]
        folder = self._folder(one)
        is_cancelled = self.backlog.is_cancelled(one.submission, one.number)
        if status is not None and status < 0 and folder.events.exists():
            with contextlib.suppress(OSError):  # a full disk: the point is lost then
                exceeded = one.limit if one.ended_at is not None and not is_cancelled else None
                note_killed_shell(folder, -status, is_cancelled, exceeded)
        comes_back = status == EXIT_STATUS[REQUEUE] or (status is None and _goes_on(folder))
        if comes_back and not is_cancelled:
            job.again[one.number] = _not_before(folder)
            return
        job.ended = job.ended.union(self.backlog.single(one.number))
        if status is not None and status != 0:
            job.failed[one.number] = status if status > 0 else 128 - status

    def _folder(self, one: Task) -> RunFolder:
        if one.submission.packed:
            return self.sweep.task(one.submission.number, one.number)
        return self.sweep.point(one.submission.points_of(one.number)[0])


def _goes_on(folder: RunFolder) -> bool:
    """Whether a task whose end nobody saw is to be started again: it has no verdict, or that says so."""
    latest = _latest(folder)
    return latest is None or latest.end is None or latest.end.get("next") is not None


def _not_before(folder: RunFolder) -> float:
    """When the next attempt may start, as the end of the last one says."""
    latest = _latest(folder)
    return 0.0 if latest is None or latest.end is None else (latest.ended or 0.0) + latest.pause


def _latest(folder: RunFolder) -> story.Attempt | None:
    attempts = story.attempts(folder) if folder.events.exists() else []
    return attempts[-1] if attempts else None


def _is_ours(descriptor: int, sweep: SweepFolder) -> bool:
    """Waits for the lock of the sweep's runner. False once a runner that is alive has all its jobs. On a file system
    without locks what `runner.json` says must do."""
    while (is_free := file_lock.held(descriptor, time.monotonic() + _LOCK)) is not True:
        state = states.read(sweep)
        if state.runner_lives and {str(entry.job) for entry in Backlog.submitted(sweep)} <= set(state.jobs):
            return False
        if is_free is None:
            if not state.runner_lives:
                return True
            time.sleep(_LOCK)
    return True


def _say(text: str) -> None:
    print(f"slurmopt: {text}", file=sys.stderr, flush=True)


def main(argv: list[str]) -> int:
    """Runs the sweep, or leaves it to a runner that has all its jobs."""
    sweep = SweepFolder(Path(argv[0]).absolute())
    with os.fdopen(open_append(sweep.path / ".runner"), "ab") as mine:  # the lock ends with this process
        if not _is_ours(mine.fileno(), sweep):
            return 0
        try:
            runner = Runner(sweep)
            runner.run()
            launch_then(sweep, runner.backlog.settings)
        except (SlurmoptError, OSError) as error:
            _say(with_place(error))
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
