"""Writes a rank's heartbeat file; `progress` in this process and its children feeds it."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from slurmopt import log
from slurmopt.job import signals
from slurmopt.job.facts import gpus
from slurmopt.job.facts.rank_facts import RankFacts
from slurmopt.job.heartbeat import compilations
from slurmopt.job.heartbeat.activity import EVERY, Activity
from slurmopt.job.heartbeat.activity_clock import ENDED, LONGEST_NAME
from slurmopt.job.heartbeat.child_measurements import ChildMeasurements
from slurmopt.job.heartbeat.child_reports import EVERY_STEP, LAST_METRICS, MEASURED, PROGRESS, STOP_NOTICED, Inbox
from slurmopt.job.heartbeat.metric_history import MetricHistory
from slurmopt.job.heartbeat.training_meter import TrainingMeter
from slurmopt.job.watchdog.stacks import Stacks
from slurmopt.run_folder.access.files import make_folders
from slurmopt.run_folder.heartbeat import Heartbeat
from slurmopt.run_folder.outcome import FINISHED, REQUEUE, Outcome

_AT_MOST_EVERY = 1.0
_IDLE_SECONDS = 60.0
"""After so many seconds without a step, other signs of life are measured."""
_MOST_PHASES = 32
_NEWS_PER_SECOND = 100  # of all ranks together
_NOT_OURS = (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError)
"""What a datagram raises that no child of ours has sent."""


class Sinks(Protocol):
    """What takes the metrics of every step: see `slurmopt.job.sinks.feed`. Neither call waits for anything."""

    def put(self, at: float, step: int, numbers: dict[str, float]) -> None:
        """Takes the numbers of a step."""

    def flush(self) -> None:
        """Sends what was taken. Called about once a second."""


class HeartbeatWriter:
    """Writes the heartbeat file of one rank until `end`, and checks for external requests to stop until `close`. Times
    are seconds."""

    def __init__(
        self,
        path: Path,
        facts: RankFacts,
        every: float,
        watch: Callable[[], None],
        stacks: Stacks | None = None,
        launches: int = 1,
    ) -> None:
        """`watch` is called with every heartbeat. `stacks` is None if no watchdog runs. `launches`: as in
        `Heartbeat`."""
        self.pid = os.getpid()
        self.local_rank = facts.local_rank
        self._path = path
        self._every = every
        # A thousand ranks that each tell of every step once a second would keep the file system's servers busy.
        self._news_every = min(max(_AT_MOST_EVERY, facts.world_size / _NEWS_PER_SECOND), max(_AT_MOST_EVERY, every))
        self._watch = watch
        self._stacks = stacks
        self._heartbeat = Heartbeat(facts.rank, facts.world_size, facts.node, self.pid, every)
        self._heartbeat.phases["starting"] = self._heartbeat.started
        self._heartbeat.launches = launches
        self._heartbeat.gpus = gpus.of_rank(os.environ, facts)
        # Re-entrant: the second SIGTERM ends the rank from inside a signal handler.
        self._lock = threading.RLock()  # of the heartbeat's fields: held for microseconds, for training waits for it
        self._writing = threading.RLock()  # of the file
        self._news = False
        self._stepped = False
        self._activity = None if stacks is None else Activity(facts)
        self._moved = self._looked = time.monotonic()
        self._hurry = False
        self._closed = False
        self._complained = self._has_folder = False
        self.unwritten: OSError | None = None
        """Why the last heartbeat could not be written; None if it was written."""
        self.meter = TrainingMeter()
        """What this process measures of the training."""
        self._children = ChildMeasurements()
        self._history = MetricHistory()
        self._sinks: Sinks | None = None
        self._inbox = Inbox()

    def start(self) -> None:
        """Writes the first heartbeat, and starts the thread that writes the others."""
        self._write(self._measured(self._heartbeat))  # a folder that cannot be written may be back for the next one
        self._inbox.open()
        os.environ[PROGRESS] = self._inbox.name
        if self._stacks is not None:
            self._stacks.wind()
        threading.Thread(target=self._keep, name="slurmopt-heartbeat", daemon=True).start()

    def feed(self, sinks: Sinks) -> None:
        """Gives the metrics of every step to `sinks` from now on, those of the children included."""
        self._sinks = sinks
        self.meter.metrics.arrived = self._arrived
        os.environ[EVERY_STEP] = "1"

    def _arrived(self, at: float, step: int, numbers: dict[str, float]) -> None:
        """All metrics pass here, once each, when their numbers are there."""
        if self._sinks is not None:
            self._sinks.put(at, step, numbers)

    @property
    def phase(self) -> str:
        """What the rank does now."""
        return self._heartbeat.phase

    def enter(self, phase: str) -> None:
        """Sets what the rank does now: one of the phases of a heartbeat."""
        self.meter.clock.enter(phase)
        self.show(phase)

    def show(self, phase: str) -> None:
        """Shows what the rank does now, by a name that the training chose; its time is measured where it is spent."""
        with self._lock:
            beat = self._heartbeat
            beat.phase = phase[:LONGEST_NAME]
            if len(beat.phases) < _MOST_PHASES:
                beat.phases.setdefault(beat.phase, time.time())
            self._news = True

    def name_gpus(self) -> None:
        """Looks up the UUIDs of the rank's GPUs, in a thread, as a driver may not answer for a minute."""
        if self._heartbeat.gpus:
            threading.Thread(target=self._name_gpus, name="slurmopt-gpus", daemon=True).start()

    def _name_gpus(self) -> None:
        names = gpus.uuids(self._heartbeat.gpus)
        with self._lock:
            self._heartbeat.gpus, self._news = names, True

    def note_asked(self, who: str) -> None:
        """Writes at once who asked the rank to save and stop: `USR1`, `TERM` or `file`. The first one is kept."""
        with self._lock:
            self._heartbeat.asked = self._heartbeat.asked or who
        self._beat_now()

    def tell_address(self, address: str) -> None:
        """Writes at once the address at which this node answers the health checks of other nodes."""
        with self._lock:
            self._heartbeat.address = address
        self._beat_now()

    def tell_awaited(self, what: str | None) -> None:
        """Writes at once what this rank waits for before it starts its task; None if it waits no more."""
        with self._lock:
            self._heartbeat.awaits = what
        self._beat_now()

    def _beat_now(self) -> None:
        self._hurry = True
        self._inbox.wake()

    def report(self, step: int, total: int | None, metrics: dict[str, Any]) -> None:
        """Takes a step in; the thread writes it within about a second, where there are a hundred ranks at most. Of
        `metrics` a GPU may still compute some: they follow once they are there."""
        self._take_step(step, total, self.meter.stepped(step, metrics))
        compilations.watch(self)

    def _take_step(self, step: int, total: int | None, numbers: dict[str, float]) -> None:
        with self._lock:
            beat = self._heartbeat
            if beat.step is None or step > beat.step:
                beat.step_time = time.time()
                if beat.step is None:
                    beat.first_step, beat.first_step_time = step, beat.step_time
                self._stepped = True
            beat.step = step
            if total is not None:
                beat.total_steps = total
            self._take_numbers(numbers)
            self._news = True

    def _take_numbers(self, numbers: dict[str, float]) -> None:
        if numbers:
            self._heartbeat.metrics.update(numbers)
            if self._heartbeat.rank == 0:
                self._history.add(numbers)

    def catch_up(self) -> None:
        """Reads the reports that the children have sent until now."""
        with self._lock:
            for report in self._inbox.reports():
                self._take_report(report)

    def moved(self, count: int) -> None:
        """Adds to the bytes that were moved; it is written as steps are."""
        with self._lock:
            self._heartbeat.moved_bytes += count
            self._news = True

    def end(self, outcome: Outcome) -> None:
        """Writes the last heartbeat, with the outcome; nothing is written after it."""
        with self._writing, self._lock:
            if self._heartbeat.outcome is not None:
                return
            self.catch_up()  # the last step of a command that has just ended
            self._take_numbers(self.meter.metrics.come(LAST_METRICS))
            self.meter.clock.enter(ENDED)
            if self._heartbeat.step is None and outcome.outcome in (FINISHED, REQUEUE):
                self.meter.clock.had_no_steps()
            self._heartbeat.phase = ENDED
            self._heartbeat.phases[ENDED] = time.time()
            self._heartbeat.outcome = outcome.as_dict()
            self._news = self._hurry = False
            self._write(self._measured(self._heartbeat))

    def close(self) -> None:
        """Ends the looks. Called once the rank waits for nobody any more."""
        self._closed = True

    def _keep(self) -> None:
        written = time.monotonic()
        while not self._closed:
            if self._inbox.wait(_AT_MOST_EVERY):
                self.catch_up()
            if self._sinks is not None:
                self._sinks.flush()
            if self._inbox.is_flooded:
                self._inbox.is_flooded = False
                time.sleep(_AT_MOST_EVERY / 10)
            age = time.monotonic() - written
            if age >= self._every or (self._news and age >= self._news_every) or self._hurry:
                written = time.monotonic()
                if self._heartbeat.outcome is None:
                    self._answer()
                    self._beat()
                elif self._closed:
                    return
                with self._complaining("the run folder cannot be looked at"):
                    self._watch()

    def _answer(self) -> None:
        """Looks for the watchdog's request if it may concern this rank: it made no step since its last heartbeat.
        Before the heartbeat, so that the watchdog knows by that what has been done."""
        if self._stacks is None:
            return
        self._stacks.wind()
        stepped, self._stepped = self._stepped, False
        if not stepped:
            beat = self._heartbeat
            self._stacks.answer(beat.rank, beat.step, beat.phase)
        self._look_for_life(stepped)

    def _look_for_life(self, stepped: bool) -> None:
        """An evaluation or a compilation may take long, and say nothing."""
        now = time.monotonic()
        if stepped:
            self._moved = now
        if self._activity is None or now - self._moved < _IDLE_SECONDS:
            return
        if self._looked < self._moved:
            self._activity.forget()
        elif now - self._looked < EVERY:
            return
        self._looked = now
        if self._activity.seen():
            self._heartbeat.active += 1

    def _take_report(self, data: bytes) -> None:
        if data == STOP_NOTICED:
            signals.tell()
            return
        with contextlib.suppress(*_NOT_OURS):
            report = json.loads(data)
            if not isinstance(report, dict):
                self._take_childs_step(*report)
            elif MEASURED in report:
                self._children.take(report[MEASURED], self.meter.clock.spent())
            elif (steps := report.get("steps")) is not None:
                for at, step, numbers in steps:
                    self._arrived(float(at), int(step), {str(name): float(each) for name, each in numbers.items()})
            elif (phase := str(report["phase"])) != ENDED:
                self.show(phase)

    def _take_childs_step(self, step: int, total: int | None, metrics: dict[str, Any]) -> None:
        numbers = {str(name): float(value) for name, value in metrics.items()}
        self._take_step(int(step), None if total is None else int(total), numbers)
        self.meter.clock.end_first_step()

    def _measured(self, beat: Heartbeat) -> Heartbeat:
        """A copy of the heartbeat with what the rank has spent and counted until now."""
        return replace(
            beat,
            metrics=dict(beat.metrics),
            history=self._history.values(),
            phases=dict(beat.phases),
            spent=self._children.spent(self.meter.clock.spent()),
            counted=self._children.counted(self.meter.counters.totals()),
        )

    def measured(self) -> Heartbeat:
        """The heartbeat as of now."""
        with self._lock:
            return self._measured(self._heartbeat)

    def _beat(self) -> None:
        with self._writing:
            with self._lock:
                self._news = self._hurry = False
                self._take_numbers(self.meter.metrics.come())
                now = self._measured(self._heartbeat)
            if now.outcome is None:
                self._write(now)

    def _write(self, beat: Heartbeat) -> None:
        with self._complaining("the heartbeat cannot be written"):
            try:
                if not self._has_folder:
                    make_folders(self._path.parent)
                    self._has_folder = True
                beat.write(self._path)
                self.unwritten = None
            except OSError as error:
                self.unwritten = error
                raise

    @contextlib.contextmanager
    def _complaining(self, what: str) -> Iterator[None]:
        """A full or absent file system must end neither the training nor the heartbeats: it is said once."""
        try:
            yield
        except OSError as error:
            if not self._complained:
                with contextlib.suppress(OSError):  # the log is on that file system too
                    log.warning(f"{what}: {error}")
            self._complained = True
