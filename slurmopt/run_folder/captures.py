"""The captures of a run: traces of some of its ranks over the same span of time.

`RUN/traces/NAME/` has `capture.json`, one `rank-N.json.gz` for each traced rank (Kineto's Chrome trace), and
`rank-N.result`, by which a rank says how far it is. Whoever asks makes the folder and writes the request into the
heartbeats of the attempt, where the ranks look for it.
"""

from __future__ import annotations

import json
import os
import re
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from slurmopt.run_folder.access.files import make_folders, read_json, replace_bytes
from slurmopt.run_folder.access.open_folders import held
from slurmopt.run_folder.json_values import as_int, from_fields, number
from slurmopt.run_folder.layout import RunFolder

VERSION = 1
LONGEST = 600.0
"""Seconds of a trace. One of a busy rank has many megabytes a second."""
TRACE, MEMORY = "trace", "memory"
"""What is captured: the time of the ranks, or their memory."""
ASKED = "asked"
"""The reason of a capture that somebody asked for; those of `slurmopt.job.profiling.triggers` are the others."""
OUT_OF_MEMORY = "out-of-memory"
"""The reason of records that ranks make when they have no GPU memory left."""
NOTICE = 12.0
"""Seconds from the request to the start of the traces: all processes ask within five seconds, the profiler warms up for
three, and a shared file system may show a new file late."""
_EXPORT_SECONDS = 900.0
"""Seconds after its recording within which a trace is stored, or given up."""
NOT_ANSWERED, NOT_COMPLETE = "has not answered", "its trace is not complete"
_PRIVATE = 0o600
_RESULT = re.compile(r"rank-(\d{1,9})\.result")
_NAME = re.compile(r"a\d+-[A-Za-z0-9_-]{1,100}")


@dataclass(frozen=True, kw_only=True)
class Capture:
    """What is asked for. Times are seconds; `start` is by the clocks of the nodes, `requested_at` by the clock of who
    asks, both since the epoch."""

    name: str
    attempt: int
    reason: str
    requested_at: float
    start: float
    seconds: float
    ranks: list[int]
    world_size: int | None = None
    """None if the launcher of a command's own decides it."""
    steps: int | None = None
    """How many steps the seconds were computed for; None if they were asked for."""
    step_times: dict[str, float] = field(default_factory=dict)
    """Rank → the mean time of a step in this attempt, where that is known."""
    kind: str = TRACE
    """TRACE or MEMORY."""
    shapes: bool = False
    """Whether a trace has the shapes of the inputs of operators."""


def memory_file(rank: int) -> str:
    """The name of a rank's record of its memory."""
    return f"rank-{rank}.memory.json"


def open_capture(run: RunFolder, capture: Capture) -> None:
    """Makes the folder of a capture and asks the ranks for their traces. FileExistsError if there is one of that
    name."""
    folder = run.capture(capture.name)
    make_folders(folder.parent)
    held(folder).mkdir(mode=0o700)
    _write(folder / "capture.json", _as_json(capture, {}))
    _write(run.trace_request(capture.attempt), asdict(capture))


def requested(run: RunFolder, attempt: int) -> Capture | None:
    """The latest request of an attempt; None if there is none, or if it is not valid."""
    value = read_json(run.trace_request(attempt))
    if value is None:
        return None
    try:
        capture = from_fields(Capture, value)
    except TypeError:
        return None
    return capture if _is_valid(capture) else None


def _is_valid(capture: Capture) -> bool:
    """Anybody may have edited the file."""
    seconds = number(capture.seconds)
    if number(capture.start) is None or number(capture.requested_at) is None:
        return False
    if seconds is None or not 0 < seconds <= LONGEST or not isinstance(capture.name, str):
        return False
    if not isinstance(capture.ranks, list) or any(as_int(rank) is None for rank in capture.ranks):
        return False
    steps_are_valid = capture.steps is None or as_int(capture.steps) is not None
    return steps_are_valid and _NAME.fullmatch(capture.name) is not None


def note(run: RunFolder, capture: Capture, rank: int, result: dict[str, Any]) -> None:
    """Writes how far a rank is: `state` (`recording`, `writing`), or in the end `file` and `bytes`, or `error`. Raises
    OSError."""
    folder = run.capture(capture.name)
    _write(folder / f"rank-{rank}.result", result)
    merge(folder, capture)


def merge(folder: Path, capture: Capture) -> None:
    """Writes what the ranks have said into `capture.json`. Several ranks may do that at the same time: each looks again
    after it has written, so that the last of them has written everything."""
    told: dict[int, dict[str, Any]] | None = None
    while (now := results(folder)) != told:
        _write(folder / "capture.json", _as_json(capture, now))
        told = now


def results(folder: Path) -> dict[int, dict[str, Any]]:
    """What the ranks have said. Raises OSError."""
    names = [match for name in os.listdir(held(folder)) if (match := _RESULT.fullmatch(name))]
    found = {int(match[1]): read_json(folder / match[0]) for match in names}
    return {rank: result for rank, result in sorted(found.items()) if result is not None}


def is_final(result: dict[str, Any] | None) -> bool:
    """Whether a rank has said its last word."""
    return result is not None and ("file" in result or "error" in result)


def goes_on(run: RunFolder, capture: Capture, now: float) -> bool:
    """Whether traces of a request are still being made. `now`: by the clock of who has asked."""
    late = now - capture.requested_at - NOTICE - capture.seconds
    if late > _EXPORT_SECONDS:
        return False
    try:
        told = results(run.capture(capture.name))
    except OSError:  # somebody has removed it, or the file system is away
        return False
    waits_for = [rank for rank in capture.ranks if not is_final(told.get(rank))]
    return any(late < (_EXPORT_SECONDS if rank in told else 0.0) for rank in waits_for)


def new_name(run: RunFolder, attempt: int, reason: str) -> str:
    """A name that sorts by attempt and time, and says the reason if nobody has asked."""
    name = f"a{attempt}-{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}" + ("" if reason == ASKED else f"-{reason}")
    return name if not held(run.capture(name)).exists() else f"{name}-{time.time_ns() % 1000:03d}"


def used(run: RunFolder) -> tuple[int, int]:
    """The captures of the run, and the bytes of their files."""
    try:
        folders = [entry for entry in os.scandir(held(run.traces)) if entry.is_dir(follow_symlinks=False)]
        sizes = [file.stat(follow_symlinks=False).st_size for folder in folders for file in os.scandir(folder.path)]
    except FileNotFoundError:
        return 0, 0
    return len(folders), sum(sizes)


def _as_json(capture: Capture, told: dict[int, dict[str, Any]]) -> dict[str, Any]:
    ranks = {str(rank): _outcome(told.get(rank)) for rank in capture.ranks}
    return {"version": VERSION, **asdict(capture), "ranks": ranks}


def _outcome(result: dict[str, Any] | None) -> dict[str, Any]:
    if result is None:
        return {"error": NOT_ANSWERED}
    if not is_final(result):
        return {"error": NOT_COMPLETE}
    return result


def _write(path: Path, value: dict[str, Any]) -> None:
    replace_bytes(path, f"{json.dumps(value)}\n".encode(), _PRIVATE)
