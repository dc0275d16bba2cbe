"""Points that ended other than well go on in their folders, as new array jobs: `slurmopt retry` of a sweep."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slurmopt.config.check import did_you_mean
from slurmopt.errors import ConfigError, RunError, SubmissionNotNoted
from slurmopt.folder import events
from slurmopt.folder.files import replace_text
from slurmopt.folder.sweep import SweepFolder
from slurmopt.grid.ranges import Ranges
from slurmopt.grid.records import Records
from slurmopt.grid.submissions import Submission, cancelled
from slurmopt.runs import arrays, unfinished
from slurmopt.runs import retry as retries
from slurmopt.runs.find import Selection
from slurmopt.runs.handover import alone
from slurmopt.runs.mine import refuse_foreign
from slurmopt.runs.retry import Changed, More
from slurmopt.sweeps.cancel import change
from slurmopt.sweeps.look import standing
from slurmopt.sweeps.standing import BAD, Standing
from slurmopt.sweeps.view import short, states

if TYPE_CHECKING:
    from slurmopt.config.schema import Settings

_CHANGEABLE = ("resources", "restart", "health", "network", "monitor", "environment", "launch", "sweep")
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

    @property
    def changes(self) -> dict[str, list[Any]]:
        """A key → its value before and after."""
        return self.changed.changes if self.changed is not None else {}


def note_lost_submissions(chosen: Selection) -> list[Submission]:
    """Array jobs of the chosen points that a retry before this one got through without learning it: its sbatch was
    killed, or a full disk kept the journal from noting them. They are noted now."""
    from slurmopt.config.settings import load

    sweep = chosen.sweep
    if not unfinished.is_left(sweep.run) and arrays.is_told(sweep):
        return []
    refuse_foreign(sweep)
    with alone(sweep.run):
        found = arrays.note_found(sweep, load(sweep.config)[1])
        found = [*found, *(one for one in _finish(sweep) if one.job not in [each.job for each in found])]
    wanted = goes_on(chosen)
    return [one for one in found if _is_again(one, sweep) and one.points.both(wanted)]


def goes_on(chosen: Selection) -> Ranges:
    """The chosen points without those that have been cancelled: what an earlier retry submitted of these is history."""
    points = Ranges([(0, max(0, arrays.how_many(chosen.sweep) - 1))]) if chosen.points is None else chosen.points
    return points.minus(cancelled(chosen.sweep))


def _finish(sweep: SweepFolder) -> list[Submission]:
    """What a retry that broke off left to do, done: its array jobs. One of which Slurm has nothing is undone."""
    from slurmopt.config.settings import load
    from slurmopt.sweeps.submission import submit_points

    broken_off = unfinished.found(sweep.run)
    if broken_off is None:
        return []
    if not _since(sweep, broken_off.token):
        _put_back(sweep, broken_off)
        return []
    settings = load(sweep.config)[1]
    arrays.settle(sweep, settings, arrays.how_many(sweep))
    have = Ranges(span for one in _since(sweep, broken_off.token) for span in one.points.spans)
    if left := broken_off.points.minus(have).minus(cancelled(sweep)):
        submit_points(sweep, settings, left)
    unfinished.end(sweep.run)
    return _since(sweep, broken_off.token)


def _since(sweep: SweepFolder, token: str | None) -> list[Submission]:
    """The submissions after that with `token`."""
    known = arrays.known(sweep)
    return known[next((place for place, one in enumerate(known, 1) if one.token == token), 0) :]


def _is_again(one: Submission, sweep: SweepFolder) -> bool:
    """Whether its points had an array job before."""
    return any(one.points.both(earlier.points) for earlier in arrays.known(sweep) if earlier.number < one.number)


def plan(chosen: Selection, words: list[str], more: More, failed_only: bool, without: Ranges | None = None) -> Again:
    """Which points go on, with which needs; `without` those that go on already, which may be all. Nothing is written.
    Raises RunError, ConfigError."""
    refuse_foreign(chosen.sweep)
    points = to_retry(standing(chosen.sweep, fresh=True), chosen, failed_only, without or Ranges())
    if not words and more == More():
        from slurmopt.config.settings import load

        settings = load(chosen.sweep.config)[1]
        return Again(chosen.sweep, _left(chosen.sweep, points, settings), settings, None)
    stored = retries.stored_config(chosen.sweep.run)
    changed = retries.changed(stored, words, more)
    for key in changed.changes:
        _refuse(key)
    return Again(chosen.sweep, _left(chosen.sweep, points, changed.settings), changed.settings, changed)


def _left(sweep: SweepFolder, points: Ranges, settings: Settings) -> Ranges:
    """Of a search those that have not been tried."""
    if settings.sweep.search is None:
        return points
    from slurmopt.sweeps.search import left_to_try

    return left_to_try(sweep, points)


def to_retry(seen: Standing, chosen: Selection, failed_only: bool, without: Ranges) -> Ranges:
    """Of the chosen points those that ended other than well, and are not in `without`; RunError where there is none
    with these, or nobody can tell."""
    if seen.problem and seen.numbers("unknown", "pending", "running"):
        raise RunError(f"points may be alive: {seen.problem}")
    words = BAD if failed_only else (*BAD, "cancelled")
    points = seen.numbers(*words)
    points = (points if chosen.points is None else points.both(chosen.points)).minus(without)
    if not points and not without:
        what = "has failed" if failed_only else "has failed or was cancelled"
        counts = states(seen.counts(chosen.points))
        among = "" if chosen.points is None else f" of {short(chosen.points)}"
        raise RunError(f"no point{among} {what}, so there is nothing to retry: {counts}")
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


def submit(again: Again, script: str | None) -> list[str]:
    """Submits the points; the new array jobs. `script`: the changed one, None where it stays.

    The journals note the `retry`: the points' budgets count from there. Raises what a submission does; config and
    script are then as they were, unless something was submitted.
    """
    from slurmopt.sweeps.submission import not_noted, submit_points

    sweep = again.sweep
    refuse_foreign(sweep)
    with alone(sweep.run):
        again, settled = _settled(again)
        if not again.points:
            return [str(one.job) for one in settled]
        _refuse_overtaken(again)
        tried = arrays.known(sweep)
        banned = cancelled(sweep).both(again.points)
        unfinished.begin(sweep.run, tried[-1].token if tried else None, _files(sweep), again.points, banned)
        try:
            _change(again, script)
            made = submit_points(sweep, again.settings, again.points)
        except Exception as error:
            if len(arrays.known(sweep)) <= len(tried):  # Slurm has nothing of it
                _undo(sweep)
            elif isinstance(error, (SubmissionNotNoted, OSError)):
                again_as = f"once it can be written, repeat slurmopt retry {sweep.name}/{sweep.id}"
                said = f"{not_noted(sweep, error)}; {again_as}: it never submits twice"
                raise SubmissionNotNoted(said) from error
            raise
        unfinished.end(sweep.run)
    return [str(one.job) for one in (*settled, *made)]


def _undo(sweep: SweepFolder) -> None:
    if (broken_off := unfinished.found(sweep.run)) is not None:
        with contextlib.suppress(OSError):  # the disk is still full: the next retry does it
            _put_back(sweep, broken_off)


def _put_back(sweep: SweepFolder, broken_off: unfinished.Unfinished) -> None:
    change(sweep, lambda now: now.union(broken_off.banned))
    unfinished.undo(sweep.run, broken_off)


def _settled(again: Again) -> tuple[Again, list[Submission]]:
    """Brings submissions whose answer was lost to their end: what is left, and the jobs that have the rest."""
    sweep = again.sweep
    lost = [one.number for one in arrays.known(sweep) if one.job is None]
    arrays.settle(sweep, again.settings, arrays.how_many(sweep))
    settled = [one for one in arrays.known(sweep) if one.number in lost and one.points.both(again.points)]
    points = again.points
    for one in settled:
        points = points.minus(one.points)
    return replace(again, points=points), settled


def _files(sweep: SweepFolder) -> tuple[Path, Path]:
    return sweep.config, sweep.script


def _refuse_overtaken(again: Again) -> None:
    """Another retry may have been quicker."""
    now = standing(again.sweep, fresh=True)
    if lost := again.points.minus(now.numbers(*BAD, "cancelled")):
        raise RunError(f"points {lost} of {now.label} go on already; see: slurmopt status {now.label}")


def _change(again: Again, script: str | None) -> None:
    from omegaconf import OmegaConf

    sweep = again.sweep
    if again.changed is not None and script is not None:
        replace_text(sweep.config, OmegaConf.to_yaml(OmegaConf.create(again.changed.stored)))
        replace_text(sweep.script, script)
    change(sweep, lambda before: before.minus(again.points))
    events.append(sweep.events, "retry", points=str(again.points), changes=again.changes)
    records = Records(sweep)
    for point in again.points:
        run = sweep.point(point)
        found = records.running(point)
        if found is not None and found.records is None:
            events.append(run.events, "retry", changes=again.changes)
        elif not again.settings.sweep.packed:  # it goes on as an array task of its own, which keeps its own records
            records.inherit(point, run)
