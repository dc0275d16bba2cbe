"""Notes on what the series of a run lack: nodes without one, and attempts of which they tell only a part."""

from __future__ import annotations

from collections.abc import Sequence

from slurmopt.errors import one_line
from slurmopt.ledger.record import AttemptRecord
from slurmopt.report.run_record import RunRecord
from slurmopt.run_folder.json_values import number
from slurmopt.run_folder.series.series import Series
from slurmopt.units import human_seconds

_MEASURED_BY = 60.0
"""Seconds after which a node has a series: its first row comes after ten, or after `monitor.every`."""
_MOST_COVERED = 0.8
"""Of the time since the sampler began. Above it, the rest is its last row, and what clocks differ by."""
_LEAST_GAP = 30.0


def without_series(record: RunRecord) -> list[str]:
    """The nodes of the newest attempt that nothing measured, where others were."""
    newest = record.attempts[-1] if record.attempts else None
    measured = record.series.get(newest.number, {}) if newest is not None else {}
    if newest is None or not measured or newest.end - newest.start < _MEASURED_BY:
        return []
    missing = sorted(node for node in newest.gpus if node not in measured)
    task = record.config.get("task")
    is_whole = isinstance(task, dict) and task.get("per") == "job"
    why = "task.per=job: slurmopt starts no process there" if is_whole else "they have no series"
    return [f"not measured: {listed(missing)}: {why}"] if missing else []


def measured_in_part(record: RunRecord) -> list[str]:
    """The nodes whose rows tell less of an ended attempt than there was to measure: lines or a file are lost, or the
    sampler died."""
    found = [
        f"{node} in attempt {attempt.number} ({human_seconds(sum(series.seconds))} of {human_seconds(length)})"
        for attempt in record.attempts
        if not attempt.alive
        for node, series in sorted(record.series.get(attempt.number, {}).items())
        if (length := _gap(attempt, series)) is not None
    ]
    return [f"measured in part: {listed(found)}: rows of the series are missing"] if found else []


def _gap(attempt: AttemptRecord, series: Series) -> float | None:
    """How long there was something to measure, if the rows tell much less than that."""
    began = number(series.facts.get("started"))
    length = attempt.end - max(attempt.start, began) if began is not None else 0.0
    covered = sum(series.seconds)
    return length if covered < _MOST_COVERED * length and length - covered > _LEAST_GAP else None


def listed(nodes: Sequence[str]) -> str:
    more = f" and {len(nodes) - 3} more" if len(nodes) > 3 else ""
    return one_line(", ".join(nodes[:3])) + more
