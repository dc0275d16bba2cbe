"""Why an attempt ended, from what is left of it: signals seen, Slurm's own words, heartbeats, errors. No guesses."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slurmopt.restart import causes
from slurmopt.run_folder.attempt_files import hang_of, job_log
from slurmopt.run_folder.attempts import Attempt
from slurmopt.run_folder.files import read_text
from slurmopt.run_folder.heartbeat import Heartbeat
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.outcome import FINISHED, INFRASTRUCTURE, KILLED, REQUEUE

_OF_A_KILL = (causes.OUT_OF_MEMORY, causes.NODE_FAILURE)
"""What a log can tell of a rank that was killed; other words in it may be anything."""


@dataclass
class Evidence:
    """What is known of one attempt's end."""

    signals: list[str] = field(default_factory=list)
    """What the batch shell got."""
    asked: set[str] = field(default_factory=set)
    """What the ranks got."""
    cancelled: bool = False
    hang: Mapping[str, Any] | None = None
    told: str | None = None
    """The cause that slurmstepd's line in the job's log gives."""
    slurm: Mapping[str, str] = field(default_factory=dict)
    """`scontrol show job`, field by field."""
    restarts: int = 0
    """How often Slurm had restarted the job when this attempt began."""
    log: str = ""
    """The end of the job's log, of this attempt alone."""


def collect(folder: RunFolder, attempt: Attempt, beats: Mapping[int, Heartbeat]) -> Evidence:
    """All that the run folder holds of it."""
    log = job_log(folder, attempt)
    return Evidence(
        signals=attempt.signals,
        asked={beat.asked for beat in beats.values() if beat.asked},
        cancelled=attempt.cancelled,
        hang=hang_of(folder, attempt),
        told=causes.of_job_log(log),
        slurm=fields_of(_text(folder.slurm_said(attempt.number))),
        restarts=int(os.environ.get("SLURM_RESTART_COUNT") or 0),
        log=log,
    )


def cause_of(
    outcome: str, error: str | None, logs: str, evidence: Evidence, patterns: Mapping[str, str] | None = None
) -> str:
    """The cause of an end with this `outcome` and `error`. `logs`: the ends of the logs of the ranks concerned."""
    if outcome == FINISHED:
        return causes.FINISHED
    told = None if _lives_on(evidence.slurm) and evidence.told == causes.CANCELLED else evidence.told
    if evidence.cancelled or told == causes.CANCELLED:
        return causes.CANCELLED
    if evidence.hang is not None:
        return causes.HANG
    if told == causes.REQUEUED and _was_told_of_the_limit(evidence):
        return causes.TIME_LIMIT  # the training has requeued the job itself, when it was told
    if told is not None:
        return told
    # Slurm signals one process after the other: a command may have died of SIGTERM before its rank heard of it.
    if _being_preempted(evidence.slurm) and (evidence.asked or outcome == KILLED):
        return causes.PREEMPTION
    left = outcome in (REQUEUE, KILLED) or causes.left_when_told(error)
    if left and ("USR1" in evidence.signals or "USR1" in evidence.asked):
        return causes.TIME_LIMIT
    if "TERM" in evidence.signals and not _lives_on(evidence.slurm):
        return _of_slurm(evidence)
    if outcome == REQUEUE:
        return _of_wish(evidence)
    return _of_failure(outcome, error, logs, evidence, patterns)


def _was_told_of_the_limit(evidence: Evidence) -> bool:
    """The ranks find the shell's file now and then before its signal comes."""
    return "USR1" in evidence.asked or ("file" in evidence.asked and evidence.signals[:1] == ["USR1"])


def _of_wish(evidence: Evidence) -> str:
    """The ranks saved and left. The batch shell got no signal, but the ranks may have: slurmd is dead on the shell's
    node, where the shell lives on, and Slurm ends the step on the other nodes."""
    if not evidence.asked & {"TERM", "rank"}:
        return causes.ASKED
    if failed_node(evidence.log) is not None:
        return causes.NODE_FAILURE
    return causes.REQUEUED if _restarted_by_slurm(evidence) else causes.ASKED


def _of_failure(
    outcome: str, error: str | None, logs: str, evidence: Evidence, patterns: Mapping[str, str] | None
) -> str:
    if outcome == KILLED:
        found = [causes.of_slurm_lines(text, patterns) for text in (logs, evidence.log)]
        found.append(causes.of_state(evidence.slurm.get("JobState", "")))
        return next((cause for cause in found if cause in _OF_A_KILL), causes.KILLED)
    said = causes.of_text(error, patterns)
    if outcome == INFRASTRUCTURE:
        return said or causes.INFRASTRUCTURE
    return said or causes.of_log(logs, patterns) or causes.USER_ERROR


def _of_slurm(evidence: Evidence) -> str:
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


def failed_node(log: str) -> str | None:
    """The node that srun says has failed. One that comes back soon may still get what Slurm had to say to it."""
    found = re.findall(r"^srun: error: Node failure on (\S+)", log, re.MULTILINE)
    return found[-1] if found else None


def _lives_on(slurm: Mapping[str, str]) -> bool:
    """Whether somebody sent the job a signal, and Slurm is not ending it."""
    return slurm.get("JobState") == "RUNNING"


def _being_preempted(slurm: Mapping[str, str]) -> bool:
    """In the grace time Slurm tells when it began; otherwise the field says None, or is not there."""
    return slurm.get("PreemptTime", "None") not in ("None", "", "N/A", "Unknown")


def fields_of(text: str) -> dict[str, str]:
    """`scontrol show job --oneliner` as fields; a value with spaces loses what comes after the first. Of two with one
    name the first counts: the user's own comment comes late."""
    return dict(reversed(re.findall(r"(?:^|\s)([A-Z][A-Za-z/:]*)=(\S*)", text)))


def _text(path: Path) -> str:
    try:
        return read_text(path)
    except (OSError, ValueError):
        return ""
