"""Reads the points and array tasks of a sweep into records, briefly: a sweep may have many thousands."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from slurmopt.errors import one_line, with_place
from slurmopt.grid.point_ranges import Ranges
from slurmopt.grid.records import Records
from slurmopt.ledger.record import AttemptRecord
from slurmopt.report.records import reading, run_attempts
from slurmopt.report.records.allocation import allocation
from slurmopt.report.records.packs import TaskAttempt
from slurmopt.report.run_record import Place, RunRecord
from slurmopt.run_folder import attempts as journal_attempts
from slurmopt.run_folder import events
from slurmopt.run_folder.attempts import Attempt, Event
from slurmopt.run_folder.json_values import as_int
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.sweep_layout import SweepFolder
from slurmopt.runs import stored_config
from slurmopt.runs.journal import Journal
from slurmopt.runs.status import progress
from slurmopt.runs.status.progress import Progress
from slurmopt.runs.status.query import Status
from slurmopt.sweeps.status.parallel import parallel_map
from slurmopt.sweeps.status.point_journals import task_numbers
from slurmopt.sweeps.status.point_states import Point, SweepStates

_FEW = 64
"""Points; as many are read sooner than processes are forked."""
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class _InPack(reading.InBrief):
    """As InBrief; what the point was allocated is told by its array task."""

    tasks: Mapping[Place, TaskAttempt]

    def of_attempt(self, run: RunFolder, attempt: Attempt, event: Event, record: RunRecord) -> reading.Read:
        if (task := self.tasks.get(run_attempts.place(event) or ("", -1))) is not None:
            event |= {name: task.event[name] for name in ("gpus", "cpus") if name in task.event}
            record.gpu = task.gpu or record.gpu
        return super().of_attempt(run, attempt, event, record)


def task_attempts(states: SweepStates, problems: list[str]) -> dict[Place, TaskAttempt]:
    """The attempts of the array tasks that run several points."""
    sweep = states.sweep
    numbers = task_numbers(sweep)
    resources = stored_config.group(sweep.run, "resources") if numbers else {}
    found: dict[Place, TaskAttempt] = {}
    for submission, task in numbers:
        run = sweep.task(submission, task)
        try:
            journal = list(_of_attempts(run))
        except OSError as error:
            problems.append(f"array task {run.path.name}: its journal cannot be read: {one_line(with_place(error))}")
            continue
        for attempt in _task_attempts(run, journal, resources, states.now):
            found[run.path.name, attempt.record.number] = attempt
    return found


def _of_attempts(run: RunFolder) -> Iterator[Event]:
    """The events of an array task, but for those on its points."""
    for block in events.blocks(run.events):
        yield from events.parse(line for line in block.splitlines() if b'"event": "point"' not in line)


def _task_attempts(
    run: RunFolder, journal: Sequence[Event], resources: Mapping[str, Any], now: float
) -> Iterator[TaskAttempt]:
    started = {as_int(event.get("attempt")): event for event in journal if event["event"] == "attempt"}
    for attempt in journal_attempts.of_events(journal):
        if attempt.started is None:
            continue
        event = started.get(attempt.number, {})
        beat = progress.progress(run, attempt.number) if attempt.ended is None else None
        alive = attempt.end is None and progress.is_fresh(run, beat, now)
        end = now if alive else attempt.ended or (beat.heartbeat if beat else None) or attempt.started
        had = allocation(attempt.nodes, event, resources, {}, ())
        record = AttemptRecord(attempt.number, attempt.started, end, had.units, unit=had.unit, alive=alive)
        yield TaskAttempt(record, event, reading.measured_gpu(run, attempt.number))


def own_points(states: SweepStates, among: Ranges | None = None) -> dict[int, RunRecord]:
    """The points that are array tasks themselves and have started; with `among`, those of them."""
    sweep = states.sweep
    known = {point.number: point for point in states.known(among)}
    numbers = [at for at in _numbers(sweep) if among is None or at in among]
    runs = [_record(states, known.get(at), sweep.point(at), at) for at in numbers]

    def fill(record: RunRecord) -> RunRecord:
        return _filled(record, reading.InBrief())

    return {int(record.folder.path.name): record for record in _mapped(fill, runs)}


def _numbers(sweep: SweepFolder) -> list[int]:
    try:
        names = os.listdir(sweep.points)
    except FileNotFoundError:
        return []
    numbers = sorted(int(name) for name in names if name.isascii() and name.isdecimal())
    return [at for at in numbers if os.path.lexists(sweep.point(at).events)]


def _filled(record: RunRecord, how: reading.Reading) -> RunRecord:
    try:
        journal = list(events.parse(journal_attempts.lines_on_attempts(record.folder.events)))
        run_attempts.add_attempts(record, record.folder, journal, how)
    except (OSError, RecursionError) as error:  # one of many: the others are shown
        record.problems.append(one_line(with_place(error) if isinstance(error, OSError) else str(error)))
    return record


def packed_points(states: SweepStates, tasks: Mapping[Place, TaskAttempt]) -> dict[int, RunRecord]:
    """The points that array tasks started themselves."""
    sweep, records, how = states.sweep, Records(states.sweep), _InPack(tasks)

    def read(point: Point) -> RunRecord | None:
        record = _record(states, point, sweep.point(point.number), point.number)
        try:
            running = records.running(point.number)
            journal = records.journal(point.number)
            run_attempts.add_attempts(record, running or record.folder, journal, how)
        except (OSError, RecursionError) as error:
            record.problems.append(one_line(with_place(error) if isinstance(error, OSError) else str(error)))
        return record if record.attempts or record.problems else None

    found = _mapped(read, list(states.known()))
    return {int(record.folder.path.name): record for record in found if record is not None}


def _mapped(work: Callable[[_Item], _Result], items: Sequence[_Item]) -> Iterator[_Result]:
    return parallel_map(work, items) if len(items) > _FEW else map(work, items)


def _record(states: SweepStates, point: Point | None, folder: RunFolder, at: int) -> RunRecord:
    journal = Journal(folder, created=states.created)
    state, detail = (point.state, point.detail) if point is not None else ("unknown", None)
    return RunRecord(Status(journal, state, detail, Progress(), None, states.now))
