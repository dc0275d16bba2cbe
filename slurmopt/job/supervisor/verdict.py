"""The verdict on an attempt, from the ranks' own accounts: not from srun's exit status, which tells too little.

python -m slurmopt.job.supervisor.verdict FOLDER ATTEMPT RANKS STEP_EXIT_CODE [POLICY [JOB LOG_FROM [WHY]]]

POLICY: `slurmopt.restart.policy` as one word. JOB and LOG_FROM: the job's id, and how long its log was when the
attempt began. WHY: what kept the training from starting at all. Standard output is for the batch shell: one line,
"NEXT EXCLUDE STATUS"; the story goes to standard error. The exit status is the outcome's.
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from slurmopt.job.facts.full_disk import cannot_write, filled, is_told
from slurmopt.job.failures import requeue
from slurmopt.job.supervisor.aborted_ranks import furthest_behind, who_began
from slurmopt.job.supervisor.attempt_end import Conclusion, clear_requeue_request, conclude, in_one_line, note, say
from slurmopt.job.supervisor.collect_evidence import collect
from slurmopt.job.supervisor.heartbeats import read_all, settled
from slurmopt.job.supervisor.judge_attempt import Beats, Verdict, judge, judge_early, kind_of, other_failures
from slurmopt.job.supervisor.log_tail import LAUNCHERS, last_line, last_traceback
from slurmopt.restart import causes, classify
from slurmopt.restart.evidence import Evidence
from slurmopt.restart.explain import not_restarted
from slurmopt.restart.policy import Policy, from_word
from slurmopt.run_folder import attempts as story
from slurmopt.run_folder.access.files import replace_json, replace_text
from slurmopt.run_folder.access.open_folders import held
from slurmopt.run_folder.attempt_files import tail
from slurmopt.run_folder.exposed_files import remove_exposed
from slurmopt.run_folder.json_values import as_int, text
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.outcome import EXIT_STATUS, FINISHED, INFRASTRUCTURE, KILLED, REQUEUE, USER_ERROR
from slurmopt.run_folder.private import hold_run

_LARGEST_RESULT = 16384
"""Characters of a point's result in the journal."""


def _wished(beats: Beats, folder: RunFolder) -> Beats:
    """Applies the requeue file to all ranks of a command: one that ended before it was made saw only a failure."""
    if os.path.isfile(held(folder.requeue_wish())):
        for beat in beats.values():
            if kind_of(beat) == USER_ERROR:
                beat.outcome = requeue("the requeue file is there").as_dict()
    return beats


def verdict_on(folder: RunFolder, attempt: int, ranks: int, step_exit: int, beats: Beats) -> Verdict:
    """As `judge`, with further information from the run folder."""
    verdict = _with_log(judge(_wished(beats, folder), attempt, ranks, step_exit), folder)
    if not beats and (full := cannot_write(folder)) is not None:
        verdict.error = f"{full}; {verdict.error}"
    verdict.others = other_failures(verdict, beats, ranks)
    return verdict


def _with_log(verdict: Verdict, folder: RunFolder) -> Verdict:
    """Adds the traceback of a command from its log, which is complete by now, or its last line."""
    if verdict.outcome not in (USER_ERROR, INFRASTRUCTURE) or verdict.traceback:
        return verdict
    log = folder.rank_log(verdict.attempt, verdict.rank or 0)
    if (tail := last_traceback(log)) is not None:
        verdict.traceback = tail
        verdict.error = f"{verdict.error}: {tail.strip().splitlines()[-1]}"
    elif verdict.outcome == USER_ERROR and (said := last_line(log)) is not None and said not in str(verdict.error):
        verdict.error = f"{verdict.error}: {said}"
    return verdict


def story_of(verdict: Verdict, conclusion: Conclusion, folder: RunFolder) -> str:
    """The text for the job's log: the first failing rank's traceback first, what follows last."""
    head = f"attempt {verdict.attempt}: {conclusion.cause}"
    if verdict.outcome == FINISHED:
        return head
    final = not_restarted(conclusion.cause, conclusion.decision.reason)
    follows = f"  next: {conclusion.decision.reason}" if conclusion.decision.next else f"  the end: {final}"
    if verdict.outcome == REQUEUE:
        return f"{head}: {verdict.error or f'rank {verdict.rank} asked to be started again'}\n{follows}"
    return f"{head}{_what_happened(verdict, folder)}\n{follows}"


def _what_happened(verdict: Verdict, folder: RunFolder) -> str:
    where = "" if verdict.rank is None else f" in rank {verdict.rank}" + (f" on {verdict.node}" if verdict.node else "")
    lines = [f"{where}: {verdict.error}"]
    if verdict.traceback and verdict.traceback.strip() != verdict.error:
        lines.append(verdict.traceback.rstrip())
    others = verdict.others or []
    lines += [f"  then {line}" for line in others[:5]] + ([f"  and {len(others) - 5} more"] if len(others) > 5 else [])
    log = folder.rank_log(verdict.attempt, verdict.rank or 0)
    return "\n".join([*lines, f"  log: {log if verdict.rank is not None else folder.logs}"])


def follow_up(
    folder: RunFolder,
    verdict: Verdict,
    beats: Beats,
    ranks: int,
    policy: Policy,
    shell: list[str],
    known: str | None = None,
    signals: tuple[str, ...] = (),
) -> Conclusion:
    """Determines the cause and what follows from it. `shell` has JOB and LOG_FROM, which the journal may have lost;
    `known` is the cause if whoever ended the attempt knows it, and `signals` are those that the journal has not."""
    attempts = _attempts_until(folder, verdict.attempt, shell)
    attempts[-1].signals.extend(signals)
    evidence = collect(folder, attempts[-1], beats)
    _look_for_aborts(verdict, beats, ranks, folder, evidence, policy)
    evidence = _with_accounts(evidence, verdict, beats, ranks, folder, known)
    cause = classify.at_end(evidence, policy.patterns)
    if cause == causes.HANG:
        _name_who_stopped(verdict, beats, evidence)
    elif cause == causes.INFRASTRUCTURE and evidence.full_disk is not None:
        _blame_disk(verdict, evidence.full_disk)
    node = causes.failed_node(evidence.job_log) if cause == causes.NODE_FAILURE else verdict.node
    error = str(evidence.error)
    if "EADDRINUSE" in error or (is_told(error) and filled(folder) is not None):
        node = None  # somebody was quicker with the port, or the shared disk is full: no fault of the node's
    conclusion = conclude(folder, attempts, cause, node, beats, policy)
    conclusion.returns = classify.is_requeued_by_slurm(cause, evidence)
    if cause == causes.FINISHED and (said := _note_of(beats)) is not None:
        conclusion.decision = replace(conclusion.decision, reason=said)
    return conclusion


def _note_of(beats: Beats) -> str | None:
    """What the training said of its end."""
    first = beats.get(0)
    return None if first is None else text((first.outcome or {}).get("note"))


def _attempts_until(folder: RunFolder, number: int, shell: list[str]) -> list[story.Attempt]:
    """The attempts up to `number`, which the journal may have lost; JOB and LOG_FROM of it from `shell`."""
    attempts = [one for one in story.attempts(folder) if one.number <= number]
    if not attempts or attempts[-1].number != number:
        attempts.append(story.Attempt(number))
    if shell:
        attempts[-1].job, attempts[-1].log_from = shell[0], int(shell[1])
    return attempts


def _with_accounts(
    evidence: Evidence, verdict: Verdict, beats: Beats, ranks: int, folder: RunFolder, ended_by: str | None
) -> Evidence:
    """Completes the evidence with the ranks' own outcomes. Whether a disk is full is checked only if it matters."""
    concerned = {0, *([] if verdict.rank is None else [verdict.rank])} & set(range(ranks))
    return replace(
        evidence,
        outcome=verdict.outcome,
        error=f"{verdict.error or ''}\n{verdict.traceback or ''}",
        rank_logs="\n".join(tail(folder.rank_log(verdict.attempt, rank)) for rank in sorted(concerned)),
        ended_by=ended_by,
        full_disk=filled(folder) if ended_by is None and _was_killed_without_word(verdict, beats) else None,
    )


def _was_killed_without_word(verdict: Verdict, beats: Beats) -> bool:
    if verdict.outcome != KILLED or verdict.rank is None:
        return False
    return verdict.rank not in beats or beats[verdict.rank].outcome is None


def _blame_disk(verdict: Verdict, full: str) -> None:
    """Changes the verdict on ranks that could not write their outcome because of a full disk: nothing shows that they
    were killed."""
    verdict.outcome, verdict.exit_code, verdict.node = INFRASTRUCTURE, EXIT_STATUS[INFRASTRUCTURE], None
    verdict.error = f"{full}; {str(verdict.error).partition(':')[0]}"


def _name_who_stopped(verdict: Verdict, beats: Beats, evidence: Evidence) -> None:
    """Names the rank that stopped first, from the watchdog's finding; if a collective timed out first, the rank with
    the fewest steps."""
    if evidence.hang is not None:
        verdict.rank, verdict.node = as_int(evidence.hang.get("rank")), str(evidence.hang.get("node"))
        verdict.error = evidence.hang_error
    elif (behind := furthest_behind(beats)) is not None:
        verdict.rank, verdict.node = behind, beats[behind].node
        verdict.error = f"rank {behind} on {verdict.node} stopped first; {verdict.error}"


def _look_for_aborts(
    verdict: Verdict, beats: Beats, ranks: int, folder: RunFolder, evidence: Evidence, policy: Policy
) -> None:
    """Names the rank that died first and why: a rank that aborted in C++ has the reason in its log; of others only srun
    tells."""
    if verdict.outcome not in (KILLED, USER_ERROR) or not _is_without_words(verdict):
        return
    rank, abort = who_began(folder, verdict.attempt, beats, ranks, evidence)
    if abort is not None:
        verdict.error, verdict.traceback = f"the process aborted: {abort.error}", None
        verdict.outcome = classify.outcome_of_abort(abort.error, policy.patterns)
        verdict.exit_code = EXIT_STATUS[verdict.outcome]
    if rank is not None and rank != verdict.rank:
        verdict.rank, verdict.node = rank, beats[rank].node if rank in beats else None
    verdict.others = other_failures(verdict, beats, ranks)


def _is_without_words(verdict: Verdict) -> bool:
    """Whether the traceback is missing, or is only the launcher's own."""
    return verdict.traceback is None or LAUNCHERS in verdict.traceback.strip().splitlines()[-1]


def write_verdict(folder: RunFolder, attempt: int) -> None:
    """Writes the verdict of a single rank that has finished, for the batch shell."""
    beats = read_all(folder, attempt)
    verdict = judge(beats, attempt, 1, 0)
    if verdict.outcome != FINISHED:
        return
    conclusion = follow_up(folder, verdict, beats, 1, Policy(), [])
    _write_down(folder, verdict, conclusion, beats, 1, 0)
    replace_text(folder.verdict(attempt), conclusion.answer(0) + "\n")


def main(argv: list[str]) -> int:
    """Judges the attempt, writes result.json and the `end` event, prints what happened, and answers the batch shell."""
    folder, attempt, ranks, step_exit = RunFolder(Path(argv[0]).absolute()), int(argv[1]), int(argv[2]), int(argv[3])
    hold_run(folder)
    policy = from_word(argv[4]) if len(argv) > 4 else Policy()
    if len(argv) > 7:
        beats, verdict = {}, judge_early(argv[7], attempt, step_exit, os.environ.get("SLURMD_NODENAME"))
    else:
        beats = settled(folder, attempt, ranks, step_exit)
        verdict = verdict_on(folder, attempt, ranks, step_exit, beats)
    conclusion = follow_up(folder, verdict, beats, ranks, policy, argv[5:7])
    _write_down(folder, verdict, conclusion, beats, ranks, step_exit)
    remove_exposed(folder, attempt)
    say(story_of(verdict, conclusion, folder))
    status = EXIT_STATUS[verdict.outcome]
    if verdict.outcome == REQUEUE and conclusion.decision.next is None:
        status = 1  # 75 would have it started again
    print(conclusion.answer(status), flush=True)
    return status


def _write_down(
    folder: RunFolder, verdict: Verdict, conclusion: Conclusion, beats: Beats, ranks: int, step_exit: int
) -> None:
    """Writes result.json and the `end` event. Errors of the file system do not keep the run from being requeued."""
    clear_requeue_request(folder)
    fields = {"outcome": verdict.outcome, "exit_code": verdict.exit_code, "rank": verdict.rank, "node": verdict.node}
    fields |= {"error": verdict.error, **conclusion.as_fields()}
    if folder.in_sweep:  # its journal has it all: a file less for each point
        fields |= of_point(verdict, beats)
    else:
        _write_result(folder, verdict, conclusion, ranks, step_exit)
    note(folder, "end", attempt=verdict.attempt, **fields)


def _write_result(folder: RunFolder, verdict: Verdict, conclusion: Conclusion, ranks: int, step_exit: int) -> None:
    try:
        fields = {**asdict(verdict), "cause": conclusion.cause, "next": conclusion.decision.next}
        replace_json(folder.result, {**fields, "time": time.time(), "ranks": ranks, "step_exit_code": step_exit})
    except OSError as error:
        say(f"result.json cannot be written: {error}")


def of_point(verdict: Verdict, beats: Beats) -> dict[str, Any]:
    """Further fields for the `end` of a point: its last metrics, and what its function returned."""
    first = beats.get(min(beats, default=0))
    result = verdict.result if len(json.dumps(verdict.result, default=str)) <= _LARGEST_RESULT else None
    return {"metrics": first.metrics if first is not None else {}, "result": result}


if __name__ == "__main__":
    sys.exit(in_one_line(main, sys.argv[1:]))
