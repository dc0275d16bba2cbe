"""What points have said of themselves: each journal read once, and only as far as needed."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slurmopt.folder import events
from slurmopt.folder.layout import RunFolder
from slurmopt.folder.outcome import FINISHED
from slurmopt.folder.sweep import SweepFolder
from slurmopt.runs import journal as journals
from slurmopt.runs.journal import Journal, returns, whole
from slurmopt.survival import story
from slurmopt.survival.story import number as seconds

_END = b'"event": "end"'
_ATTEMPT = b'"event": "attempt"'
_CANCEL = b'"event": "cancel'
_OF_POINT = b'"event": "point"'
_FINISHED = b'"outcome": "finished"'
_PIECE = 1 << 16


@dataclass(slots=True)
class Trace:
    """The last word on a point: its own, or that of the parent which started it."""

    job: str | None
    """The array task that it ran in, `A_a`."""
    attempt: int | None
    started: float | None
    end: dict[str, Any] | None = None
    """How its latest attempt ended."""
    journal: Journal | None = None
    """The point's own, where only that tells its state."""


@dataclass
class Task:
    """An array task that starts its points itself."""

    submission: int
    number: int
    journal: Journal
    points: dict[int, Trace] = field(default_factory=dict)


def of_points(sweep: SweepFolder) -> dict[int, Trace]:
    """Of points that are array tasks of their own, and have started: number → its last word."""
    base = os.fspath(sweep.points)
    found = {}
    for name in _names(sweep.points):
        if name.isascii() and name.isdecimal():
            trace = _read(base, name)
            if trace is not None:
                found[int(name)] = trace
    return found


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []


def _read(base: str, name: str) -> Trace | None:
    path = f"{base}/{name}/events.jsonl"
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        journal = Journal(RunFolder(Path(base, name)), problem=f"cannot read events.jsonl: {error.strerror or error}")
        return Trace(None, None, None, journal=journal)
    try:
        text = piece = os.read(descriptor, _PIECE)
        while len(piece) == _PIECE:
            text += (piece := os.read(descriptor, _PIECE))
    except OSError:  # a folder by that name, say
        text = b""
    finally:
        os.close(descriptor)
    return _ended(text) or _open(RunFolder(Path(base, name)), text)


def _ended(text: bytes) -> Trace | None:
    """Most points have ended with a plain verdict in the last line: then two lines tell all."""
    last = text[text.rfind(b"\n", 0, -1) + 1 :]
    if _END not in last or _CANCEL in text:
        return None
    at = text.rfind(_ATTEMPT)
    line = text[text.rfind(b"\n", 0, at) + 1 : text.find(b"\n", at)] if at >= 0 else b""
    try:
        end, attempt = json.loads(last), json.loads(line)
    except (ValueError, RecursionError):
        return None
    plain = isinstance(end, dict) and isinstance(attempt, dict) and end.get("event") == "end" and not returns(end)
    if not plain or "next" not in end or end.get("attempt") != attempt.get("attempt") or "by" in end:
        return None
    return Trace(journals.text(attempt.get("job")), whole(attempt.get("attempt")), _time(attempt), end)


def _time(event: dict[str, Any]) -> float | None:
    return seconds(event.get("time"))


def _open(folder: RunFolder, text: bytes) -> Trace:
    lines = [line for line in text.splitlines() if journals.OF_CHECKPOINTS not in line]
    if _FINISHED in text and (trace := _finished(lines)) is not None:
        return trace
    journal = journals.take(Journal(folder), lines)
    attempt = journal.attempt
    number, started = (attempt.number, attempt.started) if attempt else (None, None)
    return Trace(journal.job, number, started, attempt.end if attempt else None, journal)


def _finished(lines: list[bytes]) -> Trace | None:
    """A point that has finished stays so: when Slurm starts its array task again, that attempt has nothing to do."""
    for attempt in story.of_events(list(events.parse(lines))):
        end = attempt.end
        if end is not None and end.get("outcome") == FINISHED and attempt.since_retry and not returns(end):
            return Trace(journals.text(attempt.job), attempt.number, attempt.started, end)
    return None


def of_tasks(sweep: SweepFolder) -> Iterator[Task]:
    """Of array tasks that start their points themselves."""
    for name in _names(sweep.tasks):
        submission, _, number = name.partition("-")
        if submission.isdecimal() and number.isdecimal():
            yield _task(sweep, int(submission), int(number))


def _task(sweep: SweepFolder, submission: int, number: int) -> Task:
    folder = sweep.task(submission, number)
    journal = Journal(folder)
    try:
        lines = events.lines(folder.events)
    except OSError as error:
        journal.problem = f"cannot read events.jsonl: {error.strerror or error}"
        return Task(submission, number, journal)
    task = Task(submission, number, journals.take(journal, [line for line in lines if _OF_POINT not in line]))
    for event in events.parse(line for line in lines if _OF_POINT in line):
        _note(task, event)
    return task


def _note(task: Task, event: dict[str, Any]) -> None:
    point, state = whole(event.get("point")), event.get("state")
    if point is None:
        return
    if state == "started":
        task.points[point] = Trace(task.journal.job, whole(event.get("attempt")), _time(event))
    elif state == "ended":
        known = task.points.get(point)
        started = known.started if known else None
        task.points[point] = Trace(task.journal.job, whole(event.get("attempt")), started, event)
