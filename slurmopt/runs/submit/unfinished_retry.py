"""A retry that breaks off after it has changed the folder: what stood there is kept, and the next retry begins from it.

Otherwise one that is killed between config.yaml and sbatch, and repeated, would multiply the time limit twice.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from slurmopt.grid.point_ranges import Ranges
from slurmopt.run_folder import supervisor_file
from slurmopt.run_folder.access.files import read_script, read_whole, replace_json, replace_text
from slurmopt.run_folder.layout import RunFolder


@dataclass(frozen=True)
class Unfinished:
    """What a retry found."""

    token: str | None
    """Of the latest submission before it."""
    points: Ranges
    """Of a sweep: those that it was to bring back."""
    banned: Ranges
    """Of these the ones that had been cancelled."""
    files: dict[str, str | None]
    """A file's name → its text; None for one that was not there."""


def begin(
    run: RunFolder,
    token: str | None,
    files: Iterable[Path],
    points: Ranges | None = None,
    banned: Ranges | None = None,
    repeated: Unfinished | None = None,
) -> None:
    """Keeps what the retry is about to change. `repeated`: the same retry, which broke off after it had changed the
    files: what it found is kept. With the run's lock held."""
    texts = repeated.files if repeated is not None else {path.name: _text(run, path) for path in files}
    content = {"token": token, "points": str(points or Ranges()), "banned": str(banned or Ranges()), "files": texts}
    replace_json(run.unfinished, content)


def found(run: RunFolder) -> Unfinished | None:
    """The retry that broke off; None where none did, or where what it kept is not this user's own or is damaged."""
    try:
        value = json.loads(read_whole(run.unfinished, mine=True))
        files = {str(name): None if text is None else str(text) for name, text in value["files"].items()}
        token = None if value["token"] is None else str(value["token"])
        return Unfinished(token, Ranges.parse(str(value["points"])), Ranges.parse(str(value["banned"])), files)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def is_left(run: RunFolder) -> bool:
    """Whether a retry, or another submission, has left anything that only a killed one leaves, or is under way."""
    return os.path.lexists(run.unfinished) or os.path.lexists(run.submitter)


def end(run: RunFolder) -> None:
    """The retry is done. An error would be none of the retry's: the next one sees that Slurm had it."""
    with contextlib.suppress(OSError):
        run.unfinished.unlink(missing_ok=True)


def undo(run: RunFolder, broken_off: Unfinished) -> None:
    """Puts back what stood in the files. OSError; then it can be tried again."""
    for path in (run.config, run.supervisor, run.script):
        text = broken_off.files.get(path.name)
        if text is not None:
            replace_text(path, text)
        elif path == run.supervisor and path.name in broken_off.files:
            path.unlink(missing_ok=True)
    end(run)


def _text(run: RunFolder, path: Path) -> str | None:
    """The text of a file; None where a run of an earlier slurmopt has no supervisor.sh."""
    return supervisor_file.read(run) if path == run.supervisor else read_script(path)
