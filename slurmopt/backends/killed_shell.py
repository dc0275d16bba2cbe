"""Notes the end of an attempt whose batch shell was killed before its verdict."""

from __future__ import annotations

import signal

from slurmopt.restart import classify
from slurmopt.restart.evidence import Evidence
from slurmopt.run_folder import attempts as story
from slurmopt.run_folder import events
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.outcome import EXIT_STATUS, KILLED


def note_killed_shell(folder: RunFolder, number: int, cancelled: bool) -> None:
    """Writes the `end` of the latest attempt, if it has none. `number`: the signal that ended the shell."""
    numbers = folder.attempts()
    attempt = numbers[-1] if numbers else 0
    ends = [one.end for one in story.attempts(folder) if one.number == attempt and one.end is not None]
    if ends and ends[0].get("next") is None:
        return
    name = signal.Signals(number).name
    events.append(
        folder.events,
        "end",
        attempt=attempt,
        outcome=KILLED,
        exit_code=EXIT_STATUS[KILLED],
        error=f"the batch shell was ended by {name}",
        cause=classify.of_killed_shell(Evidence(cancelled=cancelled)),
        next=None,
        reason=f"the batch shell, which brings the run back, was ended by {name}",
    )
