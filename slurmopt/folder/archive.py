"""Points that ended and left nothing of their own, in three files of their array task instead of a folder each.

tasks/S-T/
  points.jsonl   a line a point: its config, its journal, and where in the other two the rest of it lies
  points.log     what the points' ranks wrote, each below a line that says whose it is
  points.return  what the points of a Hydra application returned; for the user alone

The line is on the disk before the folder goes. A folder that is there counts, whatever a line says of its point: a kill
between the two leaves both, and `slurmopt retry` puts a folder back.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shutil
import stat
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slurmopt.folder import events
from slurmopt.folder.layout import RunFolder

LINES, LOG, RETURN = "points.jsonl", "points.log", "points.return"
LARGEST_LOG = 1 << 20
"""Bytes of logs with which a point keeps its folder."""
_RETURNED = "return.pickle"
_RANK_LOG = re.compile(r"logs/attempt-(\d{1,9})/rank-(\d{1,9})\.log")
_FOLDER = re.compile(r"logs|heartbeat|(?:logs|heartbeat)/attempt-\d{1,9}")
_ATTEMPT = re.compile(r"logs/attempt-(\d{1,9})")
_FILES = ("config.yaml", "events.jsonl", _RETURNED)
_OF_ITS_OWN = ("checkpoint", "restored")
"""What events begin with that tell of files elsewhere."""
_NUMBER = re.compile(rb'"point": (\d+), "like": (\d+)')


@dataclass
class _Content:
    """What lies in a point's folder."""

    run: RunFolder
    listing: dict[str, tuple[int, int] | None]
    """Path in the folder → size and time of change; None for a folder."""
    config: str
    journal: list[dict[str, Any]]

    @property
    def number(self) -> int:
        return int(self.run.path.name)

    @property
    def values(self) -> dict[str, Any] | None:
        """What a search chose for the point."""
        return self.journal[0].get("values")


def archive(task: RunFolder, runs: Iterable[RunFolder], gone: Callable[[int, dict[str, Any] | None], None]) -> None:
    """Moves those of the ended points `runs` that left nothing of their own into the files of `task`.

    `gone` is called with a point's number, and the values that a search chose, before its folder goes. Raises OSError
    where the files cannot be written: the folders are then as they were.
    """
    found = [content for run in runs if (content := _content(run)) is not None]
    if not found:
        return
    logs, returned = _Appended(task.path / LOG, 0o640), _Appended(task.path / RETURN, 0o600)
    lines = [_line(content, found[0], logs, returned) for content in found]
    logs.write()
    returned.write()
    rest = _Appended(task.path / LINES, 0o640)
    for make in lines:
        rest.add(make().encode("utf-8") + b"\n")
    rest.write()
    for content in found:
        gone(content.number, content.values)
        _remove(task, content)


def _content(run: RunFolder) -> _Content | None:
    """None where the point must keep its folder."""
    try:
        listing = _listing(run.path)
        if listing is None or not {"config.yaml", "events.jsonl"} <= listing.keys():
            return None
        if sum(known[0] for name, known in listing.items() if known and name.endswith(".log")) > LARGEST_LOG:
            return None
        lines = events.lines(run.events)
        journal = list(events.parse(lines))
        if len(journal) < len(lines) or not _is_over(journal):
            return None
        return _Content(run, listing, run.config.read_text(encoding="utf-8", errors="surrogateescape"), journal)
    except OSError:  # it is told where the folder is looked at
        return None


def _listing(folder: Path, below: str = "") -> dict[str, tuple[int, int] | None] | None:
    """What is in the folder; None where that is more than slurmopt itself puts there."""
    found: dict[str, tuple[int, int] | None] = {}
    with os.scandir(folder) as entries:
        for entry in entries:
            name = f"{below}{entry.name}"
            if entry.is_dir(follow_symlinks=False) and _FOLDER.fullmatch(name):
                inner = _listing(Path(entry.path), f"{name}/")
                if inner is None:
                    return None
                found |= {name: None} | inner
            elif entry.is_file(follow_symlinks=False) and (name in _FILES or _RANK_LOG.fullmatch(name)):
                facts = entry.stat(follow_symlinks=False)
                found[name] = (facts.st_size, facts.st_mtime_ns)
            else:
                return None
    return found


def _is_over(journal: list[dict[str, Any]]) -> bool:
    last = journal[-1] if journal else {}
    plain = not any(str(event["event"]).startswith(_OF_ITS_OWN) for event in journal)
    return plain and last.get("event") == "end" and "next" in last and last["next"] is None


class _Appended:
    """What is added to a file, all at once, where no other process may add at the same time but on another node."""

    def __init__(self, path: Path, mode: int) -> None:
        self._path, self._mode = path, mode
        self._pieces: list[bytes] = []
        self._size = 0
        self._start: int | None = None

    def add(self, data: bytes) -> int:
        """Where `data` will stand, counted from `start`."""
        self._pieces.append(data)
        self._size += len(data)
        return self._size - len(data)

    @property
    def start(self) -> int:
        assert self._start is not None
        return self._start

    def write(self) -> None:
        """Adds it, and waits until the disk has it. Raises OSError."""
        if not self._pieces:
            return
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, self._mode)
        try:
            with events.locked(descriptor):
                data = b"".join(self._pieces)
                if self._path.name == LINES and events.torn(descriptor):
                    data = b"\n" + data
                if os.write(descriptor, data) < len(data):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path))
                self._start = os.lseek(descriptor, 0, os.SEEK_CUR) - len(data)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _line(content: _Content, first: _Content, logs: _Appended, returned: _Appended) -> Callable[[], str]:
    """What makes the point's line, once the rest has been written and it is known where it stands."""
    path, said = content.run.path, []
    for name, known in sorted(content.listing.items()):
        if known and (match := _RANK_LOG.fullmatch(name)):
            attempt, rank, text = int(match[1]), int(match[2]), (path / name).read_bytes()
            logs.add(f"==> point {content.number}, attempt {attempt}, rank {rank} <==\n".encode())
            said.append((attempt, rank, logs.add(text), len(text)))
            logs.add(b"" if not text or text.endswith(b"\n") else b"\n")
    value = (path / _RETURNED).read_bytes() if _RETURNED in content.listing else None
    at = None if value is None else returned.add(value)
    tried = sorted(int(match[1]) for name in content.listing if (match := _ATTEMPT.fullmatch(name)))

    def make() -> str:
        told = {
            "point": content.number,
            "like": first.number,
            "time": round(time.time(), 3),
            "config": _difference(content.config, first.config) if content is not first else content.config,
            "attempts": tried,
            "logs": [[attempt, rank, logs.start + place, size] for attempt, rank, place, size in said],
            "return": None if at is None or value is None else [returned.start + at, len(value)],
            "journal": content.journal,
        }
        return json.dumps(told, default=str)

    return make


def _difference(text: str, like: str) -> str | dict[str, str]:
    """The lines of `text` that `like` has otherwise; all of it, where they have not as many."""
    lines, others = text.split("\n"), like.split("\n")
    if len(lines) != len(others):
        return text
    return {str(at): line for at, (line, other) in enumerate(zip(lines, others, strict=True)) if line != other}


def _remove(task: RunFolder, content: _Content) -> None:
    """Takes the folder away, unless somebody has gone on with the point meanwhile."""
    run = content.run.path
    aside = task.path / f".archived-{run.name}"
    try:
        os.rename(run, aside)
    except OSError:  # another array task was quicker
        return
    if _listing(aside) == content.listing:
        shutil.rmtree(aside, ignore_errors=True)
        return
    with contextlib.suppress(OSError):
        os.rename(aside, run)


def clear_up(task: RunFolder, points: Path) -> None:
    """Brings to an end what a kill has left between the two steps of `_remove`: `points` has the points' folders."""
    for aside in task.path.glob(".archived-*"):
        with contextlib.suppress(OSError):
            os.rename(aside, points / aside.name.removeprefix(".archived-"))


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

    @property
    def log(self) -> Path:
        """Where the logs of all points of the array task stand."""
        return self.task.path / LOG

    @property
    def returns(self) -> Path:
        return self.task.path / RETURN

    def restore(self, run: RunFolder) -> None:
        """Makes the point's folder again; nothing where it is there. Raises OSError."""
        mode = stat.S_IMODE(os.stat(run.path.parent.parent).st_mode) & 0o750
        draft = RunFolder(run.path.with_name(f".{run.path.name}.{os.getpid()}"))
        try:
            for folder in (draft.path, draft.logs, draft.heartbeats, *map(draft.attempt_logs, self.attempts)):
                folder.mkdir(mode=mode, exist_ok=True)
            self._fill(draft)
            os.rename(draft.path, run.path)
        except FileExistsError:
            return
        except OSError as error:
            if error.errno != errno.ENOTEMPTY:
                raise
        finally:
            shutil.rmtree(draft.path, ignore_errors=True)

    def _fill(self, draft: RunFolder) -> None:
        _write(draft.config, self.config.encode("utf-8", errors="surrogateescape"))
        _write(draft.events, b"".join(json.dumps(event).encode() + b"\n" for event in self.journal))
        for attempt, rank, place, size in self.logs:
            _write(draft.rank_log(attempt, rank), _piece(self.log, place, size))
        if self.returned is not None:
            _write(draft.path / _RETURNED, _piece(self.returns, *self.returned), 0o600)


def _write(path: Path, data: bytes, mode: int = 0o640) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)


def _piece(path: Path, place: int, size: int) -> bytes:
    with open(path, "rb") as file:
        file.seek(place)
        return file.read(size)


class TaskArchive:
    """The lines of one array task, by point; each is read when it is asked for."""

    def __init__(self, task: RunFolder) -> None:
        """Raises OSError where the file is there and cannot be read."""
        self._task = task
        self._lines: dict[int, bytes] = {}
        self._size = _size(task.path / LINES)
        for line in events.lines(task.path / LINES):
            if (match := _NUMBER.match(line, 1)) is not None and line.endswith(b"}"):
                self._lines[int(match[1])] = line

    def __contains__(self, number: int) -> bool:
        return number in self._lines

    def has_grown(self) -> bool:
        """Whether there is more by now."""
        return _size(self._task.path / LINES) != self._size

    def find(self, number: int) -> Archived | None:
        """The point; None where the files do not have it, or not whole."""
        told, config = self._told(number), self._config(number, len(self._lines))
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
            )
        except (KeyError, TypeError, ValueError, IndexError):  # a foreign hand
            return None

    def _config(self, number: int, most: int) -> str | None:
        """`most`: how many lines it may lead over."""
        told = self._told(number)
        config, like = told.get("config"), told.get("like")
        if not isinstance(config, dict):
            return config if isinstance(config, str) else None
        other = self._config(like, most - 1) if isinstance(like, int) and most else None
        return None if other is None else _like(other, config)

    def _told(self, number: int) -> dict[str, Any]:
        try:
            told = json.loads(self._lines.get(number, b""))
        except (ValueError, RecursionError):
            return {}
        return told if isinstance(told, dict) else {}


def _size(path: Path) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0


def _like(other: str, lines: dict[str, str]) -> str:
    found = other.split("\n")
    for at, line in lines.items():
        if at.isdecimal() and int(at) < len(found):
            found[int(at)] = str(line)
    return "\n".join(found)
