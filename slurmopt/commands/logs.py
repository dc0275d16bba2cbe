"""`slurmopt logs`: prints the logs of a run's or a point's ranks; of a sweep, `--errors` prints each kind of failure
once.

`--json` prints a list of objects, one a log: `rank` (null: the job's own log), `file` and `text`. With `--errors` it
prints one object: `attempt`, of the rank that failed first `rank`, `node`, `outcome`, `error` and `traceback` (null
where no rank has left an account), and `text`, the page; of a sweep a list, one a kind of failure: `cause`, `error`,
`count`, `points`, `example`, and `traceback` (null where no log has one).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from slurmopt import command_output
from slurmopt.errors import InputError, RunError, plain_lines
from slurmopt.grid.records import readable
from slurmopt.run_folder.json_values import as_int
from slurmopt.run_folder.layout import RunFolder
from slurmopt.runs import options
from slurmopt.runs.find import Selection, select, started_point
from slurmopt.runs.logs import ranks
from slurmopt.runs.ownership import owner_of
from slurmopt.runs.status.failure import failure
from slurmopt.runs.tail import last_lines
from slurmopt.sweeps.status.failures import Group, groups
from slurmopt.sweeps.status.point_states import Point, SweepStates
from slurmopt.sweeps.status.query import sweep_states
from slurmopt.sweeps.status.view import short, state_counts

_LOOK_BACK = 2000
_LONGEST = 60
"""Lines of a log."""
_MOST_GROUPS = 20
_TRIES = 5
"""Points of a group in whose logs a traceback is looked for."""


def main(argv: list[str]) -> int:
    """Runs the command and returns its exit status."""
    args = parser().parse_args(argv)
    if args.json and args.follow:
        raise InputError("logs: --json prints whole logs; leave out --follow")
    selected = select(args.run, args.folder)
    if isinstance(selected, RunFolder):
        _show_run(selected, args)
    elif selected.point is not None:
        _show_run(started_point(selected), args)
    else:
        _show_sweep(selected, args)
    return 0


def parser() -> argparse.ArgumentParser:
    """The options of `slurmopt logs`."""
    parser = options.parser("logs", "Show the logs of the ranks of a run.")
    options.add_run(parser)
    parser.add_argument("--rank", type=_rank, default=0, metavar="N", help="which rank, or `all` (default: 0)")
    parser.add_argument("--attempt", type=_natural, metavar="K", help="which attempt (default: the latest)")
    output = parser.add_mutually_exclusive_group()
    output.add_argument("-f", "--follow", action="store_true", help="continue until the run has ended")
    output.add_argument(
        "--errors", action="store_true", help="the first rank that failed: its traceback and the end of its log"
    )
    options.add_json(parser)
    return parser


def _natural(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number; valid: 0, 1, 2, …")
    return int(text)


def _rank(text: str) -> int | None:
    return None if text == "all" else _natural(text)


def _show_run(run: RunFolder, args: argparse.Namespace) -> None:
    if args.json:
        of_run = ranks.failure_dict(run, args.attempt) if args.errors else ranks.as_dicts(run, args.rank, args.attempt)
        command_output.print_json(of_run)
    elif args.errors:
        ranks.show_errors(run, args.attempt)
    elif args.follow:
        ranks.follow(run, args.rank, args.attempt)
    else:
        ranks.show(run, args.rank, args.attempt)


def _show_sweep(selection: Selection, args: argparse.Namespace) -> None:
    """Prints the failures of a sweep's points; of their logs RunError."""
    if not args.errors:
        label = f"{selection.sweep.name}/{selection.sweep.id}"
        first = selection.points[0] if selection.points else 0
        raise RunError(
            f"{selection.label} has a log for each point; name one, such as {label}/{first}, or add --errors"
        )
    if args.attempt is not None:
        raise RunError("--attempt is for one point; name it: SWEEP/17")
    if args.json:
        command_output.print_json(_failures(selection))
    else:
        print(errors_of_sweep(selection))


def errors_of_sweep(selection: Selection) -> str:
    """Each kind of failure of the sweep's points once, with a traceback."""
    text = _errors(sweep_states(selection.sweep), selection)
    return text if owner_of(selection.sweep.run) is None else plain_lines(text)


def _failures(selection: Selection) -> list[dict[str, Any]]:
    states = sweep_states(selection.sweep)
    failures = groups(states, selection.points, never_started=False)
    found = [next(_tracebacks(states, group), None) for group in failures]
    return [
        {**group.as_dict(), "traceback": None if one is None else "\n".join(one[1])}
        for group, one in zip(failures, found, strict=True)
    ]


def _errors(states: SweepStates, selection: Selection) -> str:
    failures = groups(states, selection.points, never_started=False)
    if not failures:
        return f"{selection.label}: no point has failed; {state_counts(states.counts(selection.points))}"
    parts = [_report(states, group) for group in failures[:_MOST_GROUPS]]
    if omitted := failures[_MOST_GROUPS:]:
        parts.append(f"and {len(omitted)} more kinds of failure; slurmopt status {_run(states)} --json lists them")
    return "\n\n".join(parts)


def _run(states: SweepStates) -> str:
    return options.run_arg(states.sweep.run, states.label)


def _report(states: SweepStates, group: Group) -> str:
    count = f"{len(group.points):,} point{'s' if len(group.points) != 1 else ''}"
    cause = f"{group.cause}: " if group.cause and group.cause not in group.error else ""
    shown, lines = next(_tracebacks(states, group), (group.example, []))
    where = f"of point {shown}: slurmopt logs {_run(states)}/{shown} --errors" if lines else "no log tells more"
    return "\n".join([f"{count} ({short(group.points)}): {cause}{group.error}", f"  {where}", "", *lines]).rstrip()


def _tracebacks(states: SweepStates, group: Group) -> Iterator[tuple[int, list[str]]]:
    """The numbers and tracebacks of those among the group's first points that left one."""
    for number in group.points.slice(0, _TRIES):
        if lines := traceback_of(readable(states.sweep.point(number)), states.of(number)):
            yield number, lines


def traceback_of(run: RunFolder, point: Point) -> list[str]:
    """The traceback that a failed point's rank recorded, else the last one in its log, else the end of its log."""
    if point.attempt is None:
        return []
    account = failure(run, point.attempt)
    if account is not None and account.traceback:
        return account.traceback.rstrip().splitlines()[-_LONGEST:]
    rank = as_int((point.end or {}).get("rank")) or 0
    try:
        lines = last_lines(run.rank_log(point.attempt, rank), _LOOK_BACK)
    except FileNotFoundError:
        return []
    starts = [index for index, line in enumerate(lines) if line.startswith("Traceback (most recent call last)")]
    return lines[starts[-1] :][:_LONGEST] if starts else lines[-20:]
