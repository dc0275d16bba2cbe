"""Points that ended other than well go on in their folders, as new array jobs: `slurmopt retry` of a sweep."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from slurmopt.config.check import did_you_mean
from slurmopt.errors import (
    ConfigError,
    FolderError,
    RunError,
    SlurmDown,
    SlurmMissing,
    SlurmRefused,
    SubmissionNotNoted,
)
from slurmopt.grid.point_ranges import Ranges
from slurmopt.grid.records import Records
from slurmopt.grid.submissions import Submission, cancelled
from slurmopt.run_folder import events, supervisor_file
from slurmopt.run_folder.access.files import replace_text
from slurmopt.run_folder.sweep_layout import SweepFolder
from slurmopt.runs import index
from slurmopt.runs.find import Selection
from slurmopt.runs.ownership import refuse_foreign
from slurmopt.runs.recovery import changed_config as retries
from slurmopt.runs.recovery.changed_config import Changed, More
from slurmopt.runs.status.state import ALIVE
from slurmopt.runs.submit import arrays, unfinished_retry
from slurmopt.runs.submit.exactly_once import run_lock
from slurmopt.slurm.script.render import supervisor
from slurmopt.sweeps.status.point_states import BAD, SweepStates
from slurmopt.sweeps.status.query import sweep_states
from slurmopt.sweeps.status.view import short, state_counts
from slurmopt.sweeps.submit import cancelled_points

if TYPE_CHECKING:
    from slurmopt.config.schema import Settings

_CHANGEABLE = (
    "resources",
    "restart",
    "health",
    "network",
    "monitor",
    "metrics",
    "environment",
    "launch",
    "storage",
    "sweep",
)
"""Groups that the array job is made from. What points read is in points.json, which never changes."""
_FIXED_IN_SWEEP = ("points", "zip", "skip", "folder", "search", "trials", "seed", "metric", "direction", "then")


@dataclass(frozen=True)
class Again:
    """A retry that is checked, and not submitted yet."""

    sweep: SweepFolder
    points: Ranges
    settings: Settings
    changed: Changed | None
    """None: config and script stay as they lie there."""
    repeated: unfinished_retry.Unfinished | None
    """The same retry, which broke off after it had changed config and script."""
    going: Ranges
    """The points that this one brought back, and that have not ended."""
    jobs: list[str]
    """Their array jobs."""

    @property
    def changes(self) -> dict[str, list[Any]]:
        """A key → its value before and after."""
        return self.changed.changes if self.changed is not None else {}


def settle(sweep: SweepFolder) -> None:
    """Settles what a retry that broke off has left: notes the jobs that Slurm has. Where it has none, config, script
    and the cancelled points are put back, and where it has some, the cancelled points that are in none of these."""
    from slurmopt.config.composition.settings import load

    if not unfinished_retry.is_left(sweep.run) and arrays.is_settled(sweep):
        return
    refuse_foreign(sweep)
    with run_lock(sweep.run):
        arrays.note_lost_jobs(sweep, load(sweep.config)[1])
        if (broken_off := unfinished_retry.found(sweep.run)) is None:
            return
        if have := _points(_since(arrays.known(sweep), broken_off.token)):
            if lost := broken_off.banned.difference(have):
                cancelled_points.add(sweep, lost)
        else:
            arrays.drop_lost(sweep)
            _put_back(sweep, broken_off)


def _since(submissions: list[Submission], token: str | None) -> list[Submission]:
    """The submissions after that with `token`."""
    return submissions[
        next((place for place, submission in enumerate(submissions, 1) if submission.token == token), 0) :
    ]


def _points(submissions: list[Submission]) -> Ranges:
    """The points that those have of which Slurm had the job."""
    return Ranges(span for submission in submissions if submission.job is not None for span in submission.points.spans)


def plan(chosen: Selection, words: list[str], factors: More, failed_only: bool) -> Again:
    """Which points go on, with which needs; none where those of an earlier try of the same retry go on already. Nothing
    is written. Raises RunError, ConfigError."""
    from slurmopt.config.composition.settings import load

    sweep = chosen.sweep
    refuse_foreign(sweep)
    states = sweep_states(sweep, fresh=True)
    typed = bool(words) or factors != More()
    broken_off = unfinished_retry.found(sweep.run)
    repeated = broken_off
    if broken_off is not None and _points(_since(states.submissions, broken_off.token)):
        repeated = broken_off if retries.is_repeated(sweep.run, broken_off, words, factors) else None
    going, jobs = _going(states, chosen, broken_off)
    instead = ""
    if going and typed and repeated is None:
        instead = f"; job {', '.join(jobs)} of an earlier retry has points {going}, without what is typed now"
        going, jobs = Ranges(), []
    points = to_retry(states, chosen, failed_only, going, instead)
    settings, changed = load(sweep.config)[1], None
    if typed:
        changed = retries.changed(retries.stored_config(sweep.run, repeated), words, factors)
        settings = changed.settings
        for key in changed.changes:
            _refuse(key)
    return Again(sweep, _left(sweep, points, settings), settings, changed, repeated, going, jobs)


def _going(
    states: SweepStates, chosen: Selection, broken_off: unfinished_retry.Unfinished | None
) -> tuple[Ranges, list[str]]:
    """The chosen points that a retry that broke off has brought back, and that have not ended; and their jobs."""
    if broken_off is None:
        return Ranges(), []
    alive = states.numbers(*ALIVE).intersection(broken_off.points)
    alive = alive if chosen.points is None else alive.intersection(chosen.points)
    since = _since(states.submissions, broken_off.token)
    return _points(since).intersection(alive), [
        submission.job for submission in since if submission.job is not None and submission.points.intersection(alive)
    ]


def _left(sweep: SweepFolder, points: Ranges, settings: Settings) -> Ranges:
    """Of a search those that have not been tried."""
    if settings.sweep.search is None:
        return points
    from slurmopt.sweeps.definition.search import left_to_try

    return left_to_try(sweep, points)


def to_retry(states: SweepStates, chosen: Selection, failed_only: bool, going: Ranges, instead: str) -> Ranges:
    """Of the chosen points those that ended other than well. RunError where nobody can tell, and, with `instead` behind
    it, where there is none and none are `going`."""
    if states.problem and states.numbers("unknown", "pending", "running"):
        raise RunError(f"points may be alive: {states.problem}")
    words = BAD if failed_only else (*BAD, "cancelled")
    points = states.numbers(*words)
    points = points if chosen.points is None else points.intersection(chosen.points)
    if not points and not going:
        what = "has failed" if failed_only else "has failed or was cancelled"
        counts = state_counts(states.counts(chosen.points))
        among = "" if chosen.points is None else f" of {short(chosen.points)}"
        raise RunError(f"no point{among} {what}, so there is nothing to retry: {counts}{instead}")
    return points


def _refuse(key: str) -> None:
    group, _, name = key.partition(".")
    fixed = group == "sweep" and name.partition(".")[0] in _FIXED_IN_SWEEP
    if group not in _CHANGEABLE or fixed or key.startswith("environment.variables"):
        hint = did_you_mean(group, _CHANGEABLE) if group not in (*_CHANGEABLE, "task", "checkpoint") else ""
        raise ConfigError(
            f"points stay what they are{hint}; a retry can change {', '.join(_CHANGEABLE[:-1])} and "
            "sweep.at_once, per_task, side_by_side; for other points launch a sweep of its own",
            key,
        )


def submit_retry(again: Again, script: str | None) -> list[str]:
    """Submits the points, if there are any; the new array jobs. `script`: the changed one, None where it stays.

    The journals note the `retry`: the points' budgets count from there. Raises what a submission does; config and
    script are then as they were, unless something was submitted.
    """
    from slurmopt.sweeps.submit.submission import submit_points

    sweep = again.sweep
    refuse_foreign(sweep)
    index.note(sweep.run)
    with run_lock(sweep.run):
        if not again.points:
            _end(sweep)
            return []
        arrays.note_lost_jobs(sweep, again.settings)
        arrays.drop_lost(sweep)
        _refuse_overtaken(again)
        token = _begin(again)
        try:
            _change(again, script)
            submissions = submit_points(sweep, again.settings, again.points)
        except Exception as error:
            if since := _since(arrays.known(sweep), token):
                _raise_partly(sweep, [submission for submission in since if submission.job is not None], error)
            _undo(sweep)  # Slurm has nothing of it
            raise
        _end(sweep)
    return [str(submission.job) for submission in submissions]


def _raise_partly(sweep: SweepFolder, new: list[Submission], error: Exception) -> NoReturn:
    """Raises `error`, with the array jobs that Slurm has taken and the next step where these can be told."""
    from slurmopt.sweeps.submit.submission import not_noted, partly

    repeat = f"repeat slurmopt retry {sweep.name}/{sweep.id}"
    if isinstance(error, (SubmissionNotNoted, FolderError, OSError)):
        message = f"{not_noted(new, error)}; once it can be written, {repeat}: it never submits twice"
        raise SubmissionNotNoted(message) from error
    if isinstance(error, (SlurmDown, SlurmMissing, SlurmRefused)) and new:
        raise partly(new, error, f"{repeat}: it never submits twice") from error
    raise error


def _begin(again: Again) -> str | None:
    """Keeps what the retry finds; the token of the latest submission before it, or before its first try."""
    sweep, first = again.sweep, again.repeated
    tried = arrays.known(sweep)
    token = first.token if first is not None else tried[-1].token if tried else None
    points, banned = again.points, cancelled(sweep).intersection(again.points)
    if first is not None:
        points, banned = points.union(first.points), banned.union(first.banned)
    unfinished_retry.begin(sweep.run, token, (sweep.config, sweep.script, sweep.run.supervisor), points, banned, first)
    return token


def _end(sweep: SweepFolder) -> None:
    """The retry is done, unless points of an earlier try were not chosen now: of these it is still to be repeated."""
    broken_off = unfinished_retry.found(sweep.run)
    if broken_off is None or not broken_off.points.difference(_points(_since(arrays.known(sweep), broken_off.token))):
        unfinished_retry.end(sweep.run)


def _undo(sweep: SweepFolder) -> None:
    if (broken_off := unfinished_retry.found(sweep.run)) is not None:
        with contextlib.suppress(OSError):  # the disk is still full: the next retry does it
            _put_back(sweep, broken_off)


def _put_back(sweep: SweepFolder, broken_off: unfinished_retry.Unfinished) -> None:
    cancelled_points.add(sweep, broken_off.banned)
    unfinished_retry.undo(sweep.run, broken_off)


def _refuse_overtaken(again: Again) -> None:
    """Another retry may have been quicker."""
    now = sweep_states(again.sweep, fresh=True)
    if lost := again.points.difference(now.numbers(*BAD, "cancelled")):
        raise RunError(f"points {lost} of {now.label} go on already; see: slurmopt status {now.label}")


def _change(again: Again, script: str | None) -> None:
    from slurmopt.grid.yaml_dump import dump_stored

    sweep = again.sweep
    if again.changed is not None and script is not None:
        replace_text(sweep.config, dump_stored(again.changed.stored))
        supervisor_file.write(sweep.run, supervisor(), keep=True)
        replace_text(sweep.script, script)
    cancelled_points.remove(sweep, again.points)
    events.append(sweep.events, "retry", points=str(again.points), changes=again.changes)
    records = Records(sweep)
    for point in again.points:
        run = sweep.point(point)
        running = records.running(point)
        if running is not None and running.records is None:
            events.append(run.events, "retry", changes=again.changes)
        elif not again.settings.sweep.packed:  # it goes on as an array task of its own, which keeps its own records
            records.inherit(point, run)
