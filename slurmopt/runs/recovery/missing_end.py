"""The `end` of an attempt that died without a word: its cause from what is left, and what follows from that."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slurmopt.restart import causes, decision
from slurmopt.run_folder import attempts as story
from slurmopt.run_folder import events
from slurmopt.run_folder.attempt_files import hang_of, job_log, newest_mark
from slurmopt.run_folder.heartbeat import Heartbeat
from slurmopt.run_folder.json_values import as_int, number
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.outcome import EXIT_STATUS, FINISHED, INFRASTRUCTURE, KILLED, USER_ERROR
from slurmopt.runs.recovery.orphans import Orphan
from slurmopt.runs.status.progress import read
from slurmopt.slurm.states import plain_state

if TYPE_CHECKING:
    from slurmopt.config.schema import Settings

_LOG_TAIL = 65536
_OUTCOMES = {
    causes.FINISHED: FINISHED,
    causes.USER_ERROR: USER_ERROR,
    causes.GPU_OUT_OF_MEMORY: USER_ERROR,
    causes.INFRASTRUCTURE: INFRASTRUCTURE,
    causes.NODE_FAILURE: INFRASTRUCTURE,
}
"""All others are kills."""
_CANNOT_TELL = "the job is gone and never began, and nobody can tell whether it was cancelled: slurmopt retry goes on"

Beats = Mapping[int, Heartbeat]


def late_end(stray: Orphan, settings: Settings) -> dict[str, Any]:
    """The fields of the `end` event. An attempt that never began has the next free number, which is to be claimed."""
    from slurmopt.restart.policy import policy_of

    policy = policy_of(settings.restart, settings.task, settings.resources)
    run, began = stray.run, stray.journal.attempt is not None
    attempts = story.attempts(run)
    latest = _latest(stray, attempts)
    beats = _beats(run, latest.number) if began else {}
    cause, error = _cause(stray, latest, beats, policy.patterns) if began else _cause_before_start(stray)
    end = {
        "cause": cause,
        "step": _last_step(beats),
        "mark": newest_mark(settings.task.checkpoints, _workdir(run, settings)),
    }
    latest.end = end
    decided = decision.decide(attempts, cause, policy.budgets, policy.no_progress, decision.SUBMIT)
    if not began and stray.state is None:
        decided = decision.Decision(None, _CANNOT_TELL)
    outcome = _OUTCOMES.get(cause, KILLED)
    head = {"attempt": latest.number, "outcome": outcome, "exit_code": EXIT_STATUS[outcome], "rank": None, "node": None}
    durable = max((one.durable for one in attempts if one.durable is not None), default=None)
    return {
        **head,
        "error": error,
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


def _cause(stray: Orphan, attempt: story.Attempt, beats: Beats, patterns: Mapping[str, str]) -> tuple[str, str | None]:
    """The cause and what to say of it. The ranks' own accounts count only where all of them have left one: those of a
    dead node left none, and the others then only tell of a lost connection."""
    said, log = _slurm_said(stray), job_log(stray.run, attempt)
    by_state, told = causes.of_state(stray.state or ""), causes.of_job_log(log)
    if attempt.cancelled or causes.CANCELLED in (by_state, told):
        return causes.CANCELLED, said
    if (hang := hang_of(stray.run, attempt)) is not None:
        rank, node, seconds = (hang.get(name) for name in ("rank", "node", "seconds"))
        return causes.HANG, f"no step for {seconds} s; rank {rank} on {node} stopped first"
    if (found := by_state or told) is not None:
        return found, said
    if (account := _account(beats, patterns)) is not None:
        cause, error = account
        return (causes.of_slurm_lines(log, patterns) or cause if cause == causes.KILLED else cause), error
    return (causes.NODE_FAILURE if stray.state is None else causes.UNKNOWN), said


def _cause_before_start(stray: Orphan) -> tuple[str, str]:
    """Of a job that ended before its batch shell could claim an attempt: where it was Slurm, its nodes, their disks."""
    if stray.state is None:
        return causes.UNKNOWN, _slurm_said(stray)
    return causes.of_state(stray.state) or causes.INFRASTRUCTURE, f"{_slurm_said(stray)} before it began"


def _slurm_said(stray: Orphan) -> str:
    job = stray.journal.job
    if stray.state is None:
        return f"Slurm no longer knows job {job}, and it left no verdict"
    return f"Slurm ended job {job} ({plain_state(stray.state)})"


def _account(beats: Beats, patterns: Mapping[str, str]) -> tuple[str, str | None] | None:
    """What the ranks said themselves: all finished, or what the first that failed said."""
    size = max((as_int(beat.world_size) or 0 for beat in beats.values()), default=0)
    accounts = [beat.outcome for beat in beats.values() if isinstance(beat.outcome, dict)]
    if not size or len(accounts) < size:
        return None
    failed = [account for account in accounts if account.get("outcome") in (USER_ERROR, INFRASTRUCTURE, KILLED)]
    if not failed:
        finished = all(account.get("outcome") == FINISHED for account in accounts)
        return (causes.FINISHED, None) if finished else (causes.ASKED, None)
    first = min(failed, key=lambda account: number(account.get("time")) or 0.0)
    error = str(first.get("error") or "")
    if first["outcome"] == KILLED:  # slurmopt's own words, which ask whether memory was short
        return causes.KILLED, error or None
    plain = {USER_ERROR: causes.USER_ERROR, INFRASTRUCTURE: causes.INFRASTRUCTURE}
    return causes.of_text(error, patterns) or plain[str(first["outcome"])], error or None


def _beats(run: RunFolder, attempt: int) -> dict[int, Heartbeat]:
    found = {rank: read(run, attempt, rank) for rank in run.ranks_with_heartbeats(attempt)}
    return {rank: beat for rank, beat in found.items() if beat is not None}


def _last_step(beats: Beats) -> int | None:
    return max((step for beat in beats.values() if (step := as_int(beat.step)) is not None), default=None)


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
