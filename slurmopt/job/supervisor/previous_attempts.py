"""At the start of an attempt: the verdict on those before it that died without a word.

python -m slurmopt.job.supervisor.previous_attempts FOLDER ATTEMPT POLICY

Slurm brings a job back after a node's failure, and nobody on that node could say why the attempt ended. Standard output
is for the batch shell: "over STATUS" where the run has ended, by its budgets or for want of progress, or, as a point of
a sweep, before Slurm started its array task again; else the seconds that a checkpoint needs, 0 where that is not known.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from slurmopt.job.supervisor.attempt_end import Conclusion, clear_requeue_request, conclude, in_one_line, note, say
from slurmopt.job.supervisor.collect_evidence import collect_previous
from slurmopt.job.supervisor.heartbeats import read_all
from slurmopt.job.supervisor.stop_lead_time import needed
from slurmopt.restart import causes, classify, decision
from slurmopt.restart.policy import Policy, from_word
from slurmopt.run_folder import attempts as story
from slurmopt.run_folder.access.open_folders import held
from slurmopt.run_folder.attempts import Attempt
from slurmopt.run_folder.exposed_files import remove_exposed
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.outcome import EXIT_STATUS, KILLED
from slurmopt.run_folder.private import hold_run
from slurmopt.run_folder.sweep_layout import point_number


def look_back(folder: RunFolder, number: int, policy: Policy) -> Conclusion | None:
    """Writes the missing `end` events. Returns the conclusion on the latest of them, if it is the previous attempt."""
    attempts = [one for one in story.attempts(folder) if one.number <= number]
    if not attempts or attempts[-1].number != number:
        return None
    conclusion = None
    for index, attempt in enumerate(attempts[:-1]):
        conclusion = None
        if attempt.end is None and not _lives_elsewhere(folder, attempt, attempts[-1]):
            evidence = collect_previous(folder, attempt, attempts[-1])
            cause = classify.by_next_attempt(evidence, attempt.job == attempts[-1].job)
            beats = read_all(folder, attempt.number)
            remove_exposed(folder, attempt.number)
            conclusion = conclude(folder, attempts[: index + 1], cause, None, beats, policy, decision.BY_SLURM)
            _note_end(folder, attempt.number, conclusion, f"it left no record of its end; {_how(cause)}")
    clear_requeue_request(folder)
    return conclusion


def _lives_elsewhere(folder: RunFolder, attempt: Attempt, back: Attempt) -> bool:
    """Whether another array task still runs the point. It notices this attempt by itself, and gives up."""
    return folder.in_sweep and attempt.job != back.job and lives(folder, attempt.number)


def lives(folder: RunFolder, attempt: int) -> bool:
    """Whether a rank of the attempt has no outcome and is not silent."""
    now, beats = time.time(), read_all(folder, attempt)
    without_outcome = {rank: beat for rank, beat in beats.items() if beat.outcome is None}
    return any(
        now - _written(folder.heartbeat(attempt, rank)) < beat.silent_after for rank, beat in without_outcome.items()
    )


def _written(path: Path) -> float:
    try:
        return os.stat(held(path)).st_mtime
    except OSError:  # its point has ended just now
        return 0.0


def last_word(folder: RunFolder, number: int) -> Attempt | None:
    """The attempt before `number` in which the point of a sweep ended for good or its array task finished; None if
    there is none. Slurm starts such an array task again if it lost the node before it knew, or by `scontrol
    requeue`."""
    before = [one for one in story.attempts(folder) if one.number < number and one.end is not None]
    if not folder.in_sweep or not before or not before[-1].since_retry:
        return None
    last, end = before[-1], before[-1].end or {}
    if "next" not in end or end["next"] is not None:
        return None
    return last if point_number(folder) is not None or last.cause == causes.FINISHED else None


def _repeat(folder: RunFolder, number: int, last: Attempt) -> int:
    """Ends this attempt at once as the last one ended, and returns the exit status."""
    fields = {name: value for name, value in (last.end or {}).items() if name not in ("time", "event", "attempt")}
    fields |= {"reason": f"nothing was left to do: it had ended in attempt {last.number}", "by": "next attempt"}
    note(folder, "end", attempt=number, **fields)
    say(f"not started again: it had ended in attempt {last.number}: {last.cause}")
    return 0 if last.cause == causes.FINISHED else 1


def _how(cause: str) -> str:
    return "its job log tells why" if cause not in (causes.NODE_FAILURE, causes.UNKNOWN) else "Slurm started it again"


def _note_end(folder: RunFolder, attempt: int, conclusion: Conclusion, error: str) -> None:
    fields = {"outcome": KILLED, "exit_code": EXIT_STATUS[KILLED], "error": error, "by": "next attempt"}
    note(folder, "end", attempt=attempt, **fields, **conclusion.as_fields())
    say(f"attempt {attempt} ended by: {conclusion.cause}; {conclusion.decision.reason}")


def main(argv: list[str]) -> int:
    folder, attempt, policy = RunFolder(Path(argv[0]).absolute()), int(argv[1]), from_word(argv[2])
    hold_run(folder)
    if (last := last_word(folder, attempt)) is not None:
        print(f"over {_repeat(folder, attempt, last)}", flush=True)
        return 0
    conclusion = look_back(folder, attempt, policy)
    if conclusion is not None and conclusion.decision.next is None:
        _note_end(folder, attempt, conclusion, "not started: the run had ended")
        print("over 1", flush=True)
        return 0
    print(needed(folder, policy.durable) or 0, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(in_one_line(main, sys.argv[1:]))
