"""Reads the latest attempt of each point from the journals, each of which is read once and only as far as needed."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from slurmopt.run_folder import attempts, events, json_values
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.outcome import FINISHED
from slurmopt.run_folder.sweep_layout import SweepFolder
from slurmopt.runs import journal as journals
from slurmopt.runs.journal import Journal
from slurmopt.sweeps.status.point_event import ABSENT, PointEvent
from slurmopt.sweeps.status.point_events import Reader, of_event, returns

_END = b'"event": "end"'
_ATTEMPT = b'"event": "attempt"'
_CANCEL = b'"event": "cancel'
_OF_POINT = b'"event": "point"'
_FINISHED = b'"outcome": "finished"'
_PIECE = 1 << 16


@dataclass(slots=True)
class Trace:
    """The latest attempt of a point, from its own journal or from that of its array task."""

    job: str | None
    """The array task that it ran in, `A_a`."""
    attempt: int | None
    started: float | None
    end: PointEvent | None = None
    """How its latest attempt ended."""
    journal: Journal | None = None
    """The point's own journal, where its state must be derived from that."""


@dataclass
class Task:
    """An array task that several points share."""

    submission: int
    number: int
    journal: Journal
    started: dict[int, PointEvent] = field(default_factory=dict)
    """Point → the start of its latest attempt in this task."""
    ended: dict[int, PointEvent] = field(default_factory=dict)
    """Point → the end of that attempt."""
    going: dict[int, Trace] = field(default_factory=dict)
    """Points that have not ended for good."""

    def trace(self, point: int) -> Trace:
        """The point's latest attempt in this task."""
        began, end = self.started.get(point), self.ended.get(point)
        latest = end or began
        return Trace(self.journal.job, latest.attempt if latest else None, began.time if began else None, end)

    def going_on(self, points: dict[int, Trace]) -> Task:
        """The task with only these unfinished points."""
        return Task(self.submission, self.number, self.journal, going=points)


def of_points(sweep: SweepFolder, reader: Reader) -> Iterator[tuple[int, Trace]]:
    """The numbers and latest attempts of points that are array tasks themselves and have started."""
    base = os.fspath(sweep.points)
    for name in _names(sweep.points):
        if name.isascii() and name.isdecimal():
            trace = _read(base, name, reader)
            if trace is not None:
                yield int(name), trace


def _names(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))  # mostly in the order of the points' numbers
    except FileNotFoundError:
        return []


def _read(base: str, name: str, reader: Reader) -> Trace | None:
    path = f"{base}/{name}/events.jsonl"
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        journal = Journal(RunFolder(Path(base, name)), problem=f"cannot read events.jsonl: {error.strerror or error}")
        return Trace(None, None, None, journal=journal)
    try:
        text = os.read(descriptor, _PIECE) if stat.S_ISREG(os.fstat(descriptor).st_mode) else b""
    finally:
        os.close(descriptor)
    folder = RunFolder(Path(base, name))
    if len(text) == _PIECE:
        try:
            text = _without_checkpoints(folder.events)
        except OSError:  # reading the journal gives the reason
            return Trace(None, None, None, journal=journals.read(folder))
    return _ended(text, reader) or _open(folder, text)


def _without_checkpoints(path: Path) -> bytes:
    """The lines of a long journal that are about attempts."""
    return b"\n".join([*events.without_checkpoints(path), b""])


def _ended(text: bytes, reader: Reader) -> Trace | None:
    """The attempt of a point whose last line is an unambiguous `end`, as with most points: two lines suffice then."""
    last = text[text.rfind(b"\n", 0, -1) + 1 :]
    if _END not in last or _CANCEL in text:
        return None
    at = text.rfind(_ATTEMPT)
    line = text[text.rfind(b"\n", 0, at) + 1 : text.find(b"\n", at)] if at >= 0 else b""
    parsed = reader.read([line, last])
    if len(parsed) != 2:
        return None
    attempt, end = parsed
    if end.event != "end" or end.next == ABSENT or returns(end):
        return None
    if end.attempt != attempt.attempt or end.by != ABSENT:
        return None
    return Trace(json_values.text(attempt.job), attempt.attempt, attempt.time, end)


def _open(folder: RunFolder, text: bytes) -> Trace:
    lines = [line for line in text.splitlines() if events.OF_CHECKPOINTS not in line]
    if _FINISHED in text and (trace := _finished(lines)) is not None:
        return trace
    journal = journals.take(Journal(folder), lines)
    attempt = journal.attempt
    number, started = (attempt.number, attempt.started) if attempt else (None, None)
    return Trace(journal.job, number, started, journal=journal)


def _finished(lines: list[bytes]) -> Trace | None:
    """The attempt that finished the point. It counts even if Slurm has started the array task again since."""
    for attempt in attempts.of_events(events.parse(lines)):
        end = attempt.end
        if end is not None and end.get("outcome") == FINISHED and attempt.since_retry and not journals.returns(end):
            return Trace(json_values.text(attempt.job), attempt.number, attempt.started, of_event(end))
    return None


def task_numbers(sweep: SweepFolder) -> list[tuple[int, int]]:
    """The array tasks that several points share: submission and number of each, in order."""
    parts = [name.partition("-") for name in _names(sweep.tasks)]
    return sorted(
        (int(submission), int(task)) for submission, _, task in parts if submission.isdecimal() and task.isdecimal()
    )


def of_task(sweep: SweepFolder, submission: int, number: int, reader: Reader) -> Task:
    """One array task that several points share, with all its points."""
    folder = sweep.task(submission, number)
    journal = Journal(folder)
    task = Task(submission, number, journal)
    try:
        for block in events.blocks(folder.events):
            lines = block.splitlines()
            others = [line for line in lines if _OF_POINT not in line]
            journals.take(journal, others)
            _take_points(task, lines if not others else [line for line in lines if _OF_POINT in line], reader)
    except OSError as error:
        problem = f"cannot read events.jsonl: {error.strerror or error}"
        return Task(submission, number, Journal(folder, problem=problem))
    return task


def _take_points(task: Task, lines: Sequence[bytes], reader: Reader) -> None:
    started, ended = task.started, task.ended
    for event in reader.read(lines):
        if event.point is None:
            continue
        if event.state == "started":
            started[event.point] = event
            if event.point in ended:
                del ended[event.point]
        elif event.state == "ended":
            ended[event.point] = event
