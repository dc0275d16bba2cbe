"""`slurmopt retry`: continues ended runs and points of sweeps in their folders, with changed resources.

`--json` prints a list of objects, one a run: `name`, `id`, `folder`, `job` (null where it was not submitted), `changes`
(a key → its value before and after), `error` (null where all went well) and `script` (null but with `--dry-run`). That
of a sweep has `points` (those that go on, "3-9") and `jobs` too; `job` is the first of these.

Of a sweep, the points that failed, were killed, lost or cancelled are continued, with `--failed` not the cancelled
ones; never a point that finished. A run that finished is refused, unless `--again` is given.

Each run gets a line; one that cannot be retried does not stop the others. The exit status is 0 where all were
submitted, else the highest of their errors' exit statuses; with `--wait` also 1 where one did not finish.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from dataclasses import asdict, dataclass, field
from typing import Any

from slurmopt import command_output
from slurmopt.config.schema import GROUPS
from slurmopt.errors import RunError, SlurmoptError, labelled, one_line, with_place
from slurmopt.grid.point_ranges import Ranges
from slurmopt.launching.retry import ready_retry
from slurmopt.launching.retry_plan import script_of
from slurmopt.run_folder.access.files import read_script
from slurmopt.run_folder.layout import RunFolder
from slurmopt.runs import options
from slurmopt.runs.all_runs import all_runs, all_sweeps, created
from slurmopt.runs.find import Selection, select
from slurmopt.runs.ownership import owner_of
from slurmopt.runs.recovery import changed_config
from slurmopt.runs.recovery.changed_config import More
from slurmopt.runs.status.query import gather
from slurmopt.runs.status.state import FAILED
from slurmopt.runs.submit.plan import Plan

_MOST = 1000.0


@dataclass
class Answer:
    """The outcome of the retry of one run."""

    name: str
    id: str
    folder: str
    job: str | None = None
    changes: dict[str, Any] = field(default_factory=dict)
    error: str | None = None
    script: str | None = None
    points: str | None = None
    """Of a sweep: the points that are continued."""
    jobs: list[str] = field(default_factory=list)
    """Of a sweep: all its new array jobs."""
    before: bool = False
    """Whether an earlier retry had submitted all of it."""
    status: int = 0
    """The exit status of the error."""


def main(argv: list[str]) -> int:
    """Runs the command and returns its exit status."""
    args = parser().parse_intermixed_args(argv)
    names, overrides = _split_arguments(args.arguments)
    answers: list[Answer] = []
    runs, sweeps = _selected(names, args, answers)
    if overrides:
        from slurmopt.config.composition.override import parse

        parse(overrides)  # an error in the overrides is reported once, not for each run
    retried: list[RunFolder | Selection] = []
    selected: list[RunFolder | Selection] = [*runs, *sweeps]
    for item in selected:
        if isinstance(item, RunFolder):
            answers.append(_retried(item, overrides, args))
        else:
            answers.append(_retried_points(item, overrides, args))
        retried += [item] if answers[-1].job is not None else []
    if args.json:
        command_output.print_json([_as_dict(answer) for answer in answers])
    status = max((answer.status for answer in answers), default=0)
    return max(status, _waited(retried, args.json)) if args.wait and retried else status


def _waited(items: list[RunFolder | Selection], as_json: bool) -> int:
    """Waits until all of them have ended. Returns 0 if all have finished, else 1."""
    from slurmopt.sweeps.status.waiting import Waiting

    waiting = Waiting(items)
    waiting.wait(None, any_of_them=False)
    for label, state in waiting.states.items():
        print(f"{label}: {state.text}", file=sys.stderr if as_json else sys.stdout, flush=True)
    return 0 if all(state.finished for state in waiting.states.values()) else 1


def parser() -> argparse.ArgumentParser:
    """The options of `slurmopt retry`."""
    parser = options.parser("retry", "Continue runs that have ended, in their folders, with changed resources.")
    parser.add_argument("arguments", nargs="*", metavar="RUN | key=value", help=f"{options.RUN_HELP}; overrides")
    selection = parser.add_mutually_exclusive_group()
    selection.add_argument(
        "--failed", action="store_true", help="the failed ones of these runs (of all runs, if none is named)"
    )
    again = "also retry a run that has finished (refused otherwise)"
    selection.add_argument("--again", action="store_true", help=again)
    selection.add_argument("--finished", dest="again", action="store_true", help=argparse.SUPPRESS)  # its earlier name
    parser.add_argument("--more-memory", type=_factor, metavar="FACTOR", help="multiply the memory, such as by 1.5")
    parser.add_argument("--more-time", type=_factor, metavar="FACTOR", help="multiply the time limit, such as by 2")
    after = parser.add_mutually_exclusive_group()
    after.add_argument("--dry-run", action="store_true", help="print the scripts; submit and change nothing")
    after.add_argument("--wait", action="store_true", help="wait for their ends; exit status 1: one did not finish")
    options.add_json(parser)
    return parser


def _factor(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 1 < value <= _MOST:
        raise argparse.ArgumentTypeError(f"{text!r} is not valid; valid: a number above 1, such as 1.5")
    return value


def _split_arguments(arguments: list[str]) -> tuple[list[str], list[str]]:
    """The names of runs, and the overrides, among the arguments."""
    overrides = [argument for argument in arguments if "=" in argument or argument[:1] in ("+", "~")]
    return [argument for argument in arguments if argument not in overrides], overrides


def _selected(
    names: list[str], args: argparse.Namespace, answers: list[Answer]
) -> tuple[list[RunFolder], list[Selection]]:
    """The selected runs, and sweeps or points of sweeps. Appends to `answers` the errors of those that cannot be
    read."""
    if args.failed and not names:
        return _failed(sorted(all_runs(args.folder), key=created), args), _with_failures(args, answers)
    picked = [select(name, args.folder) for name in names] or [select(None, args.folder)]
    selected = list(dict.fromkeys(picked))
    runs = [item for item in selected if isinstance(item, RunFolder)]
    return _failed(runs, args), [item for item in selected if isinstance(item, Selection)]


def _with_failures(args: argparse.Namespace, answers: list[Answer]) -> list[Selection]:
    from slurmopt.sweeps.status.query import sweep_states

    sweeps = sorted(all_sweeps(args.folder), key=lambda sweep: created(sweep.run))
    selections = []
    for sweep in sweeps:
        try:
            if sweep_states(sweep).numbers(*FAILED):
                selections.append(Selection(sweep))
        except (SlurmoptError, OSError) as error:
            if owner_of(sweep.run) is None:  # only their owners can retry them
                answers.append(Answer(sweep.name, sweep.id, str(sweep.path)))
                _fail(answers[-1], error)
    if sweeps:
        print(f"slurmopt: {len(selections)} of {len(sweeps)} sweeps have points that failed", file=sys.stderr)
    return selections


def _failed(runs: list[RunFolder], args: argparse.Namespace) -> list[RunFolder]:
    """With --failed those among `runs` that have failed, else `runs`."""
    if not args.failed or not runs:
        return runs
    statuses, problem = gather(runs, fresh=True)
    if problem:
        command_output.warn(f"Slurm was not asked: {problem}")
    failed = [status.folder for status in statuses if status.state in FAILED]
    print(f"slurmopt: {len(failed)} of {len(runs)} runs have failed", file=sys.stderr)
    return failed


def _retried_points(selection: Selection, overrides: list[str], args: argparse.Namespace) -> Answer:
    """Retries points of a sweep and prints the result."""
    from slurmopt.sweeps.submit import resubmit

    sweep = selection.sweep
    answer = Answer(sweep.name, sweep.id, str(sweep.path))
    try:
        if args.again:
            raise RunError(
                "--again is for runs; points of a sweep that have finished stay as they are, and those that failed "
                f"are retried without it: slurmopt retry {_label(answer)}"
            )
        with contextlib.redirect_stdout(sys.stderr):
            if not args.dry_run:
                resubmit.settle(sweep)
            planned = resubmit.plan(selection, overrides, More(args.more_memory, args.more_time), args.failed)
            script = script_of(planned)
        answer.changes = planned.changes
        answer.points = str(planned.points.union(planned.going))
        if args.dry_run:
            _show(answer, script or read_script(sweep.script), args.json)
        else:
            answer.jobs = [*planned.jobs, *resubmit.submit_retry(planned, script)]
            answer.job, answer.before = answer.jobs[0], not planned.points
            _say_points(answer, args.json)
    except (SlurmoptError, OSError) as error:
        _fail(answer, error)
    return answer


def _say_points(answer: Answer, as_json: bool) -> None:
    if not as_json:
        count = len(Ranges.parse(answer.points or ""))
        subject = f"{count:,} points" if count != 1 else f"point {answer.points}"
        verb = "submitted before, and not again: job" if answer.before else "submitted as job"
        print(f"{_label(answer)}: {subject} {verb} {', '.join(answer.jobs)}{_changes(answer)}", flush=True)


def _fail(answer: Answer, error: SlurmoptError | OSError) -> None:
    message = with_place(error)
    answer.error, answer.status = one_line(message), getattr(error, "exit_status", 1)
    for line in message.splitlines() or [""]:
        command_output.fail(labelled(_label(answer), one_line(line)), type(error).__name__)


def _retried(run: RunFolder, overrides: list[str], args: argparse.Namespace) -> Answer:
    """Retries one run and prints the result."""
    answer = Answer(run.name, run.id, str(run.path))
    try:
        factors = More(args.more_memory, args.more_time)
        # Standard output is only for the result; the user's modules and resolvers may print.
        with contextlib.redirect_stdout(sys.stderr):
            ready = ready_retry(run, overrides, factors, args.dry_run, args.again)
        if isinstance(ready, str):
            answer.job, answer.changes, answer.before = ready, changed_config.latest_changes(run), True
            _say(answer, args.json)
            return answer
        answer.changes = ready.plan.changes or {}
        _remark(answer, ready.plan)
        if args.dry_run:
            _show(answer, ready.script, args.json)
        else:
            from slurmopt.runs.submit.launch_run import submit_run

            answer.job, _ = submit_run(*ready)
            _say(answer, args.json)
    except (SlurmoptError, OSError) as error:
        _fail(answer, error)
    return answer


def _remark(answer: Answer, planned: Plan) -> None:
    """Warns where a changed key may have been used in task.command, which is stored as the launch resolved it."""
    own = [key for key in answer.changes if key.split(".")[0] not in GROUPS]
    if own and planned.job.settings.task.command is not None and "task.command" not in answer.changes:
        remark = (
            f"task.command stays as it was launched, whatever it took from {', '.join(own)}; to change it, give it too"
        )
        command_output.warn(f"{_label(answer)}: {one_line(remark)}")


def _show(answer: Answer, script: str, as_json: bool) -> None:
    if as_json:
        answer.script = script
        return
    sys.stdout.write(script)
    sys.stdout.flush()
    print(f"slurmopt: dry run of {_label(answer)}, nothing changed or submitted{_changes(answer)}", file=sys.stderr)


def _say(answer: Answer, as_json: bool) -> None:
    if not as_json:
        verb = "submitted before, and not again: job" if answer.before else "submitted as job"
        print(f"{_label(answer)}: {verb} {answer.job}{_changes(answer)}", flush=True)


def _changes(answer: Answer) -> str:
    return f"; {one_line(changed_config.for_people(answer.changes))}" if answer.changes else ""


def _label(answer: Answer) -> str:
    return one_line(f"{answer.name}/{answer.id}")


def _as_dict(answer: Answer) -> dict[str, Any]:
    shown = asdict(answer)
    of_sweeps = () if answer.points is not None else ("points", "jobs")
    return {key: value for key, value in shown.items() if key not in ("status", "before", *of_sweeps)}
