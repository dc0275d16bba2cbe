"""Reads the archived records of points that their array task started itself.

tasks/S-T/
  points/00017/  config, journal, logs and heartbeats of point 17 while it runs; no other array task writes there
  points.jsonl   a line for each point that has ended: its config, its journal, and where in the other two the rest lies
  points.log     what the ranks of these points wrote, each below a line that says whose it is
  points.return  what these points of a Hydra application returned; for the user alone

When a point has ended for good its line is written, is on the disk, and then points/00017/ is deleted: a kill between
the two leaves both, which say the same. The sweep's own points/00017/ has only what the point itself writes. An array
task that goes on with a point of another begins with a copy of what that one has, so that the latest attempt's account
of a point is always whole.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from slurmopt.run_folder.access.files import NotRegular, make_folders, next_data, open_held, open_regular
from slurmopt.run_folder.layout import RunFolder

LINES, LOG, RETURN = "points.jsonl", "points.log", "points.return"
_LONGEST_LINE = 64 << 20
_BLOCK = 1 << 20
_NUMBER = re.compile(rb'\{"point": (\d{1,12}), ')


@dataclass(frozen=True)
class Archived:
    """A point in the files of its array task."""

    archive: TaskArchive
    number: int
    journal: list[dict[str, Any]]
    attempts: list[int]
    logs: list[tuple[int, int, int, int]]
    """Attempt, rank, offset and size in the log."""
    returned: tuple[int, int] | None
    """Offset and size in the file of returns."""

    @property
    def config(self) -> str:
        """The text of its config.yaml."""
        return self.archive.config(self.number)

    @property
    def log(self) -> Path:
        """The file with the logs of all points of the array task."""
        return self.archive.task.path / LOG

    @property
    def returns(self) -> Path:
        return self.archive.task.path / RETURN

    def fill_logs(self, run: RunFolder) -> None:
        """Writes the logs of all attempts into `run`. Raises OSError."""
        for attempt in self.attempts:
            make_folders(run.attempt_logs(attempt))
        for attempt, rank, place, size in self.logs:
            log = open_held(run.rank_log(attempt, rank), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o640)
            with os.fdopen(log, "wb") as file:
                _copy_piece(self.log, place, size, file)


def _piece(path: Path, place: int, size: int) -> bytes:
    """Part of a file; empty if the file does not have it: a log that somebody has deleted hides no verdict."""
    with _opened(path) as file:
        if file is None or not _has(file, place, size):
            return b""
        file.seek(place)
        return file.read(size)


def _copy_piece(path: Path, place: int, size: int, target: BinaryIO) -> None:
    """As `_piece`, into a file. Holes, which can be a terabyte, stay holes."""
    with _opened(path) as file:
        if file is None or not _has(file, place, size):
            return
        at, end = place, place + size
        while at < end:
            file.seek(at)
            block = file.read(min(_BLOCK, end - at))
            target.seek(at - place)
            target.write(block)
            at += len(block)
            if not block.strip(b"\0"):
                at = next_data(file.fileno(), at) if block else end
        target.truncate(size)


def _has(file: BinaryIO, place: int, size: int) -> bool:
    return place >= 0 and 0 <= size <= os.fstat(file.fileno()).st_size - place


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[BinaryIO | None]:
    """The file; None if there is none. Does not wait for a FIFO."""
    try:
        file = open_regular(path)
    except (FileNotFoundError, NotADirectoryError, NotRegular):
        yield None
        return
    with file:
        yield file


class TaskArchive:
    """The lines of one array task, by point. Keeps their offsets, and reads a line when it is asked for."""

    def __init__(self, task: RunFolder) -> None:
        self.task = task
        self._places: dict[int, tuple[int, int]] = {}
        """The offset of a point's last line, and its size."""
        self._firsts: dict[int, tuple[int, int]] = {}
        """The same for its first line, to which `like` in the lines of other points refers."""
        self._size = self._inode = 0

    def points(self) -> Iterable[int]:
        """The numbers of the points that it has."""
        self._look()
        return self._places

    def config(self, number: int) -> str:
        """The text of a point's config.yaml; empty if another program has removed the lines it is made from."""
        return self._config(self._told(number), len(self._places)) or ""

    def find(self, number: int) -> Archived | None:
        """The point from its latest line; None if it has none. OSError if the file cannot be read."""
        self._look()
        if not (record := self._told(number)):
            return None
        try:
            returned = record["return"]
            return Archived(
                self,
                number,
                [event for event in record["journal"] if isinstance(event, dict) and "event" in event],
                [int(attempt) for attempt in record["attempts"]],
                [(int(attempt), int(rank), int(place), int(size)) for attempt, rank, place, size in record["logs"]],
                None if returned is None else (int(returned[0]), int(returned[1])),
            )
        except (KeyError, TypeError, ValueError, IndexError, OverflowError):  # a foreign hand
            return None

    def _look(self) -> None:
        """Reads the lines that were added since the last call."""
        with _opened(self.task.path / LINES) as file:  # even for its size alone: NFS asks its server then
            if file is None:
                return
            facts = os.fstat(file.fileno())
            if facts.st_ino != self._inode or facts.st_size < self._size:  # another file by now
                self._places, self._firsts, self._size, self._inode = {}, {}, 0, facts.st_ino
            file.seek(self._size)
            while line := file.readline(_LONGEST_LINE):
                if not line.endswith(b"\n"):  # it is being written, or was cut, or is none that an array task writes
                    break
                if (match := _NUMBER.match(line)) is not None and line.endswith(b"}\n"):
                    self._places[int(match[1])] = (self._size, len(line))
                    self._firsts.setdefault(int(match[1]), (self._size, len(line)))
                self._size += len(line)

    def _config(self, record: dict[str, Any], most: int) -> str | None:
        """The config of a record. `most` limits the number of `like` references that are followed."""
        config, like = record.get("config"), record.get("like")
        if not isinstance(config, dict):
            return config if isinstance(config, str) else None
        place = self._firsts.get(like) if isinstance(like, int) and most else None
        other = None if place is None else self._config(self._line(place), most - 1)
        return None if other is None else _like(other, config)

    def _told(self, number: int) -> dict[str, Any]:
        return self._line(self._places[number]) if number in self._places else {}

    def _line(self, place: tuple[int, int]) -> dict[str, Any]:
        try:
            record = json.loads(_piece(self.task.path / LINES, *place))
        except (ValueError, RecursionError):
            return {}
        return record if isinstance(record, dict) else {}


def _like(other: str, lines: dict[str, str]) -> str:
    merged = other.split("\n")
    for at, line in lines.items():
        if at.isdecimal() and int(at) < len(merged):
            merged[int(at)] = str(line)
    return "\n".join(merged)
