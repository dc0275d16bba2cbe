"""Starts and ends the attempts of a point, as the batch shell does for other runs."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path
from typing import Any

from slurmopt.grid.records import Records
from slurmopt.job.pack.pack_args import Pack
from slurmopt.job.pack.running import Running
from slurmopt.job.point_end import OVERTAKEN, End
from slurmopt.job.supervisor import verdict
from slurmopt.job.supervisor.attempt_end import Conclusion, clear_requeue_request, conclude, say
from slurmopt.job.supervisor.heartbeats import read_all
from slurmopt.job.supervisor.judge_attempt import Beats, Verdict
from slurmopt.job.supervisor.previous_attempts import lives
from slurmopt.job.supervisor.verdict import follow_up, verdict_on
from slurmopt.restart import causes, classify, decision
from slurmopt.restart.decision import Decision
from slurmopt.restart.policy import Policy
from slurmopt.run_folder import attempts as story
from slurmopt.run_folder import events
from slurmopt.run_folder.access.open_folders import held
from slurmopt.run_folder.attempts import Attempt
from slurmopt.run_folder.heartbeat import last_step
from slurmopt.run_folder.json_values import as_int
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.outcome import EXIT_STATUS, FINISHED, INFRASTRUCTURE, KILLED, REQUEUE


class Attempts:
    """The attempts of the points of one array task. All methods raise OSError if a file cannot be written."""

    def __init__(self, pack: Pack, task_attempt: int) -> None:
        """`task_attempt` is the number of the array task's attempt."""
        self._pack, self.task_attempt = pack, task_attempt
        # A node cannot be left out for one point of many.
        self._policy: Policy = replace(pack.policy, exclude_nodes=0, excluded=None)

    def begin(self, run: RunFolder) -> int:
        """Claims the number of the next attempt and notes its start."""
        mode = held(run.kept).stat().st_mode & 0o750
        attempt = max(run.attempts(), default=-1) + 1
        while True:
            try:
                held(run.attempt_logs(attempt)).mkdir(mode=mode)
                break
            except FileExistsError:
                attempt += 1
        held(run.stop_request(attempt).parent).mkdir(mode=mode, parents=True, exist_ok=True)
        fields: dict[str, Any] = {"job": self._pack.job, "nodes": self._pack.nodes, "log_from": self._log_size(run)}
        events.append(
            run.events, "attempt", attempt=attempt, **fields, task=self._pack.name, task_attempt=self.task_attempt
        )
        return attempt

    def _log_size(self, run: RunFolder) -> int:
        try:
            return held(run.job_log(self._pack.job)).stat().st_size
        except OSError:
            return 0

    def look_back(self, run: RunFolder, point: int) -> End | None:
        """Gives the verdict on attempts that ended without one. Returns the End if no further attempt follows the last
        of them."""
        journal = events.read(run.events)
        attempts = story.of_events(journal)
        end = None
        for index, one in enumerate(attempts):
            end = None
            place = _place(journal, one.number)
            if one.end is None and not self._lives_elsewhere(run, one, place):
                end = self._late(run, point, attempts[: index + 1], place)
                attempts[index] = _again(run, one.number)
        return end if end is not None and end.next is None else None

    def _lives_elsewhere(self, run: RunFolder, attempt: Attempt, place: tuple[str, int] | None) -> bool:
        """Whether another array task still runs the point. It notices the newer attempt by itself, and writes how it
        ended."""
        elsewhere = attempt.job != self._pack.job if place is None else place[0] != self._pack.name
        return elsewhere and lives(run, attempt.number)

    def _late(self, run: RunFolder, point: int, attempts: list[Attempt], place: tuple[str, int] | None) -> End:
        """The End of an attempt whose parent died: by the ranks' outcomes if all ranks have one, else by why the array
        task ended."""
        number = attempts[-1].number
        beats = read_all(run, number)
        if len(beats) == self._pack.ranks and all(beat.outcome for beat in beats.values()):
            return self.end(run, point, number, beats, None)
        cause = self._cause_of_task(place)
        conclusion = conclude(run, attempts, cause, None, beats, self._policy)
        clear_requeue_request(run)
        judgement = Verdict(
            KILLED, number, EXIT_STATUS[KILLED], error="it left no record of its end when its array task ended"
        )
        return self._note(run, point, judgement, conclusion, beats, None, by="next attempt")

    def _cause_of_task(self, place: tuple[str, int] | None) -> str:
        """The cause of the end of the array task's attempt in which the point's attempt ran."""
        if place is None:
            return classify.of_point(None)
        folder = RunFolder(self._pack.sweep.tasks / place[0])
        task = (one.cause for one in story.attempts(folder) if one.number == place[1])
        return classify.of_point(next(task, None))

    def end_of_running(self, running: Running, beats: Beats, seconds: float) -> End:
        """The verdict on an attempt of this array task, when its ranks have ended."""
        run, number = running.run, running.attempt
        if is_followed(run, number) and not self._have_finished(beats):
            return self._overtaken(running, beats, seconds)
        return self.end(run, running.point, number, beats, seconds, running.cause, running.signals)

    def _overtaken(self, running: Running, beats: Beats, seconds: float) -> End:
        """The End of an attempt whose point another array task has started again, so that its ranks here gave up. It
        does not count for the point."""
        run, number, error = running.run, running.attempt, "another array task has started the point again"
        judgement = Verdict(KILLED, number, EXIT_STATUS[KILLED], error=error)
        goes_on = Decision(decision.REQUEUE, "another array task goes on with the point")
        conclusion = Conclusion(causes.REQUEUED, goes_on, last_step(beats), None, None, None)
        end = self._note(run, running.point, judgement, conclusion, beats, seconds, by="array task")
        self._tell_newer(running)
        say(f"point {running.point}, attempt {number}: {error}")
        return replace(end, cause=OVERTAKEN, next=None)

    def _tell_newer(self, running: Running) -> None:
        """Adds this end to the newer attempt's records, which began as a copy of these."""
        newer = Records(self._pack.sweep).running(running.point)
        last = next(reversed(events.read(running.run.events)), None)
        if newer is not None and newer.kept != running.run.kept and last is not None:
            with contextlib.suppress(FileNotFoundError):  # it has ended meanwhile
                events.append(newer.events, **last)

    def _have_finished(self, beats: Beats) -> bool:
        return len(beats) == self._pack.ranks and all(
            (beat.outcome or {}).get("outcome") == FINISHED for beat in beats.values()
        )

    def end(
        self,
        run: RunFolder,
        point: int,
        attempt: int,
        beats: Beats,
        seconds: float | None,
        known: str | None = None,
        signals: tuple[str, ...] = (),
    ) -> End:
        """Writes the verdict on an attempt to the point's journal. `known` is the cause if the parent has ended the
        attempt, `signals` those that it sent. Of these only USR1 counts as the batch shell's: a rank may find the stop
        file before its signal arrives. Whether TERM ends the task, Slurm's record says."""
        ranks = self._pack.ranks
        judgement = verdict_on(run, attempt, ranks, 0 if self._have_finished(beats) else 1, beats)
        known = None if judgement.outcome == FINISHED else known
        of_limit = tuple(name for name in signals if name == "USR1")
        conclusion = follow_up(run, judgement, beats, ranks, self._policy, [], known, of_limit)
        clear_requeue_request(run)
        end = self._note(run, point, judgement, conclusion, beats, seconds)
        if judgement.outcome not in (FINISHED, REQUEUE):
            say(f"point {point}, {verdict.story_of(judgement, conclusion, run)}")
        return end

    def _note(
        self,
        run: RunFolder,
        point: int,
        judgement: Verdict,
        conclusion: Conclusion,
        beats: Beats,
        seconds: float | None,
        **more: Any,
    ) -> End:
        fields = {
            "outcome": judgement.outcome,
            "exit_code": judgement.exit_code,
            "rank": judgement.rank,
            "node": judgement.node,
        }
        of_point = verdict.of_point(judgement, beats)
        took = {} if seconds is None else {"seconds": round(seconds, 3)}
        pruned = any((beat.outcome or {}).get("pruned") for beat in beats.values())
        more |= {"pruned": True} if pruned else {}
        fields |= {"error": judgement.error, **conclusion.as_fields(), **of_point, **took, **more}
        events.append(run.events, "end", attempt=judgement.attempt, **fields)
        return End(
            point=point,
            attempt=judgement.attempt,
            outcome=judgement.outcome,
            cause=conclusion.cause,
            next=conclusion.decision.next,
            error=judgement.error,
            seconds=took.get("seconds"),
            step=conclusion.step,
            metrics=of_point["metrics"],
            result=of_point["result"],
            pruned=pruned,
        )


def cannot(point: int, attempt: int | None, error: str) -> End:
    """The End of a point that the array task could not start, or whose end it could not write."""
    return End(
        point=point, attempt=attempt, outcome=INFRASTRUCTURE, cause=causes.INFRASTRUCTURE, next=None, error=error
    )


def is_followed(run: RunFolder, attempt: int | None) -> bool:
    """Whether the point has been started again since."""
    return attempt is not None and max(run.attempts(), default=-1) > attempt


def _place(journal: list[dict[str, Any]], attempt: int) -> tuple[str, int] | None:
    """The array task and its attempt in which an attempt of a point ran."""
    for event in journal:
        if event["event"] == "attempt" and event.get("attempt") == attempt:
            task, number = event.get("task"), as_int(event.get("task_attempt"))
            return (task, number) if isinstance(task, str) and Path(task).name == task and number is not None else None
    return None


def _again(run: RunFolder, number: int) -> Attempt:
    """The attempt as its journal describes it now."""
    return next(one for one in story.attempts(run) if one.number == number)
