"""Moves the records of ended points into three files of their array task; `slurmopt.run_folder.archive` reads them."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slurmopt.errors import JobError
from slurmopt.restart import causes
from slurmopt.run_folder import events, private
from slurmopt.run_folder.access.files import open_append
from slurmopt.run_folder.access.open_folders import held
from slurmopt.run_folder.archive import LINES, LOG, RETURN
from slurmopt.run_folder.layout import RunFolder

_LARGEST = 16 << 20
"""Records above this size in bytes stay with the point, because they are held in memory while they are moved."""
_SLICE = 32 << 20
"""Bytes that are held in memory at a time."""
_RANK_LOG = re.compile(r"logs/attempt-(\d{1,9})/rank-(\d{1,9})\.log")
_FOLDER = re.compile(r"logs|heartbeat|(?:logs|heartbeat)/attempt-\d{1,9}")
_ATTEMPT = re.compile(r"logs/attempt-(\d{1,9})")
_FILE = r"(?:config\.yaml|events\.jsonl|return\.pickle)"
_FILES = re.compile(rf"{_FILE}|\.{_FILE}\.\d{{1,9}}|heartbeat/attempt-\d{{1,9}}/.+")
"""The files that are archived, and what a kill leaves of one that is being replaced."""
_OF_ITS_OWN = ("checkpoint", "restored")
"""Prefixes of events on files elsewhere, whose later events need the point's own journal."""

_MODES = {LOG: 0o640, RETURN: 0o600, LINES: 0o640}


@dataclass
class _Content:
    """A point's records."""

    run: RunFolder
    size: int
    attempts: list[int]
    config: str
    journal: list[dict[str, Any]]
    logs: list[tuple[int, int, bytes]]
    """Attempt, rank, text."""
    returned: bytes | None

    @property
    def number(self) -> int:
        return int(self.run.path.name)


def archive(task: RunFolder, runs: Iterable[RunFolder]) -> None:
    """Moves the records of those of `runs` that have ended into the files of `task`. Of records that stay it deletes
    the heartbeats, as the journal contains their information.

    Raises OSError and JobError if the files cannot be written. The records are then unchanged.
    """
    contents: list[_Content] = []
    for run in runs:
        if (content := _content(run)) is not None:
            contents.append(content)
        elif has_ended(run):
            shutil.rmtree(held(run.heartbeats), ignore_errors=True)
        if sum(one.size for one in contents) >= _SLICE:
            _move(task, contents)
            contents = []
    if contents:
        _move(task, contents)


def _move(task: RunFolder, found: list[_Content]) -> None:
    logs, returned, rest = (_Appended(task.path / name, mode) for name, mode in _MODES.items())
    lines = [_line(content, found[0], logs, returned) for content in found]
    logs.write()
    returned.write()
    for make in lines:
        rest.add(make().encode("utf-8") + b"\n")
    rest.write()
    for content in found:
        delete(content.run)


def delete(run: RunFolder) -> None:
    """Deletes records, the journal first: without it they do not count."""
    with contextlib.suppress(OSError):
        held(run.events).unlink(missing_ok=True)
        shutil.rmtree(held(run.kept))


def _content(run: RunFolder) -> _Content | None:
    """The records of a point; None if it must keep them, also because of a file that cannot be read or that others can
    write."""
    try:
        listing = _listing(held(run.kept))
        if listing is None or not {"config.yaml", "events.jsonl"} <= listing.keys() or sum(listing.values()) > _LARGEST:
            return None
        lines = list(events.lines(run.events))
        journal = list(events.parse(lines))
        attempts = sorted(int(match[1]) for name in listing if (match := _ATTEMPT.fullmatch(name)))
        if len(journal) < len(lines) or not _is_over(journal, attempts, run.kept.parents[1].name):
            return None
        logs = [(int(match[1]), int(match[2]), name) for name in listing if (match := _RANK_LOG.fullmatch(name))]
        return _Content(
            run,
            sum(listing.values()),
            attempts,
            held(run.config).read_text(encoding="utf-8", errors="surrogateescape"),
            journal,
            [(attempt, rank, held(run.kept / name).read_bytes()) for attempt, rank, name in sorted(logs)],
            private.read(run.returned) if run.returned.name in listing else None,
        )
    except (OSError, JobError):  # it is told where the records are looked at
        return None


def has_ended(run: RunFolder) -> bool:
    """Whether the point's journal says that it needs no further attempt; False if it cannot be read."""
    try:
        last = next(events.parse(reversed(list(events.lines(run.events)))), {})
    except OSError:
        return False
    return last.get("event") == "end" and "next" in last and last["next"] is None


def _listing(folder: Path, below: str = "") -> dict[str, int] | None:
    """The sizes of the files in the folder; None if it has files that slurmopt does not make."""
    sizes: dict[str, int] = {}
    with os.scandir(folder) as entries:
        for entry in entries:
            name = f"{below}{entry.name}"
            if entry.is_dir(follow_symlinks=False) and _FOLDER.fullmatch(name):
                inner = _listing(Path(entry.path), f"{name}/")
                if inner is None:
                    return None
                sizes |= {name: 0} | inner
            elif entry.is_file(follow_symlinks=False) and (_FILES.fullmatch(name) or _RANK_LOG.fullmatch(name)):
                sizes[name] = entry.stat(follow_symlinks=False).st_size
            else:
                return None
    return sizes


def _is_over(journal: list[dict[str, Any]], attempts: list[int], task: str) -> bool:
    """Whether the point's last attempt has ended for good (with one that is cancelled another may go on), and each that
    was in this array task has told its end itself: one that died without a word may be alive on a node that is cut off.
    """
    last = journal[-1] if journal else {}
    if last.get("event") != "end" or last.get("attempt") not in attempts[-1:] or last.get("cause") == causes.CANCELLED:
        return False
    plain = not any(str(event["event"]).startswith(_OF_ITS_OWN) for event in journal)
    ended = {event.get("attempt") for event in journal if event["event"] == "end" and "by" not in event}
    own = {event.get("attempt") for event in journal if event["event"] == "attempt" and event.get("task") == task}
    return plain and ended >= own and "next" in last and last["next"] is None


class _Appended:
    """Data that is appended to a file at once. Only a process on another node may append at the same time."""

    def __init__(self, path: Path, mode: int) -> None:
        self._path, self._mode = path, mode
        self._pieces: list[bytes] = []
        self._size = 0
        self._start: int | None = None

    def add(self, data: bytes) -> int:
        """Adds `data`, and returns its offset from `start`."""
        self._pieces.append(data)
        self._size += len(data)
        return self._size - len(data)

    @property
    def start(self) -> int:
        assert self._start is not None
        return self._start

    def write(self) -> None:
        """Appends the data and calls fsync. Raises OSError, and JobError if others can write the file."""
        if not self._pieces:
            return
        descriptor = open_append(self._path, self._mode)
        try:
            private.refuse_strangers(self._path, descriptor)
            if stat.S_IMODE(os.fstat(descriptor).st_mode) & ~self._mode:
                raise JobError(f"{self._path} can be read by more users than it should be; nothing is added to it")
            with events.locked(descriptor):
                start = b"\n" if self._path.name == LINES and events.torn(descriptor) else b""
                data = start + b"".join(self._pieces)
                if os.write(descriptor, data) < len(data):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path))
                self._start = os.lseek(descriptor, 0, os.SEEK_CUR) - self._size
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _line(content: _Content, first: _Content, logs: _Appended, returned: _Appended) -> Callable[[], str]:
    """Returns a function that makes the point's line once the offsets of the other data are known."""
    log_entries, value = [], content.returned
    for attempt, rank, text in content.logs:
        logs.add(f"==> point {content.number}, attempt {attempt}, rank {rank} <==\n".encode())
        log_entries.append((attempt, rank, logs.add(text), len(text)))
        logs.add(b"" if not text or text.endswith(b"\n") else b"\n")
    at = None if value is None else returned.add(value)

    def make() -> str:
        record = {
            "point": content.number,
            "like": first.number,
            "config": _difference(content.config, first.config) if content.number != first.number else content.config,
            "attempts": content.attempts,
            "logs": [[attempt, rank, logs.start + place, size] for attempt, rank, place, size in log_entries],
            "return": None if at is None or value is None else [returned.start + at, len(value)],
            "journal": content.journal,
        }
        return json.dumps(record, default=str)

    return make


def _difference(text: str, like: str) -> str | dict[str, str]:
    """The lines of `text` that differ from those of `like`; the whole text if the number of lines differs."""
    lines, others = text.split("\n"), like.split("\n")
    if len(lines) != len(others):
        return text
    return {str(at): line for at, (line, other) in enumerate(zip(lines, others, strict=True)) if line != other}
