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
"""The user's own patterns: regular expression → key of a cause, such as `gpu_out_of_memory`."""
_OF_A_KILL = (causes.OUT_OF_MEMORY, causes.NODE_FAILURE)
"""The causes of a kill that are taken from a log; other text in it proves nothing."""


def at_end(evidence: Evidence, patterns: Patterns | None = None) -> str:
    """The cause of the end of an attempt whose ranks or step have ended."""
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
    """Whether the ranks were asked to stop because of the time limit. They may find the shell's stop file before its
    signal arrives."""
    return "USR1" in evidence.asked or ("file" in evidence.asked and evidence.signals[:1] == ("USR1",))


def _of_wish(evidence: Evidence) -> str:
    """The cause if the ranks have saved and asked for a requeue. The ranks may have got a signal that the batch shell
    did not get: if slurmd dies on the shell's node, the shell lives on, and Slurm ends the step on the other nodes."""
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
    """The cause if the batch shell got SIGTERM and no line in the log says why: from Slurm's record, else scancel. A
    job that Slurm requeues comes back whatever is decided here, and a cancelled one must not."""
    if evidence.slurm.get("Reason") == "TimeLimit":
        return causes.TIME_LIMIT
    if _being_preempted(evidence.slurm):
        return causes.PREEMPTION
    return causes.REQUEUED if _restarted_by_slurm(evidence) else causes.CANCELLED


def _restarted_by_slurm(evidence: Evidence) -> bool:
    restarts = evidence.slurm.get("Restarts", "")
    return restarts.isdigit() and int(restarts) > evidence.restarts


def _lives_on(slurm: Mapping[str, str]) -> bool:
    """Whether the job only got a signal and Slurm is not ending it."""
    return slurm.get("JobState") == "RUNNING"


def _being_preempted(slurm: Mapping[str, str]) -> bool:
    """Whether the job is in the grace time of a preemption. Slurm then shows when it began; otherwise the field is None
    or absent."""
    return slurm.get("PreemptTime", "None") not in ("None", "", "N/A", "Unknown")


def by_next_attempt(evidence: Evidence, same_job: bool) -> str:
    """The cause of an end without a verdict, if another attempt has started. `same_job`: Slurm has started the same job
    again."""
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
    """The cause of an end without a verdict, of a job that has ended. The ranks' outcomes count only if all ranks have
    one: those of a dead node have none, and the others then only report a lost connection."""
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
    """The cause if the job ended before an attempt was claimed: its nodes or their disks are at fault, unless it was
    cancelled."""
    if evidence.state is None:
        return causes.UNKNOWN
    return causes.of_state(evidence.state) or causes.INFRASTRUCTURE


def of_point(task: str | None) -> str:
    """The cause of the end of a point whose array task ended by the cause `task`; None if that is unknown."""
    if task == causes.CANCELLED:  # somebody wanted it back
        return causes.REQUEUED
    return causes.UNKNOWN if task in (None, causes.FINISHED, causes.USER_ERROR) else str(task)


def of_killed_shell(evidence: Evidence) -> str:
    """The cause of the end of a batch shell that was killed without Slurm."""
    return causes.CANCELLED if evidence.cancelled else causes.KILLED


def outcome_of_abort(error: str, patterns: Patterns | None = None) -> str:
    """The outcome of a rank that a C++ exception ended, by its message."""
    cause = causes.of_text(error, patterns)
    if cause is None:
        return KILLED
    return INFRASTRUCTURE if cause in (causes.INFRASTRUCTURE, causes.HANG) else USER_ERROR


def is_requeued_by_slurm(cause: str, evidence: Evidence) -> bool:
    """Whether Slurm's own line says that it requeues the job, whatever else ended the attempt."""
    return cause != causes.FINISHED and evidence.cause_in_log in causes.SLURM_RETURNS
