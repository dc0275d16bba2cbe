"""Reads jobs from the output of `sacct -P -o JobID,Submit,Start,End,AllocTRES,State`, with or without its header."""

from __future__ import annotations

import calendar
import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from slurmopt.errors import InputError, one_line, why_failed
from slurmopt.planning.capacity.demand import Job
from slurmopt.run_folder.access.files import read_whole
from slurmopt.slurm.job_usage import gpus_of, tres
from slurmopt.slurm.states import is_over

FIELDS = ("JobID", "Submit", "Start", "End", "AllocTRES", "State")
_COMMAND = f"sacct -P -o {','.join(FIELDS)}"
_LARGEST = 256 << 20
_JOB = re.compile(r"\d+([_+][\d\[\]%,+-]+)?(\.\w+)?")
_MOST_GPUS = 1_000_000
_LATEST = 4e9
"""Seconds since the epoch, in the year 2096."""
_NO_TIME = frozenset({"", "Unknown", "None", "N/A"})
STEP, NEVER, WITHOUT, BAD = "steps of jobs", "that never started", "without GPUs", "whose times or TRES cannot be read"


@dataclass(frozen=True)
class History:
    """Jobs that used GPUs. Times are seconds of the site's own clock, as if it were UTC."""

    jobs: tuple[Job, ...]
    gpus_per_node: int | None
    """The most of a job on one of its nodes; None where nothing tells."""
    notes: tuple[str, ...]


@dataclass(frozen=True)
class _Row:
    submitted: float | None
    started: float
    ended: float | None
    """None while it runs."""
    gpus: float
    nodes: float | None


def site_clock(epoch: float) -> float:
    """The same time on this machine's clock, as seconds as if that were UTC."""
    return calendar.timegm(time.localtime(epoch)) + epoch % 1


def read(path: Path) -> History:
    """The jobs in a file. Raises InputError: what is wrong, where, and what is valid."""
    place = one_line(str(path))
    try:
        text = read_whole(path, _LARGEST).decode("utf-8-sig")
    except OSError as error:
        raise InputError(f"{place}: {why_failed(error)}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{place}: is no text; valid: the output of {_COMMAND}") from error
    left_out: Counter[str] = Counter()
    rows = dict[tuple[str, float], _Row]()
    for fields in _lines(text, place):
        row = _row(fields)
        if isinstance(row, str):
            left_out[row] += 1
        else:
            rows[fields["JobID"], row.started] = row
    if not rows:
        why = _told(left_out) or "0 rows"
        raise InputError(f"{place}: no job in it used a GPU ({why}); valid: the output of {_COMMAND}")
    return _history(list(rows.values()), left_out)


def _lines(text: str, place: str) -> Iterator[Mapping[str, str]]:
    lines = [line for line in text.split("\n") if line.strip()]
    if not lines:
        raise InputError(f"{place}: is empty; valid: the output of {_COMMAND}")
    first = [cell.strip() for cell in lines[0].split("|")]
    header = first if "JobID" in first else list(FIELDS)
    missing = [name for name in FIELDS if name not in header]
    if missing or (header is not first and (_JOB.fullmatch(first[0]) is None or len(first) < len(FIELDS))):
        what = f"has no {', '.join(missing)}" if missing else f"line 1: {lines[0][:60]!r} is no job"
        raise InputError(f"{place}: {what}; valid: the output of {_COMMAND}")
    for line in lines[1:] if header is first else lines:
        yield dict(zip(header, (cell.strip() for cell in line.split("|")), strict=False))


def _row(fields: Mapping[str, str]) -> _Row | str:
    """A job, or why it is left out."""
    if len(fields) < len(FIELDS) or _JOB.fullmatch(fields["JobID"]) is None:
        return BAD
    if "." in fields["JobID"]:
        return STEP
    try:
        submitted, started, ended = (_time(fields[name]) for name in ("Submit", "Start", "End"))
    except (ValueError, OverflowError, OSError):
        return BAD
    if started is None:
        return NEVER
    allocated = tres(fields["AllocTRES"])
    gpus, _ = gpus_of(allocated)
    if gpus == 0:
        return WITHOUT
    if not 0 < gpus <= _MOST_GPUS or (ended is None and is_over(fields["State"])) or (ended or started) < started:
        return BAD
    nodes = allocated.get("node", "")
    return _Row(submitted, started, ended, gpus, float(nodes) if nodes.isdecimal() and 0 < len(nodes) < 8 else None)


def _time(cell: str) -> float | None:
    if cell in _NO_TIME:
        return None
    if cell.isdecimal() and cell.isascii():
        if float(cell) > _LATEST:
            raise ValueError(cell)
        return site_clock(float(cell))
    found = float(calendar.timegm(datetime.fromisoformat(cell).timetuple()))
    if not 0 < found <= _LATEST:
        raise ValueError(cell)
    return found


def _history(rows: list[_Row], left_out: Counter[str]) -> History:
    newest = max(time for row in rows for time in (row.started, row.submitted, row.ended) if time is not None)
    running = sum(row.ended is None for row in rows)
    jobs = [
        Job(
            submitted=row.started if row.submitted is None else min(row.submitted, row.started),
            started=row.started,
            ended=newest if row.ended is None else row.ended,
            gpus=row.gpus,
        )
        for row in rows
    ]
    per_node = max((row.gpus / row.nodes for row in rows if row.nodes), default=None)
    notes = [f"left out: {told}"] if (told := _told(left_out)) else []
    if running:
        notes.append(f"{running:,} jobs still run: they are counted until the newest time in the file")
    return History(tuple(jobs), None if per_node is None else max(1, round(per_node)), tuple(notes))


def _told(left_out: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {'' if what == STEP else 'jobs '}{what}" for what, count in sorted(left_out.items()))
