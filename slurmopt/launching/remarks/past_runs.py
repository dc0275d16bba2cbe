"""What earlier runs of the same name say about a launch, in lines that the launch prints."""

from __future__ import annotations

from slurmopt.config.schema import Settings
from slurmopt.run_folder.attempts import attempts
from slurmopt.run_folder.json_values import number
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.outcome import FINISHED
from slurmopt.run_folder.sweep_layout import is_sweep
from slurmopt.runs.all_runs import created, runs_of_name
from slurmopt.runs.journal import read as read_journal
from slurmopt.runs.ownership import owner_of
from slurmopt.units import human_seconds, seconds

_MOST = 5
"""Runs whose journals are read, newest first."""


def short_time_limit(settings: Settings, run: RunFolder) -> str | None:
    """A line if the last finished run of this name took longer than the time limit; else None."""
    if settings.resources.time is None:
        return None
    limit = seconds(settings.resources.time)
    for past in sorted(runs_of_name(run.path.parent), key=created, reverse=True)[:_MOST]:
        if is_sweep(past.path) or owner_of(past) is not None:
            continue
        if (took := _seconds_to_finish(past)) is not None:
            return _line(limit, took, past) if took > limit else None
    return None


def _seconds_to_finish(run: RunFolder) -> float | None:
    """How long the attempts of a run that finished were on their nodes; None for any other run."""
    end = read_journal(run).ended
    if end is None or end.get("outcome") != FINISHED:
        return None
    total = 0.0
    for attempt in attempts(run):
        ended = number((attempt.end or {}).get("time"))
        if attempt.started is not None and ended is not None:
            total += max(0.0, ended - attempt.started)
    return total


def _line(limit: int, took: float, past: RunFolder) -> str:
    return (
        f"resources.time: {human_seconds(limit)} is less than the {human_seconds(took)} that {past.name}/{past.id} "
        "took: at the limit the run is stopped, and goes on in another attempt if it has saved its state"
    )
