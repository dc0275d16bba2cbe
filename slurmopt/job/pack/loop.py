"""The parent's loop: starts points in free slots, waits for them, and watches those that run.

It sleeps until a child ends, a signal comes, or a second is over.
"""

from __future__ import annotations

import os
import signal
import time

from slurmopt.errors import SlurmoptError, one_line
from slurmopt.job import failures, signals
from slurmopt.job.heartbeat.heartbeat_writer import HeartbeatWriter
from slurmopt.job.pack import watch
from slurmopt.job.pack.archiving import Archiving
from slurmopt.job.pack.attempts import Attempts, cannot, is_followed
from slurmopt.job.pack.journal import TaskJournal
from slurmopt.job.pack.pack_args import Pack
from slurmopt.job.pack.point_source import PointSource
from slurmopt.job.pack.points.ownership import Ownership
from slurmopt.job.pack.preemption import SlurmRecord
from slurmopt.job.pack.process import shares, usage
from slurmopt.job.pack.process.fork import Order, fork_rank
from slurmopt.job.pack.process.fresh import Imported
from slurmopt.job.pack.process.shares import Share
from slurmopt.job.pack.running import Running
from slurmopt.job.pack.step import Step
from slurmopt.job.point_end import OVERTAKEN, End
from slurmopt.job.rendezvous.ports import free_port
from slurmopt.job.supervisor.attempt_end import say
from slurmopt.job.supervisor.judge_attempt import numbers
from slurmopt.job.worker import current_run as run
from slurmopt.restart import causes
from slurmopt.run_folder.access.open_folders import held
from slurmopt.run_folder.layout import RECORDS, RunFolder
from slurmopt.run_folder.outcome import REQUEUE, USER_ERROR, Outcome
from slurmopt.units import human_bytes

_SECOND = 1.0
_KILL_SECONDS = 30.0
"""Seconds between SIGTERM and SIGKILL, Slurm's default for KillWait."""


class Loop:
    """Runs all points of one attempt of the array task."""

    def __init__(
        self,
        pack: Pack,
        source: PointSource,
        journal: TaskJournal,
        attempts: Attempts,
        ownership: Ownership,
        live: HeartbeatWriter,
        imported: Imported,
        places: list[tuple[Share, dict[str, str]]],
        archiving: Archiving,
    ) -> None:
        """`places`: what each of the points side by side has, and its words for the environment."""
        self._pack, self._source, self._journal, self._attempts = pack, source, journal, attempts
        self._ownership, self._live, self._imported, self._places = ownership, live, imported, places
        self.archiving = archiving
        self._free = list(range(len(places)))
        self._running: list[Running] = []
        self._again: list[int] = []
        self._left = True
        """Whether the source may return more points."""
        self._told = False
        self._slurm: SlurmRecord | None = None
        self._trouble: SlurmoptError | OSError | None = None
        self._looked = self._looked_at_cancelled = 0.0

    def run(self) -> Outcome:
        """Runs until all points have ended, or the array task must end."""
        signals.listen(lambda number: os.kill(os.getpid(), signal.SIGCHLD))  # wakes the loop up
        self._tell_progress()
        while True:
            self._stop_where_asked()
            self._fill()
            if not self._running:
                return self._outcome()
            signal.sigtimedwait({signal.SIGCHLD}, _SECOND)
            self._reap()
            if time.monotonic() - self._looked >= _SECOND:
                self._look()

    def _outcome(self) -> Outcome:
        total, done = self._source.total, self._journal.ended
        if self._trouble is not None:
            return failures.outcome_of(self._trouble)
        if self._told and (self._again or self._left) and (total is None or done < total):
            return failures.requeue(
                "points are left" if total is None else f"{total - done} of {total} points are left"
            )
        if failed := self._journal.failed:
            error = f"{len(failed)} of {total or done} points failed: {numbers(failed)}"
            return failures.user_error(error, trace=error)  # the points' own tracebacks are not this rank's
        return failures.finished()

    # ---- starting ----------------------------------------------------------------------------------------------------

    def _fill(self) -> None:
        while self._free and not self._told:
            point = self._again.pop(0) if self._again else self._next()
            if point is None:
                return
            self._start(point)

    def _next(self) -> int | None:
        if self._trouble is not None:
            return None
        try:
            point = self._source.next()
        except (OSError, SlurmoptError) as error:
            self._is_in_trouble(error)
            return None
        self._left = point is not None
        return point

    def _is_in_trouble(self, error: OSError | SlurmoptError) -> None:
        self._trouble = self._trouble or error
        say(f"no more points are started: {one_line(str(error))}")

    def _start(self, point: int) -> None:
        attempt = None
        try:
            if self._ownership.overtaken(point):
                self._leave_to_newer(point)
                return
            folder = self._source.make(point)
            if (over := self._attempts.look_back(folder, point)) is not None:
                say(f"point {point} is not started again: {over.cause}")
                self._write_down(over, folder)
                return
            attempt = self._attempts.begin(folder)
            self._journal.start(point, attempt)
            kind = Step if self._pack.srun else Running
            self._start_ranks(kind(point, folder, attempt, self._free[0], self._port(), self._pack.ranks))
        except OSError as error:
            self._cannot(point, attempt, error)
        except SlurmoptError as error:  # its config
            say(f"point {point}: {error}")
            end = End(
                point=point, attempt=attempt, outcome=USER_ERROR, cause=causes.USER_ERROR, next=None, error=str(error)
            )
            self._write_down(end, None)

    def _leave_to_newer(self, point: int) -> None:
        say(f"point {point} is not started: a newer array job has it")
        error = "a newer array job has it"
        self._write_down(End(point=point, attempt=None, outcome=REQUEUE, cause=OVERTAKEN, next=None, error=error), None)

    def _port(self) -> int:
        return free_port({one.port for one in self._running})

    def _start_ranks(self, running: Running) -> None:
        share, words = self._places[running.place]
        self._free.remove(running.place)
        self._running.append(running)
        try:
            if isinstance(running, Step):
                running.start(self._pack, self._own_words(running))
            else:
                for rank in range(running.ranks):
                    running.take(rank, fork_rank(self._order(running, rank, share, words)))
        except OSError as error:  # no process is left: those that have started cannot do without the others
            running.trouble = one_line(f"cannot start rank {len(running.children)}: {error.strerror}")
            running.end(causes.INFRASTRUCTURE, running.trouble)
            if not running.children:
                self._has_ended(running)

    def _order(self, running: Running, rank: int, share: Share, words: dict[str, str]) -> Order:
        of_rank = shares.rank_words(rank, running.ranks, running.port, os.environ)
        return Order(
            folder=running.run,
            point=running.point,
            attempt=running.attempt,
            rank=rank,
            words=self._pack.words,
            environment=words | of_rank | self._own_words(running),
            share=share,
            imported=self._imported,
            source=self._source,
        )

    def _own_words(self, running: Running) -> dict[str, str]:
        return {
            run.FOLDER: str(running.run.path),
            RECORDS: str(running.run.kept),
            run.ATTEMPT: str(running.attempt),
            "SLURMOPT_CONFIG": str(running.run.config),
            "SLURMOPT_POINT": str(running.point),
            "SLURMOPT_SWEEP": str(self._pack.sweep.path),
        }

    # ---- ending ------------------------------------------------------------------------------------------------------

    def _reap(self) -> None:
        while self._running:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            self.archiving.take_end(pid)
            self._take_end(pid, os.waitstatus_to_exitcode(status))

    def _take_end(self, pid: int, status: int) -> None:
        """Of a rank, of a watchdog, or of an orphan from below some point."""
        for running in self._running:
            if pid in running.children:
                running.ended(pid, status)
                if not running.children:
                    self._has_ended(running)
                return
            if pid == running.watchdog and status == watch.HUNG:
                running.end(causes.HANG, "it hangs")

    def _has_ended(self, running: Running) -> None:
        seconds = time.monotonic() - running.started
        self._running.remove(running)
        self._free.append(running.place)
        if running.watchdog is not None:
            usage.kill([running.watchdog])
        own = {pid for one in self._running for pid in (*one.children, one.watchdog)} | {self.archiving.process}
        running.clear_up({pid for pid in own if pid is not None})
        if running.trouble is not None:
            self._cannot(running.point, running.attempt, running.trouble)
            return
        try:
            beats = running.beats()
            if self._slurm is None and running.cause is None and any(beat.asked == "TERM" for beat in beats.values()):
                self._ask_slurm()  # a point may hear of it, and end, before the parent does
            if self._slurm is not None:
                self._slurm.copy_to(running.run.slurm_said(running.attempt))
            end = self._attempts.end_of_running(running, beats, seconds)
        except OSError as error:
            if not os.path.lexists(held(running.run.kept)):
                say(f"point {running.point}: this array task, started again elsewhere, has brought it to its end")
                return
            self._cannot(running.point, running.attempt, error)
        else:
            self._write_down(end, running.run)

    def _cannot(self, point: int, attempt: int | None, error: OSError | str) -> None:
        why = error if isinstance(error, str) else f"{error.strerror or error}: {error.filename or 'its folder'}"
        say(f"point {point} is not finished, and fails by infrastructure: {one_line(why)}")
        self._write_down(cannot(point, attempt, one_line(why)), None)

    def _write_down(self, end: End, folder: RunFolder | None) -> None:
        """In the array task's journal, and to the source. `folder`: of the records that are archived."""
        over = folder is not None and end.next is None and not is_followed(folder, end.attempt)
        if folder is not None and over:
            self.archiving.vacate(folder)
        try:
            self._journal.end(end)
        except OSError as error:
            say(f"the end of point {end.point} cannot be noted in {self._pack.folder.events}: {error.strerror}")
            self._journal.lost(end.point)
        if end.next is not None:
            self._again.append(end.point)
            return
        self._tell_progress()
        try:
            self._source.ended(end)
        except (OSError, SlurmoptError) as error:
            self._is_in_trouble(error)
            return
        if folder is not None and over:
            self.archiving.add(folder)
            self.archiving.go_on()

    def _tell_progress(self) -> None:
        self._live.report(self._journal.ended, self._source.total, {})

    # ---- looking after -----------------------------------------------------------------------------------------------

    def _stop_where_asked(self) -> None:
        """Once: all points are told, by the signal that the parent got. Slurm may have told them already; two signals
        in a burst are one."""
        if self._told or not signals.requested():
            return
        self._told = True
        if signals.asked() == "TERM" and self._slurm is None:
            self._ask_slurm()
        for running in self._running:
            try:
                running.tell(signal.SIGTERM if signals.asked() == "TERM" else signal.SIGUSR1)
            except OSError as error:  # the stop file; the signal alone must do
                say(f"point {running.point} may not receive the request to stop: {error.strerror}")

    def _ask_slurm(self) -> None:
        try:
            self._slurm = SlurmRecord(self._pack.job, self._pack.folder.slurm_said(self._attempts.task_attempt))
        except OSError as error:
            say(f"Slurm is not asked why it ends this array task: {error.strerror}")

    def _look(self) -> None:
        self._looked = time.monotonic()
        self._look_at_cancelled()
        self.archiving.go_on()
        for running in list(self._running):
            running.look()
            self._look_at_memory(running)
            if watch.is_due(running, self._pack.call.hang_after):
                try:
                    running.watchdog = watch.start(running, self._pack)
                except OSError:  # no process is left: the next look tries again
                    continue

    def _look_at_cancelled(self) -> None:
        if self._looked - self._looked_at_cancelled < self._pack.call.heartbeat:
            return
        self._looked_at_cancelled = self._looked
        numbers = self._ownership.cancelled()
        for running in self._running:
            if running.point in numbers:
                running.end_soon(_KILL_SECONDS, causes.CANCELLED)

    def _look_at_memory(self, running: Running) -> None:
        bound = self._pack.memory
        if bound is None or running.cause is not None:
            return
        used = usage.memory(running.processes(), bound)
        if used > bound:
            share = f"its share of the array task's memory is {human_bytes(bound)}"
            running.end(causes.OUT_OF_MEMORY, f"out of memory: it uses {human_bytes(used)}, and {share}")
