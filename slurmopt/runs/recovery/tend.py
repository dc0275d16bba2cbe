"""`slurmopt tend`: brings back the runs that should go on and that nobody brings back.

`--json` prints a list of objects, one for each thing that was done (with `--dry-run`: would be done):

    name id folder
    did       submitted; noted (an earlier tend or launch had submitted it, and its journal did not know); not noted
              (submitted, but its journal cannot be written: see `error`); ended (it stays so); cancelled (by scancel,
              and stays so); failed (see `error`)
    job       the new job's id, with `submitted` and `noted`
    attempt cause reason      of the end that it comes back after, or that was found
    error     why it could not be brought back
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slurmopt.errors import (
    InputError,
    RunError,
    SlurmError,
    SlurmoptError,
    SubmissionNotNoted,
    one_line,
    with_place,
)
from slurmopt.grid.point_ranges import Ranges
from slurmopt.restart import causes
from slurmopt.run_folder import events
from slurmopt.run_folder.json_values import as_int
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.sweep_layout import SweepFolder, point_number
from slurmopt.runs import journal as journals
from slurmopt.runs import options
from slurmopt.runs.find import Selection, all_runs, all_sweeps, find, pick
from slurmopt.runs.journal import returns
from slurmopt.runs.ownership import config_of, is_mine, owner_of, refuse_foreign_run
from slurmopt.runs.recovery.action import Action, deed_of, left_alone
from slurmopt.runs.recovery.orphans import Orphan, goes_on, may_stray, strays
from slurmopt.runs.submit import arrays, unfinished_retry
from slurmopt.runs.submit.exactly_once import locked, note_job, run_lock
from slurmopt.runs.submit.lock_file import is_left
from slurmopt.slurm.cluster.facts import in_cluster

if TYPE_CHECKING:
    from slurmopt.config.schema import Settings

_EVERY = "60s"


First = Callable[[Path, bool], Iterator[Action]]
"""What comes before each look at the runs of a folder; the bool is `--dry-run`."""


def main(argv: list[str], first: First = lambda folder, dry_run: iter(())) -> int:
    """The command; returns the exit status."""
    given = parser().parse_args(argv)
    if given.from_job is not None:
        return _from_job(given.from_job, given.runs)
    every = _seconds(given.watch) if given.watch is not None else None
    if every is not None:
        return _watch(given, every, first)
    deeds: list[Action] = []
    try:
        for deed in _deeds(given, first):
            deeds.append(deed)
            if not given.json:
                _print([deed], given.dry_run)
    finally:  # what was done is told, also after Ctrl-C
        if given.json:
            print(json.dumps([asdict(deed) for deed in deeds]))
    _say_left_alone(given, {deed.folder for deed in deeds})
    return 1 if any(deed.is_problem for deed in deeds) else 0


def parser() -> argparse.ArgumentParser:
    """The options of `slurmopt tend`."""
    made = options.parser("tend", "Bring back the runs that should go on and that nobody brings back.")
    made.add_argument("runs", nargs="*", metavar="RUN", help="default: all runs; " + options.RUN_HELP.partition(";")[0])
    made.add_argument("--dry-run", action="store_true", help="say what would be done")
    how = made.add_mutually_exclusive_group()
    options.add_json(how)
    how.add_argument(
        "--watch",
        nargs="?",
        const=_EVERY,
        metavar="EVERY",
        help=f"go on until interrupted, looking this often (default: {_EVERY})",
    )
    # What the batch shell calls when Slurm will not bring its job back: RUN is its folder, JOB itself.
    made.add_argument("--from-job", metavar="JOB", help=argparse.SUPPRESS)
    return made


def _seconds(text: str) -> int:
    from slurmopt.units import seconds

    try:
        return seconds(text)
    except ValueError as error:
        raise InputError(f"tend: --watch: {error}; name runs before it") from error


def _deeds(given: argparse.Namespace, first: First) -> Iterator[Action]:
    """What `tend` does of the runs that were named, else of all, and of what of sweeps may be left alone: points, or
    array tasks that start them. A sweep that cannot be read keeps none of the others."""
    yield from first(given.folder, given.dry_run)
    runs: list[RunFolder] = []
    for one in _named(given):
        try:
            runs += _of(one)
        except (SlurmoptError, OSError) as error:
            sweep = one.sweep if isinstance(one, Selection) else SweepFolder(one.path)
            if given.runs or owner_of(sweep.run) is None:  # others' are theirs to tend
                yield Action(sweep.name, sweep.id, str(sweep.path), "failed", error=with_place(error))
    yield from tend(runs, given.dry_run)


def _named(given: argparse.Namespace) -> list[RunFolder | Selection]:
    if given.runs:
        return [pick(word, given.folder) for word in given.runs]
    return [*all_runs(given.folder), *map(Selection, all_sweeps(given.folder))]


def _of(found: RunFolder | Selection) -> list[RunFolder]:
    if isinstance(found, RunFolder):
        return [found]
    wanted = found.points
    return [run for run in parts(found.sweep) if wanted is None or (point_number(run) or 0) in wanted]


def parts(sweep: SweepFolder) -> list[RunFolder]:
    """What of a sweep has begun and has a job of its own: points that are array tasks, and tasks that start theirs."""
    own = Ranges(span for one in arrays.known(sweep) if not one.packed for span in one.points.spans)
    begun = [sweep.point(number) for number in _numbers(sweep.points) if number in own]
    return [*map(RunFolder, _folders(sweep.tasks)), *begun]


def _numbers(folder: Path) -> list[int]:
    return sorted(int(path.name) for path in _folders(folder) if path.name.isdecimal())


def _folders(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except FileNotFoundError:
        return []


def _print(deeds: list[Action], dry_run: bool) -> None:
    for deed in deeds:
        prefix, stream = ("slurmopt: ", sys.stderr) if deed.is_problem else ("", None)
        print(prefix + deed.line(dry_run), file=stream, flush=True)


def _say_left_alone(given: argparse.Namespace, done: set[str]) -> None:
    for line in left_alone(_named(given) if given.runs else [], done):
        print(f"slurmopt: {line}", file=sys.stderr, flush=True)


def _watch(given: argparse.Namespace, every: int, first: First) -> int:
    """Round after round; what was said of a run in the last round is not said again."""
    before: list[str] | None = None
    while True:
        said, done = [], set()
        try:
            for deed in _deeds(given, first):
                done.add(deed.folder)
                said.append(deed.line(given.dry_run))
                _print([deed] if said[-1] not in (before or []) else [], given.dry_run)
            if before is None:
                _say_left_alone(given, done)
        except (SlurmoptError, OSError) as error:
            if before is None and not isinstance(error, SlurmError):  # what was typed names nothing that can be tended
                raise
            said.append(with_place(error))
            if said[-1] not in (before or []):
                print(f"slurmopt: {one_line(with_place(error))}", file=sys.stderr, flush=True)
        before = said
        time.sleep(every)


def tend(runs: list[RunFolder], dry_run: bool = False) -> Iterator[Action]:
    """Brings back those of `runs` that are left alone. Raises SlurmError where Slurm cannot be asked how they are."""
    found = strays(runs)
    if found:  # nothing is done on an answer that a requeue may have overtaken
        found = strays([stray.run for stray in found], fresh=True)
    for stray in found:
        try:
            deed = _would(stray) if dry_run else _do(stray)
        except (SlurmoptError, OSError) as error:
            did = "not noted" if isinstance(error, SubmissionNotNoted) else "failed"
            deed = deed_of(stray, did, error=with_place(error))
        except Exception as error:  # noqa: BLE001 - a run with something unheard-of in its files must not keep the others
            deed = deed_of(stray, "failed", error=f"{type(error).__name__}: {error}")
        if deed is not None:
            yield deed
    if not dry_run:
        _settle_claims(runs)


def _settle_claims(runs: list[RunFolder]) -> None:
    """Removes what a tend or a launch that was killed has left of its claim; that of a live one stays. One that cannot
    be removed keeps nobody: whoever claims the run settles it."""
    for run in runs:
        with contextlib.suppress(SlurmoptError, OSError):
            if is_left(run.submitter) and is_mine(run):
                with locked(run, patience=0):
                    pass


def _refuse_elsewhere(stray: Orphan) -> None:
    if stray.cluster is not None:
        raise RunError(f"its job {stray.journal.job} is one of cluster {stray.cluster}; tend it there")


def _would(stray: Orphan) -> Action:
    from slurmopt.config.composition.settings import load
    from slurmopt.runs.recovery.missing_end import late_end

    refuse_foreign_run(stray.run)
    _refuse_elsewhere(stray)
    if stray.submitted is not None:
        return deed_of(stray, "noted", job=stray.submitted)
    if _is_cancelled(stray):
        return deed_of(stray, "cancelled")
    end = stray.end or late_end(stray, load(config_of(stray.run))[1])
    return deed_of(stray, "submitted" if returns(end) else "ended", end)


def _do(stray: Orphan) -> Action | None:
    """What is to be done, done; None where another was quicker."""
    from slurmopt.config.composition.settings import load

    refuse_foreign_run(stray.run)
    _refuse_elsewhere(stray)
    _, settings = load(config_of(stray.run))
    with locked(stray.run, patience=0) as mine:
        now = journals.read(stray.run)
        if not mine or not may_stray(now) or now.latest != stray.journal.latest:
            return None
        if stray.submitted is not None:
            return _noted(stray, stray.submitted, settings)
        return _cancelled(stray, settings) if _is_cancelled(stray) else _bring_back(stray, settings)


def _noted(stray: Orphan, job: str, settings: Settings) -> Action:
    """Notes the job of a submission that broke off once Slurm had it: cancel, and a look at the run, go by it."""
    note_job(stray.run, stray.journal.backend or "sbatch", stray.journal.token, job, **in_cluster())
    unfinished_retry.end(stray.run)  # of a retry: all that it was to do is done
    if stray.end is not None:
        _notify(stray.run, stray.end, settings)
    return deed_of(stray, "noted", job=job)


def _is_cancelled(stray: Orphan) -> bool:
    return causes.of_state(stray.state or "") == causes.CANCELLED


def _cancelled(stray: Orphan, settings: Settings) -> Action:
    """Notes it, so that the run counts as cancelled when Slurm has forgotten the job."""
    events.append(stray.run.events, "cancel", job=stray.journal.job, by="tend")
    end = _write_end(stray, settings) if stray.journal.attempt and stray.end is None else None
    if end is not None:
        _notify(stray.run, end, settings)
    return deed_of(stray, "cancelled", end)


def _bring_back(stray: Orphan, settings: Settings) -> Action | None:
    from slurmopt.runs.recovery.resubmit import submit_again

    end = stray.end or _write_end(stray, settings)
    if end is None:
        return None
    job = submit_again(stray.run, stray.journal.backend or "sbatch", settings) if returns(end) else None
    _notify(stray.run, end, settings)
    return deed_of(stray, "submitted" if job else "ended", end, job=job)


def _write_end(stray: Orphan, settings: Settings) -> dict[str, Any] | None:
    """The `end` that the latest attempt left out, written; None where an attempt has begun just now."""
    from slurmopt.runs.recovery.missing_end import claim, late_end

    end = late_end(stray, settings)
    if stray.journal.attempt is None and not claim(stray.run, end["attempt"]):
        return None
    events.append(stray.run.events, "end", **end)
    return end


def _notify(run: RunFolder, end: dict[str, Any], settings: Settings) -> None:
    if not settings.notify.to_json_arg():
        return
    from slurmopt.notify import Hooks, tell

    hooks = Hooks(settings.notify.when, settings.notify.command, settings.notify.webhook)
    for line in tell(run, as_int(end.get("attempt")) or 0, hooks, os.environ):
        print(f"slurmopt: {one_line(f'{run.name}/{run.id}')}: {line}", file=sys.stderr, flush=True)


def _from_job(job: str, words: list[str]) -> int:
    """The fresh submission from inside the job, which is on its way out."""
    from slurmopt.config.composition.settings import load
    from slurmopt.runs.recovery.resubmit import submit_again

    run = find(words[0] if words else None, Path())
    refuse_foreign_run(run)
    _, settings = load(config_of(run))
    with run_lock(run):
        journal = journals.read(run)
        if journal.local or not goes_on(journal) or journal.attempt is None:  # ended, cancelled, or submitted already
            return 0
        stray = Orphan(journal, "COMPLETING")
        end = stray.end or _write_end(stray, settings)
        if end is None or not returns(end):
            return 0
        try:
            new = submit_again(run, journal.backend or "sbatch", settings, after=job)
        except SlurmError as error:
            said = "" if isinstance(error, SubmissionNotNoted) else "not submitted again from here: "
            does = "notes it" if isinstance(error, SubmissionNotNoted) else "does it"
            print(f"slurmopt: {said}{error}; `slurmopt tend` on a login node {does}", file=sys.stderr)
            return 1
    print(f"slurmopt: submitted again as job {new}, which starts when this one is over", file=sys.stderr)
    return 0
