"""The rows of the board from the statuses of runs and sweeps."""

from __future__ import annotations

from collections import deque

from slurmopt.board.rows.row import Row, shown_metric
from slurmopt.errors import SlurmoptError, one_line, with_place
from slurmopt.run_folder.json_values import number
from slurmopt.run_folder.sweep_layout import SweepFolder
from slurmopt.runs.ownership import owner_of
from slurmopt.runs.status.account import headline
from slurmopt.runs.status.progress import stands_still
from slurmopt.runs.status.query import Status
from slurmopt.units import human_seconds


def run_row(status: Status, curve: deque[tuple[int, float]], gpu: tuple[float | None, ...]) -> Row:
    """The row of a run. Adds the value of the shown metric to `curve`, where the step is a new one; to an empty one
    also the values before it."""
    progress, journal = status.progress, status.journal
    name = shown_metric(progress.metrics)
    if name is not None and not curve:
        curve.extend((-1, value) for value in progress.before(name))
    if name is not None and progress.step is not None and (not curve or curve[-1][0] != progress.step):
        curve.append((progress.step, progress.metrics[name]))
    return Row(
        path=status.folder.path,
        name=status.folder.name,
        id=status.folder.id,
        state=status.state,
        detail=_detail(status),
        created=journal.created,
        ended=number((journal.ended or {}).get("time")),
        elapsed=status.elapsed,
        step=progress.step,
        total=progress.total_steps,
        rate=progress.steps_per_second if status.alive else None,
        left=progress.eta_seconds if status.alive else None,
        metrics=progress.metrics,
        curve=tuple(value for _, value in curve) if len(curve) > 1 else (),
        gpu=gpu,
        job=journal.job or "",
        attempt=journal.attempt.number if journal.attempt else None,
        nodes=status.nodes or "",
        owner=status.owner or "",
    )


def _detail(status: Status) -> str:
    progress = status.progress
    if status.alive and stands_still(progress) and progress.since_step is not None:
        return f"no step for {human_seconds(progress.since_step)}"
    waits = progress.awaits if progress.awaits and status.alive else ""
    if waits and progress.phase != "staging":
        waits = f"waits: {waits}"
    phase = progress.phase if status.state == "running" and progress.phase not in (None, "running", "ended") else ""
    return "; ".join(filter(None, (headline(status), waits))) or phase or ""


def sweep_row(sweep: SweepFolder) -> Row:
    """The row of a sweep; of one that cannot be read, why."""
    from slurmopt.sweeps.status.query import sweep_states
    from slurmopt.sweeps.status.view import over, pace, state_counts

    try:
        states = sweep_states(sweep)
        owner = owner_of(sweep.run) or ""
    except (SlurmoptError, OSError) as error:
        return Row(sweep.path, sweep.name, sweep.id, True, "unknown", one_line(with_place(error)))
    counts, current = states.counts(), pace(states)
    return Row(
        path=sweep.path,
        name=sweep.name,
        id=sweep.id,
        is_sweep=True,
        state=states.state,
        detail=state_counts(counts),
        created=states.created,
        step=over(counts),
        total=states.count,
        rate=current.per_minute if states.alive else None,
        left=current.left,
        job=next((entry.job for entry in reversed(states.submissions) if entry.job), ""),
        owner=owner,
    )
