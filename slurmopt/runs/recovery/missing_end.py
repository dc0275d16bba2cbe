"""The `end` of an attempt that died without a word: its cause from what is left, and what follows from that."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slurmopt.restart import causes, classify, decision
from slurmopt.restart.evidence import Evidence
from slurmopt.run_folder import attempts as story
from slurmopt.run_folder import events
from slurmopt.run_folder.attempt_files import hang_of, job_log, newest_mark
from slurmopt.run_folder.heartbeat import Heartbeat, last_step
from slurmopt.run_folder.json_values import as_int, number
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.outcome import EXIT_STATUS, FINISHED, INFRASTRUCTURE, KILLED, REQUEUE, USER_ERROR
from slurmopt.runs.recovery.orphans import Orphan
from slurmopt.runs.status.progress import read
from slurmopt.slurm.states import plain_state

if TYPE_CHECKING:
    from slurmopt.config.schema import Settings

_LOG_TAIL = 65536
_CANNOT_TELL = (
    "the job is gone and never began, and it is not known whether it was cancelled; slurmopt retry continues it"
)

Beats = Mapping[int, Heartbeat]


def late_end(stray: Orphan, settings: Settings) -> dict[str, Any]:
    """The fields of the `end` event. An attempt that never began has the next free number, which is to be claimed."""
    from slurmopt.config.restart import policy_of

    policy = policy_of(settings.restart, settings.task, settings.resources)
    run, began = stray.run, stray.journal.attempt is not None
    attempts = story.attempts(run)
    latest = _latest(stray, attempts)
    beats = _beats(run, latest.number) if began else {}
    evidence = _evidence(stray, latest, beats) if began else Evidence(state=stray.state)
    cause = classify.by_login_side(evidence, policy.patterns) if began else classify.before_start(evidence)
    mark = newest_mark(settings.task.checkpoints, _workdir(run, settings))
    latest.end = end = {"cause": cause, "step": last_step(beats), "mark": mark}
    decided = decision.decide(attempts, cause, policy.budgets, policy.no_progress, decision.SUBMIT)
    if not began and stray.state is None:
        decided = decision.Decision(None, _CANNOT_TELL)
    outcome = causes.OUTCOMES.get(cause, KILLED)
    head = {"attempt": latest.number, "outcome": outcome, "exit_code": EXIT_STATUS[outcome], "rank": None, "node": None}
    durable = max((one.durable for one in attempts if one.durable is not None), default=None)
    return {
        **head,
        "error": _error(stray, evidence, cause) if began else _error_before_start(stray),
        **end,
        "durable": durable,
        "next": decided.next,
        "reason": decided.reason,
        "by": "tend",
    }


def _latest(stray: Orphan, attempts: list[story.Attempt]) -> story.Attempt:
    """The attempt in question, which is the last of `attempts` afterwards."""
    if stray.journal.attempt is None:
        used = [*stray.run.attempts(), *(one.number for one in attempts)]
        attempts.append(story.Attempt(max(used, default=-1) + 1, stray.journal.job))
    elif not attempts or attempts[-1].number != stray.journal.attempt.number:
        attempts.append(story.Attempt(stray.journal.attempt.number, stray.journal.job))
    return attempts[-1]


def _evidence(stray: Orphan, attempt: story.Attempt, beats: Beats) -> Evidence:
    outcome, error = _account(beats)
    return Evidence(
        outcome=outcome,
        error=error,
        cancelled=attempt.cancelled,
        hang=hang_of(stray.run, attempt),
        job_log=job_log(stray.run, attempt),
        state=stray.state,
    )


def _error(stray: Orphan, evidence: Evidence, cause: str) -> str | None:
    """What to say of the end: by whoever gave the cause."""
    if cause == causes.HANG and evidence.hang is not None:
        return evidence.hang_error
    if evidence.outcome is not None and evidence.cause_by_slurm is None and not evidence.cancelled:
        return evidence.error
    return _slurm_said(stray)


def _error_before_start(stray: Orphan) -> str:
    return _slurm_said(stray) + ("" if stray.state is None else " before it began")


def _slurm_said(stray: Orphan) -> str:
    job = stray.journal.job
    if stray.state is None:
        return f"Slurm no longer knows job {job}, and it left no verdict"
    return f"Slurm ended job {job} ({plain_state(stray.state)})"


def _account(beats: Beats) -> tuple[str | None, str | None]:
    """What the ranks said themselves, where all of them did: the outcome and the error of the first that failed, else
    the outcome of all."""
    size = max((as_int(beat.world_size) or 0 for beat in beats.values()), default=0)
    accounts = [beat.outcome for beat in beats.values() if isinstance(beat.outcome, dict)]
    if not size or len(accounts) < size:
        return None, None
    failed = [account for account in accounts if account.get("outcome") in (USER_ERROR, INFRASTRUCTURE, KILLED)]
    if not failed:
        return FINISHED if all(account.get("outcome") == FINISHED for account in accounts) else REQUEUE, None
    first = min(failed, key=lambda account: number(account.get("time")) or 0.0)
    return str(first["outcome"]), str(first.get("error") or "") or None


def _beats(run: RunFolder, attempt: int) -> dict[int, Heartbeat]:
    beats = {rank: read(run, attempt, rank) for rank in run.ranks_with_heartbeats(attempt)}
    return {rank: beat for rank, beat in beats.items() if beat is not None}


def _workdir(run: RunFolder, settings: Settings) -> Path:
    if settings.environment.snapshot != "off":
        return run.code
    created = next(iter(events.read(run.events, "created")), {})
    return Path(str(created.get("cwd") or run.path), settings.environment.workdir or "").expanduser()


def claim(run: RunFolder, attempt: int) -> bool:
    """Takes the number of an attempt that never began, as its batch shell would; False where that has started now."""
    try:
        run.attempt_logs(attempt).mkdir(mode=0o750)
    except FileExistsError:
        return False
    return True
