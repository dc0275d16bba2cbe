"""`slurmopt retry`: runs that have ended go on in their folders, with changed needs; so do points of a sweep.

`--json` prints a list of objects, one a run: `name`, `id`, `folder`, `job` (null where it was not submitted), `changes`
(a key → its value before and after), `error` (null where all went well) and `script` (null but with `--dry-run`). That
of a sweep has `points` (those that go on, "3-9") and `jobs` too; `job` is the first of these.

Of a sweep the points go on that failed, were killed, lost or cancelled, with `--failed` without the cancelled; never
one that finished. A run that finished is refused, unless `--finished` is typed.

Each run gets a line; one that cannot be retried does not stop the others. The exit status is 0 where all were
submitted, else the highest of their errors.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from dataclasses import asdict, dataclass, field
from typing import Any

from slurmopt.config.schema import GROUPS
from slurmopt.errors import RunError, SlurmoptError, labelled, one_line, with_place
from slurmopt.grid.point_ranges import Ranges
from slurmopt.launching import execute
from slurmopt.launching.retry_plan import plan_of, script_of, submitted_before
from slurmopt.run_folder.files import read_script
from slurmopt.run_folder.layout import RunFolder
from slurmopt.runs import options
from slurmopt.runs.find import Selection, all_runs, all_sweeps, created, pick
from slurmopt.runs.ownership import owner_of
from slurmopt.runs.recovery import changed_config as retries
from slurmopt.runs.recovery.changed_config import More
from slurmopt.runs.status.query import gather
from slurmopt.runs.status.state import FAILED
from slurmopt.runs.submit.plan import Plan
from slurmopt.runs.submit.resume import note_lost_submission

_MOST = 1000.0


@dataclass
class Answer:
    """What became of one run."""

    name: str
    id: str
    folder: str
    job: str | None = None
    changes: dict[str, Any] = field(default_factory=dict)
    error: str | None = None
    script: str | None = None
    points: str | None = None
    """Of a sweep: which points go on."""
    jobs: list[str] = field(default_factory=list)
    """Of a sweep: all its new array jobs."""
    before: bool = False
    """Whether an earlier try had submitted all of it."""
    status: int = 0
    """The exit status of the error."""


def main(argv: list[str]) -> int:
    """The command; returns the exit status."""
    given = parser().parse_intermixed_args(argv)
    names, words = _sorted(given.words)
    answers: list[Answer] = []
    runs, sweeps = _meant(names, given, answers)
    if words:
        from slurmopt.config.composition.override import parse

        parse(words)  # what is wrong for all is said once
    answers += [_retried(run, words, given) for run in runs]
    answers += [_retried_points(chosen, words, given) for chosen in sweeps]
    if given.json:
        print(json.dumps([_as_dict(answer) for answer in answers]))
    return max((answer.status for answer in answers), default=0)


def parser() -> argparse.ArgumentParser:
    """The options of `slurmopt retry`."""
    made = options.parser("retry", "Runs that have ended go on in their folders, with changed needs.")
    made.add_argument("words", nargs="*", metavar="RUN | key=value", help=f"{options.RUN_HELP}; overrides")
    which = made.add_mutually_exclusive_group()
    which.add_argument("--failed", action="store_true", help="of these runs (of all, where none is named) the failed")
    which.add_argument("--finished", action="store_true", help="also retry a run that has finished (refused otherwise)")
    made.add_argument("--more-memory", type=_factor, metavar="FACTOR", help="multiply the memory, such as by 1.5")
    made.add_argument("--more-time", type=_factor, metavar="FACTOR", help="multiply the time limit, such as by 2")
    made.add_argument("--dry-run", action="store_true", help="print the scripts; submit and change nothing")
    options.add_json(made)
    return made


def _factor(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 1 < value <= _MOST:
        raise argparse.ArgumentTypeError(f"{text!r} is not valid; valid: a number above 1, such as 1.5")
    return value


def _sorted(words: list[str]) -> tuple[list[str], list[str]]:
    """Runs, and overrides."""
    overrides = [word for word in words if "=" in word or word[:1] in ("+", "~")]
    return [word for word in words if word not in overrides], overrides


def _meant(
    names: list[str], given: argparse.Namespace, answers: list[Answer]
) -> tuple[list[RunFolder], list[Selection]]:
    """The runs, and the sweeps or points of sweeps. Of all those that cannot be read `answers` gets the errors."""
    if given.failed and not names:
        return _failed(sorted(all_runs(given.folder), key=created), given), _with_failures(given, answers)
    picked = [pick(name, given.folder) for name in names] or [pick(None, given.folder)]
    found = list(dict.fromkeys(picked))
    runs = [one for one in found if isinstance(one, RunFolder)]
    return _failed(runs, given), [one for one in found if isinstance(one, Selection)]


def _with_failures(given: argparse.Namespace, answers: list[Answer]) -> list[Selection]:
    from slurmopt.sweeps.status.query import standing

    sweeps = sorted(all_sweeps(given.folder), key=lambda sweep: created(sweep.run))
    found = []
    for sweep in sweeps:
        try:
            if standing(sweep).numbers(*FAILED):
                found.append(Selection(sweep))
        except (SlurmoptError, OSError) as error:
            if owner_of(sweep.run) is None:  # others' are theirs to retry
                answers.append(Answer(sweep.name, sweep.id, str(sweep.path)))
                _fail(answers[-1], error)
    if sweeps:
        print(f"slurmopt: {len(found)} of {len(sweeps)} sweeps have points that failed", file=sys.stderr)
    return found


def _failed(runs: list[RunFolder], given: argparse.Namespace) -> list[RunFolder]:
    """With --failed the failed among them."""
    if not given.failed or not runs:
        return runs
    statuses, problem = gather(runs, fresh=True)
    if problem:
        print(f"slurmopt: Slurm was not asked: {problem}", file=sys.stderr)
    failed = [status.folder for status in statuses if status.state in FAILED]
    print(f"slurmopt: {len(failed)} of {len(runs)} runs have failed", file=sys.stderr)
    return failed


def _retried_points(chosen: Selection, words: list[str], given: argparse.Namespace) -> Answer:
    """Retries points of a sweep and says so."""
    from slurmopt.sweeps.submit import resubmit as sweeps

    sweep = chosen.sweep
    answer = Answer(sweep.name, sweep.id, str(sweep.path))
    try:
        if given.finished:
            raise RunError(
                "--finished is for runs; points of a sweep that have finished stay as they are, and those that failed "
                f"are retried without it: slurmopt retry {_label(answer)}"
            )
        with contextlib.redirect_stdout(sys.stderr):
            if not given.dry_run:
                sweeps.settle(sweep)
            planned = sweeps.plan(chosen, words, More(given.more_memory, given.more_time), given.failed)
            script = script_of(planned)
        answer.changes = planned.changes
        answer.points = str(planned.points.union(planned.going))
        if given.dry_run:
            _show(answer, script or read_script(sweep.script), given.json)
        else:
            answer.jobs = [*planned.jobs, *sweeps.submit_retry(planned, script)]
            answer.job, answer.before = answer.jobs[0], not planned.points
            _say_points(answer, given.json)
    except (SlurmoptError, OSError) as error:
        _fail(answer, error)
    return answer


def _say_points(answer: Answer, as_json: bool) -> None:
    if not as_json:
        count = len(Ranges.parse(answer.points or ""))
        what = f"{count:,} points" if count != 1 else f"point {answer.points}"
        done = "submitted before, and not again: job" if answer.before else "submitted as job"
        print(f"{_label(answer)}: {what} {done} {', '.join(answer.jobs)}{_changes(answer)}", flush=True)


def _fail(answer: Answer, error: SlurmoptError | OSError) -> None:
    said = with_place(error)
    answer.error, answer.status = one_line(said), getattr(error, "exit_status", 1)
    for line in said.splitlines() or [""]:
        print(f"slurmopt: error: {labelled(_label(answer), one_line(line))}", file=sys.stderr)


def _retried(run: RunFolder, words: list[str], given: argparse.Namespace) -> Answer:
    """Retries one run and says so."""
    answer = Answer(run.name, run.id, str(run.path))
    try:
        more = More(given.more_memory, given.more_time)
        # Standard output is for what is asked for alone; the user's modules and resolvers may print.
        with contextlib.redirect_stdout(sys.stderr):
            if not given.dry_run:
                note_lost_submission(run)
                answer.job = submitted_before(run, words, more)
            if answer.job is None:
                planned = plan_of(run, words, more, given.dry_run, given.finished)
                backend, script = execute.ready(planned)
        if answer.job is not None:
            answer.changes, answer.before = retries.latest_changes(run), True
            _say(answer, given.json)
            return answer
        answer.changes = planned.changes or {}
        _remark(answer, planned)
        if given.dry_run:
            _show(answer, script, given.json)
        else:
            from slurmopt.runs.submit.execute import submit_run

            answer.job, _ = submit_run(planned, backend, script)
            _say(answer, given.json)
    except (SlurmoptError, OSError) as error:
        _fail(answer, error)
    return answer


def _remark(answer: Answer, planned: Plan) -> None:
    """config.yaml holds the command as the launch resolved it: what it took from a key does not follow the key."""
    own = [key for key in answer.changes if key.split(".")[0] not in GROUPS]
    if own and planned.job.settings.task.command is not None and "task.command" not in answer.changes:
        said = (
            f"task.command stays as it was launched, whatever it took from {', '.join(own)}; to change it, give it too"
        )
        print(f"slurmopt: {_label(answer)}: {one_line(said)}", file=sys.stderr)


def _show(answer: Answer, script: str, as_json: bool) -> None:
    if as_json:
        answer.script = script
        return
    sys.stdout.write(script)
    sys.stdout.flush()
    print(f"slurmopt: dry run of {_label(answer)}, nothing changed or submitted{_changes(answer)}", file=sys.stderr)


def _say(answer: Answer, as_json: bool) -> None:
    if not as_json:
        what = "submitted before, and not again: job" if answer.before else "submitted as job"
        print(f"{_label(answer)}: {what} {answer.job}{_changes(answer)}", flush=True)


def _changes(answer: Answer) -> str:
    return f"; {one_line(retries.for_people(answer.changes))}" if answer.changes else ""


def _label(answer: Answer) -> str:
    return one_line(f"{answer.name}/{answer.id}")


def _as_dict(answer: Answer) -> dict[str, Any]:
    shown = asdict(answer)
    of_sweeps = () if answer.points is not None else ("points", "jobs")
    return {key: value for key, value in shown.items() if key not in ("status", "before", *of_sweeps)}
