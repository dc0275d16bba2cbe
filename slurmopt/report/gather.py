"""Reads run folders into RunRecords. Nothing is written, and what cannot be read becomes a line in `problems`."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from slurmopt.errors import SlurmoptError, labelled, one_line, with_place
from slurmopt.grid.point_ranges import Ranges
from slurmopt.grid.records import readable
from slurmopt.report.records import reading, run_attempts, sweep_points
from slurmopt.report.records.accounting_check import ask_accounting
from slurmopt.report.records.checkpoint_totals import count_checkpoints
from slurmopt.report.records.packs import share_out
from slurmopt.report.run_record import RunRecord
from slurmopt.report.sweep_record import SweepRecord
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.sweep_layout import SweepFolder
from slurmopt.runs import stored_config
from slurmopt.runs.status import query
from slurmopt.runs.status.query import Status
from slurmopt.sweeps.status.parallel import parallel_map
from slurmopt.sweeps.status.query import sweep_states


def gather(run: RunFolder, series: bool = True, accounting: bool = False) -> RunRecord:
    """The record of one run, or of a point of a sweep, with all that was read.

    `series`: reads what the samplers measured too. `accounting`: asks sacct what the jobs were allocated, takes from it
    the ends that no attempt told, and compares; where the site keeps no accounting, a line in `problems` says so.
    """
    (status,), problem = query.gather([run])
    record = RunRecord(status)
    if problem is not None:
        record.problems.append(f"Slurm was not asked, so this is what the journal says: {one_line(problem)}")
    record.config, why = stored_config.whole_or_why(status.folder)
    if why is not None:
        record.problems.append(f"its config.yaml cannot be read, so what it asked for is not known: {why}")
    run_attempts.fill(record, reading.InDetail(series))
    if accounting:
        ask_accounting(record)
    with contextlib.suppress(OSError):  # `fill` has told
        count_checkpoints(readable(record.folder).events, record.facts)
    return record


def gather_many(runs: Sequence[RunFolder]) -> tuple[list[RunRecord], str | None]:
    """The records of many runs, for their ledgers, and why Slurm could not be asked, if so.

    Read from their journals; heartbeats are read only of attempts whose `end` does not tell what the ranks spent, and
    of many ranks only some. `config`, `heartbeats` and `series` stay empty.
    """
    statuses, problem = query.gather(list(runs))
    return list(parallel_map(_briefly, statuses)), problem


def gather_sweep(sweep: SweepFolder, among: Ranges | None = None) -> SweepRecord:
    """The record of a sweep: its points as by `gather_many`, and what its array tasks used besides; with `among`, the
    record of these points alone.

    Raises ConfigError where sweep.json or `cancelled` is damaged, OSError where its journal cannot be read.
    """
    record = _sweep_record(sweep, among)
    if record.states.problem is not None:
        record.problems.append(
            f"Slurm was not asked, so this is what the journals say: {one_line(record.states.problem)}"
        )
    return record


def gather_sweeps(sweeps: Sequence[SweepFolder]) -> tuple[list[SweepRecord], list[str], str | None]:
    """The records of many sweeps, a line for each one that cannot be read, and why Slurm could not be asked, if so."""
    records: list[SweepRecord] = []
    unread: list[str] = []
    for sweep in sweeps:
        try:
            records.append(_sweep_record(sweep, None))
        except (SlurmoptError, OSError, RecursionError) as error:  # one of many: the others are shown
            why = with_place(error) if isinstance(error, OSError) else str(error)
            unread.append(one_line(labelled(f"{sweep.name}/{sweep.id}", f"it cannot be read: {why}")))
    return records, unread, next((one.states.problem for one in records if one.states.problem), None)


def _sweep_record(sweep: SweepFolder, among: Ranges | None) -> SweepRecord:
    record = SweepRecord(sweep_states(sweep), among=among)
    tasks = sweep_points.task_attempts(record.states, record.problems)
    record.points = sweep_points.own_points(record.states, among)
    if tasks:  # points that were not asked for have their part of the time too
        packed = sweep_points.packed_points(record.states, tasks)
        between = share_out(tasks, packed)
        record.points |= {at: point for at, point in packed.items() if among is None or at in among}
        if among is None:
            record.between.add(between)
        elif between:
            record.problems.append(
                "what the array tasks used while none of their points ran is left out; the report on the sweep has it"
            )
    return record


def _briefly(status: Status) -> RunRecord:
    record = RunRecord(status)
    try:
        run_attempts.fill(record, reading.InBrief())
    except (OSError, RecursionError) as error:  # one of many: the others are shown
        record.problems.append(
            f"it cannot be read: {one_line(with_place(error) if isinstance(error, OSError) else str(error))}"
        )
    return record
