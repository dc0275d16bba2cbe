"""Why an attempt ended: evidence in, a word of `slurmopt.restart.causes` out. No guesses.

Who looks at an attempt, and when, decides what can be known of it, so there is a function for each:

    at_end             the batch shell's verdict, and the parent of a pack, when the ranks have ended
    by_next_attempt    the next attempt, of one that left no verdict
    by_login_side      `slurmopt tend`, of one that left no verdict
    before_start       the same, of a job that ended before its batch shell could claim an attempt
    of_point           a pack, of a point whose array task ended without a verdict on it
    of_killed_shell    the local backend, of a batch shell that was killed
"""

from __future__ import annotations

from collections.abc import Mapping

from slurmopt.restart import causes
from slurmopt.restart.evidence import Evidence
from slurmopt.run_folder.outcome import FINISHED, INFRASTRUCTURE, KILLED, REQUEUE, USER_ERROR

Patterns = Mapping[str, str]
"""The user's own: a regular expression → a key such as `gpu_out_of_memory`."""
_OF_A_KILL = (causes.OUT_OF_MEMORY, causes.NODE_FAILURE)
"""What a log can tell of a rank that was killed; other words in it may be anything."""


def at_end(evidence: Evidence, patterns: Patterns | None = None) -> str:
    """The cause of an end that all ranks have come to, or that the step came to with them."""
    finished = causes.FINISHED if evidence.outcome == FINISHED else None
    cause = evidence.ended_by or finished or _of_unfinished(evidence, patterns)
    # Ranks that could not write their last word were killed by nobody, as far as that is known.
    return causes.INFRASTRUCTURE if cause == causes.KILLED and evidence.full_disk is not None else cause


def _of_unfinished(evidence: Evidence, patterns: Patterns | None) -> str:
    outcome, in_log = evidence.outcome, evidence.cause_in_log
    if in_log == causes.CANCELLED and _lives_on(evidence.slurm):
        in_log = None
    if evidence.cancelled or in_log == causes.CANCELLED:
        return causes.CANCELLED
    if evidence.hang is not None:
        return causes.HANG
    if in_log == causes.REQUEUED and _was_told_of_the_limit(evidence):
        return causes.TIME_LIMIT  # the training has requeued the job itself, when it was told
    if in_log is not None:
        return in_log
    # Slurm signals one process after the other: a command may have died of SIGTERM before its rank heard of it.
    if _being_preempted(evidence.slurm) and (evidence.asked or outcome == KILLED):
        return causes.PREEMPTION
    left = outcome in (REQUEUE, KILLED) or causes.left_when_told(evidence.error)
    if left and ("USR1" in evidence.signals or "USR1" in evidence.asked):
        return causes.TIME_LIMIT
    if "TERM" in evidence.signals and not _lives_on(evidence.slurm):
        return _of_sigterm(evidence)
    if outcome == REQUEUE:
        return _of_wish(evidence)
    return _of_failure(evidence, patterns)


def _was_told_of_the_limit(evidence: Evidence) -> bool:
    """The ranks find the shell's file now and then before its signal comes."""
    return "USR1" in evidence.asked or ("file" in evidence.asked and evidence.signals[:1] == ("USR1",))


def _of_wish(evidence: Evidence) -> str:
    """The ranks saved and left. The batch shell got no signal, but the ranks may have: slurmd is dead on the shell's
    node, where the shell lives on, and Slurm ends the step on the other nodes."""
    if not evidence.asked & {"TERM", "rank"}:
        return causes.ASKED
    if causes.failed_node(evidence.job_log) is not None:
        return causes.NODE_FAILURE
    return causes.REQUEUED if _restarted_by_slurm(evidence) else causes.ASKED


def _of_failure(evidence: Evidence, patterns: Patterns | None) -> str:
    if evidence.outcome == KILLED:
        by_lines = [causes.of_slurm_lines(text, patterns) for text in (evidence.rank_logs, evidence.job_log)]
        by_state = causes.of_state(evidence.slurm.get("JobState", ""))
        return next((cause for cause in (*by_lines, by_state) if cause in _OF_A_KILL), causes.KILLED)
    cause_in_error = causes.of_text(evidence.error, patterns)
    if evidence.outcome == INFRASTRUCTURE:
        return cause_in_error or causes.INFRASTRUCTURE
    return cause_in_error or causes.of_log(evidence.rank_logs, patterns) or causes.USER_ERROR


def _of_sigterm(evidence: Evidence) -> str:
    """The batch shell was ended, and no line says why: then Slurm's record tells. Where it says nothing either it was
    scancel, for a requeue by Slurm comes back whatever is decided here, and a job that was cancelled must not."""
    if evidence.slurm.get("Reason") == "TimeLimit":
        return causes.TIME_LIMIT
    if _being_preempted(evidence.slurm):
        return causes.PREEMPTION
    return causes.REQUEUED if _restarted_by_slurm(evidence) else causes.CANCELLED


def _restarted_by_slurm(evidence: Evidence) -> bool:
    restarts = evidence.slurm.get("Restarts", "")
    return restarts.isdigit() and int(restarts) > evidence.restarts


def _lives_on(slurm: Mapping[str, str]) -> bool:
    """Whether somebody sent the job a signal, and Slurm is not ending it."""
    return slurm.get("JobState") == "RUNNING"


def _being_preempted(slurm: Mapping[str, str]) -> bool:
    """In the grace time Slurm tells when it began; otherwise the field says None, or is not there."""
    return slurm.get("PreemptTime", "None") not in ("None", "", "N/A", "Unknown")


def by_next_attempt(evidence: Evidence, same_job: bool) -> str:
    """The cause of an end that left no verdict, given that the run is back; `same_job`: Slurm started its job again."""
    in_log = evidence.cause_in_log
    if evidence.hang is not None and in_log != causes.CANCELLED:
        return causes.HANG
    if in_log in (causes.REQUEUED, causes.CANCELLED):  # of the latter: somebody wanted the job back
        by_training = in_log == causes.REQUEUED and "USR1" in evidence.signals
        return causes.TIME_LIMIT if by_training else causes.REQUEUED
    if in_log is not None:
        return in_log
    return causes.NODE_FAILURE if same_job else causes.UNKNOWN  # nothing on the batch host could say so


def by_login_side(evidence: Evidence, patterns: Patterns | None = None) -> str:
    """The cause of an end that left no verdict, of a job that is over. The ranks' accounts count only where all of them
    have left one: those of a dead node left none, and the others then only tell of a lost connection."""
    if evidence.cancelled or causes.CANCELLED in (evidence.cause_by_slurm, evidence.cause_in_log):
        return causes.CANCELLED
    if evidence.hang is not None:
        return causes.HANG
    if evidence.cause_by_slurm is not None:
        return evidence.cause_by_slurm
    if evidence.outcome is None:
        return causes.NODE_FAILURE if evidence.state is None else causes.UNKNOWN
    return _of_accounts(evidence, patterns)


def _of_accounts(evidence: Evidence, patterns: Patterns | None) -> str:
    if evidence.outcome == KILLED:  # the error is slurmopt's own words, which ask whether memory was short
        return causes.of_slurm_lines(evidence.job_log, patterns) or causes.KILLED
    plain = {FINISHED: causes.FINISHED, REQUEUE: causes.ASKED}.get(evidence.outcome or "")
    if plain is not None:
        return plain
    failure = {USER_ERROR: causes.USER_ERROR, INFRASTRUCTURE: causes.INFRASTRUCTURE}
    return causes.of_text(evidence.error, patterns) or failure[str(evidence.outcome)]


def before_start(evidence: Evidence) -> str:
    """The cause where no attempt was claimed: if Slurm ended the job, its nodes or their disks are at fault."""
    if evidence.state is None:
        return causes.UNKNOWN
    return causes.of_state(evidence.state) or causes.INFRASTRUCTURE


def of_point(task: str | None) -> str:
    """The cause of the end of a point whose array task ended by `task`, None where that is not known."""
    if task == causes.CANCELLED:  # somebody wanted it back
        return causes.REQUEUED
    return causes.UNKNOWN if task in (None, causes.FINISHED, causes.USER_ERROR) else str(task)


def of_killed_shell(evidence: Evidence) -> str:
    """The cause of the end of a batch shell that was killed where there is no Slurm."""
    return causes.CANCELLED if evidence.cancelled else causes.KILLED


def outcome_of_abort(error: str, patterns: Patterns | None = None) -> str:
    """The outcome of a rank that an exception in C++ ended, by the exception's message."""
    cause = causes.of_text(error, patterns)
    if cause is None:
        return KILLED
    return INFRASTRUCTURE if cause in (causes.INFRASTRUCTURE, causes.HANG) else USER_ERROR


def is_requeued_by_slurm(cause: str, evidence: Evidence) -> bool:
    """Whether Slurm's own line says that it starts the job again, whatever else ended the attempt and is decided."""
    return cause != causes.FINISHED and evidence.cause_in_log in causes.SLURM_RETURNS
