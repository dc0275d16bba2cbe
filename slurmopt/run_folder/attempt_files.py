"""Files that an attempt leaves besides the journal: logs, the watchdog's finding, files that the training wrote."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from slurmopt.run_folder.access.files import open_regular, read_json
from slurmopt.run_folder.attempts import Attempt
from slurmopt.run_folder.layout import RunFolder

_TAIL = 65536


def hang_of(folder: RunFolder, attempt: Attempt) -> Mapping[str, Any] | None:
    """The hang that the watchdog found, from its file or its event."""
    try:
        return read_json(folder.hang(attempt.number)) or attempt.hang
    except OSError:
        return attempt.hang


def job_log(folder: RunFolder, attempt: Attempt, until: int | None = None) -> str:
    """The end of the lines of the batch shell and slurmstepd during this attempt. `until` is the offset at which the
    next attempt begins."""
    if attempt.job is None:
        return ""
    return tail(folder.job_log(attempt.job), attempt.log_from or 0, until)


def tail(path: Path, start: int = 0, end: int | None = None) -> str:
    """The end of a log between the offsets `start` and `end`; "" if it cannot be read."""
    try:
        with open_regular(path) as file:
            size = file.seek(0, 2)
            last = size if end is None or not start < end <= size else end
            file.seek(max(start if start <= size else 0, last - _TAIL))
            return file.read(last - file.tell()).decode(errors="replace")
    except OSError:
        return ""


def newest_mark(pattern: str | None, root: Path) -> float | None:
    """When the newest file that matches `pattern`, relative to `root`, was written: seconds since the epoch."""
    if pattern is None:
        return None
    import glob

    times = []
    for name in glob.iglob(pattern, root_dir=root, recursive=True):
        try:
            times.append((root / name).stat().st_mtime)
        except OSError:  # it was pruned just now
            continue
    return max(times, default=None)
