"""`slurmopt logs`: what the ranks of a run or a point wrote; of a sweep, `--errors` shows each kind of failure once."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from slurmopt.errors import RunError, plain_lines
from slurmopt.grid.records import readable
from slurmopt.run_folder.json_values import as_int
from slurmopt.run_folder.layout import RunFolder
from slurmopt.runs.find import Selection, pick, started
from slurmopt.runs.logs import ranks as of_runs
from slurmopt.runs.logs.ranks import parser
from slurmopt.runs.ownership import owner_of
from slurmopt.runs.status.failure import failure
from slurmopt.runs.tail import last_lines
from slurmopt.sweeps.status.failures import Group, groups
from slurmopt.sweeps.status.point_states import Point, SweepStates
from slurmopt.sweeps.status.query import standing
from slurmopt.sweeps.status.view import short, states

__all__ = ["main", "parser"]

_LOOK_BACK = 2000
_LONGEST = 60
"""Lines of a log."""
_MOST_GROUPS = 20
_TRIES = 5
"""Points of a group in whose logs a traceback is looked for."""


def main(argv: list[str]) -> int:
    """The command; returns the exit status."""
    given = parser().parse_args(argv)
    found = pick(given.run, given.folder)
    if isinstance(found, RunFolder):
        return of_runs.show(given, found)
    if found.point is not None:
        return of_runs.show(given, started(found))
    if not given.errors:
        label = f"{found.sweep.name}/{found.sweep.id}"
        first = found.points[0] if found.points else 0
        raise RunError(f"{found.label} has a log for each point; name one, such as {label}/{first}, or add --errors")
    _refuse_of_one_run(given)
    told = _errors(standing(found.sweep), found)
    print(told if owner_of(found.sweep.run) is None else plain_lines(told))
    return 0


def _refuse_of_one_run(given: argparse.Namespace) -> None:
    if given.attempt is not None:
        raise RunError("--attempt is for one point; name it: SWEEP/17")


def _errors(seen: SweepStates, chosen: Selection) -> str:
    failed = groups(seen, chosen.points, never_started=False)
    if not failed:
        return f"{chosen.label}: no point has failed; {states(seen.counts(chosen.points))}"
    parts = [_report(seen, group) for group in failed[:_MOST_GROUPS]]
    if left := failed[_MOST_GROUPS:]:
        parts.append(f"and {len(left)} more kinds of failure; slurmopt status {seen.label} --json lists them")
    return "\n\n".join(parts)


def _report(seen: SweepStates, group: Group) -> str:
    count = f"{len(group.points):,} point{'s' if len(group.points) != 1 else ''}"
    cause = f"{group.cause}: " if group.cause and group.cause not in group.error else ""
    shown, lines = next(_told(seen, group), (group.example, []))
    where = f"of point {shown}: slurmopt logs {seen.label}/{shown} --errors" if lines else "no log tells more"
    return "\n".join([f"{count} ({short(group.points)}): {cause}{group.error}", f"  {where}", "", *lines]).rstrip()


def _told(seen: SweepStates, group: Group) -> Iterator[tuple[int, list[str]]]:
    """Of the first points that left any: their traceback."""
    for number in group.points.slice(0, _TRIES):
        if lines := traceback_of(readable(seen.sweep.point(number)), seen.of(number)):
            yield number, lines


def traceback_of(run: RunFolder, point: Point) -> list[str]:
    """The traceback of a point that failed: as its rank told it, else the last in its log, else the log's end."""
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
    begins = [at for at, line in enumerate(lines) if line.startswith("Traceback (most recent call last)")]
    return lines[begins[-1] :][:_LONGEST] if begins else lines[-20:]
