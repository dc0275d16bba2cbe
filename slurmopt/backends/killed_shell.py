"""Notes the end of an attempt whose batch shell was killed before its verdict."""

from __future__ import annotations

import signal

from slurmopt.restart import causes, classify
from slurmopt.restart.evidence import Evidence
from slurmopt.run_folder import attempts as story
from slurmopt.run_folder import events
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.outcome import EXIT_STATUS, KILLED
from slurmopt.units import human_seconds

KILL_WAIT = 30.0
"""Seconds between SIGTERM and SIGKILL, Slurm's default for KillWait."""


def note_killed_shell(folder: RunFolder, number: int, cancelled: bool, exceeded: float | None) -> None:
    """Writes the `end` of the latest attempt, if it has none.

    `number`: the signal that ended the shell. `exceeded`: the time limit in seconds, if the attempt was to end for it.
    """
    numbers = folder.attempts()
    attempt = numbers[-1] if numbers else 0
    ends = [one.end for one in story.attempts(folder) if one.number == attempt and one.end is not None]
    if ends and ends[0].get("next") is None:
        return
    name = signal.Signals(number).name
    error, cause = f"the batch shell was ended by {name}", classify.of_killed_shell(Evidence(cancelled=cancelled))
    if exceeded is not None:
        limit = f"the time limit of {human_seconds(exceeded)}"
        error, cause = f"the ranks had not stopped {human_seconds(KILL_WAIT)} after {limit}", causes.TIME_LIMIT
    events.append(
        folder.events,
        "end",
        attempt=attempt,
        outcome=KILLED,
        exit_code=EXIT_STATUS[KILLED],
        error=error,
        cause=cause,
        next=None,
        reason=f"the batch shell, which brings the run back, was ended by {name}",
    )
