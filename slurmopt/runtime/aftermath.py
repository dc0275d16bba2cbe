"""At the start of an attempt: the verdict on those before it that died without a word.

python -m slurmopt.runtime.aftermath FOLDER ATTEMPT POLICY

Slurm brings a job back after a node's failure, and nobody on that node could say why the attempt ended. Standard output
is for the batch shell: "over" where the run has ended by its budgets or for want of progress; else the seconds that a
checkpoint needs, 0 where that is not known.
"""

from __future__ import annotations

import sys
from pathlib import Path

from slurmopt.folder.layout import RunFolder
from slurmopt.folder.outcome import EXIT_STATUS, KILLED
from slurmopt.runtime.conclusion import Conclusion, conclude, forget_wish, note, say
from slurmopt.runtime.lead import needed
from slurmopt.runtime.verdict import read_all
from slurmopt.survival import causes, decision, story
from slurmopt.survival.policy import Policy, from_word
from slurmopt.survival.story import Attempt
from slurmopt.survival.traces import hang_of, job_log


def cause_of(folder: RunFolder, attempt: Attempt, back: Attempt) -> str:
    """Why an attempt ended that left no word, given that the run is `back`."""
    told = causes.of_job_log(job_log(folder, attempt, until=back.log_from))
    if hang_of(folder, attempt) is not None and told != causes.CANCELLED:
        return causes.HANG
    if told in (causes.REQUEUED, causes.CANCELLED):  # of the latter: somebody wanted the job back
        ours = told == causes.REQUEUED and "USR1" in attempt.signals
        return causes.TIME_LIMIT if ours else causes.REQUEUED
    if told is not None:
        return told
    if attempt.job != back.job:
        return causes.UNKNOWN
    return causes.NODE_FAILURE  # Slurm started the same job again, and nothing on its batch host could say so


def look_back(folder: RunFolder, number: int, policy: Policy) -> Conclusion | None:
    """Writes the missing `end` events; the conclusion on the latest of them, if it is about the attempt before."""
    attempts = [one for one in story.attempts(folder) if one.number <= number]
    if not attempts or attempts[-1].number != number:
        return None
    conclusion = None
    for index, attempt in enumerate(attempts[:-1]):
        conclusion = None
        if attempt.end is None:
            cause = cause_of(folder, attempt, attempts[-1])
            beats = read_all(folder, attempt.number)
            conclusion = conclude(folder, attempts[: index + 1], cause, None, beats, policy, decision.BY_SLURM)
            _note_end(folder, attempt.number, conclusion, f"it left no word; {_how(cause)}")
    forget_wish(folder)
    return conclusion


def _how(cause: str) -> str:
    return "its job log tells why" if cause not in (causes.NODE_FAILURE, causes.UNKNOWN) else "Slurm started it again"


def _note_end(folder: RunFolder, attempt: int, conclusion: Conclusion, error: str) -> None:
    said = {"outcome": KILLED, "exit_code": EXIT_STATUS[KILLED], "error": error, "by": "next attempt"}
    note(folder, "end", attempt=attempt, **said, **conclusion.as_fields())
    say(f"attempt {attempt} ended by: {conclusion.cause}; {conclusion.decision.reason}")


def main(argv: list[str]) -> int:
    folder, attempt, policy = RunFolder(Path(argv[0]).absolute()), int(argv[1]), from_word(argv[2])
    conclusion = look_back(folder, attempt, policy)
    if conclusion is not None and conclusion.decision.next is None:
        _note_end(folder, attempt, conclusion, "not started: the run had ended")
        print("over", flush=True)
        return 0
    print(needed(folder, policy.durable) or 0, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
