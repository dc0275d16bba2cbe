"""Points that ended and left nothing of their own, in three files of their array task instead of a folder each.

tasks/S-T/
  points.jsonl   a line a point: its config, its journal, and where in the other two the rest of it lies
  points.log     what the points' ranks wrote, each below a line that says whose it is
  points.return  what the points of a Hydra application returned; for the user alone

The line is on the disk before the folder goes, and a folder that is there counts, whatever a line says of its point.
A folder goes in three steps, so that a kill between any two loses nothing:

  points/N → tasks/S-T/.archived-N   nobody finds it by its path any more; what was written until then is still in it
  .archived-N → .removed-N           only where it holds what the line tells; else it goes back to points/N
  .removed-N is deleted
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slurmopt.folder import private
from slurmopt.folder.layout import RunFolder

LINES, LOG, RETURN = "points.jsonl", "points.log", "points.return"
ASIDE, REMOVED, RESTORED = ".archived-", ".removed-", ".restored-"
"""What a folder on its way out is called, and one on its way back."""
RETURNED = "return.pickle"
"""What a point of a Hydra application returned, in its folder."""
_NUMBER = re.compile(rb'\{"point": (\d+), ')


@dataclass(frozen=True)
class Archived:
    """A point as the files of its array task hold it."""

    task: RunFolder
    number: int
    config: str
    journal: list[dict[str, Any]]
    attempts: list[int]
    logs: list[tuple[int, int, int, int]]
    """Attempt, rank, place and size in the log."""
    returned: tuple[int, int] | None
    """Place and size in the file of returns."""
    time: float
    """When the line was written: seconds since the epoch."""

    @property
    def log(self) -> Path:
        """Where the logs of all points of the array task stand."""
        return self.task.path / LOG

    @property
    def returns(self) -> Path:
        return self.task.path / RETURN

    @property
    def age(self) -> tuple[int, float]:
        """Of several lines of one point the one with the greatest counts."""
        return (max(self.attempts, default=-1), self.time)

    def restore(self, run: RunFolder) -> None:
        """Makes the point's folder again; nothing where it is there. Raises OSError, JobError."""
        draft = RunFolder(self.task.path / f"{RESTORED}{run.path.name}.{os.getpid()}")
        try:
            self.fill(draft, stat.S_IMODE(os.stat(run.path.parent.parent).st_mode) & 0o750)
            if self.returned is not None:
                _write(draft.path / RETURNED, private.read(self.returns, *self.returned), 0o600)
            os.rename(draft.path, run.path)
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                raise
        finally:
            shutil.rmtree(draft.path, ignore_errors=True)
        if not os.path.lexists(run.events):
            raise FileNotFoundError(errno.ENOENT, "the point's folder is there without its journal", str(run.events))

    def fill(self, run: RunFolder, mode: int = 0o700) -> None:
        """Makes `run` as the point's folder was, but for what it returned. Raises OSError."""
        for folder in (run.path, run.logs, run.heartbeats, *map(run.attempt_logs, self.attempts)):
            folder.mkdir(mode=mode, exist_ok=True)
        _write(run.config, self.config.encode("utf-8", errors="surrogateescape"))
        _write(run.events, b"".join(json.dumps(event).encode() + b"\n" for event in self.journal))
        for attempt, rank, place, size in self.logs:
            _write(run.rank_log(attempt, rank), _piece(self.log, place, size))


def _write(path: Path, data: bytes, mode: int = 0o640) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _piece(path: Path, place: int, size: int) -> bytes:
    with open(path, "rb") as file:
        file.seek(place)
        return file.read(size)


class TaskArchive:
    """The lines of one array task, by point. It remembers where they stand, and reads each when it is asked for."""

    def __init__(self, task: RunFolder) -> None:
        self._task = task
        self._places: dict[int, tuple[int, int]] = {}
        self._size = 0

    def find(self, number: int) -> Archived | None:
        """The point as its latest line tells; None where there is none. OSError where the file cannot be read."""
        self._look()
        told, config = self._told(number), self._config(number, len(self._places))
        if config is None:
            return None
        try:
            returned = told["return"]
            return Archived(
                self._task,
                number,
                config,
                [event for event in told["journal"] if isinstance(event, dict) and "event" in event],
                [int(attempt) for attempt in told["attempts"]],
                [(int(attempt), int(rank), int(place), int(size)) for attempt, rank, place, size in told["logs"]],
                None if returned is None else (int(returned[0]), int(returned[1])),
                float(told["time"]),
            )
        except (KeyError, TypeError, ValueError, IndexError):  # a foreign hand
            return None

    def _look(self) -> None:
        """Takes in the lines that have come since the last look."""
        path = self._task.path / LINES
        try:
            if os.stat(path).st_size == self._size:
                return
        except (FileNotFoundError, NotADirectoryError):
            return
        with open(path, "rb") as file:
            file.seek(self._size)
            for line in file:
                if not line.endswith(b"\n"):  # it is being written, or was cut
                    break
                if (match := _NUMBER.match(line)) is not None and line.endswith(b"}\n"):
                    self._places[int(match[1])] = (self._size, len(line))
                self._size += len(line)

    def _config(self, number: int, most: int) -> str | None:
        """`most`: how many lines it may lead over."""
        told = self._told(number)
        config, like = told.get("config"), told.get("like")
        if not isinstance(config, dict):
            return config if isinstance(config, str) else None
        other = self._config(like, most - 1) if isinstance(like, int) and most else None
        return None if other is None else _like(other, config)

    def _told(self, number: int) -> dict[str, Any]:
        if number not in self._places:
            return {}
        try:
            told = json.loads(_piece(self._task.path / LINES, *self._places[number]))
        except (ValueError, RecursionError):
            return {}
        return told if isinstance(told, dict) else {}


def _like(other: str, lines: dict[str, str]) -> str:
    found = other.split("\n")
    for at, line in lines.items():
        if at.isdecimal() and int(at) < len(found):
            found[int(at)] = str(line)
    return "\n".join(found)
