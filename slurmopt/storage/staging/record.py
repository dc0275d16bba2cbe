"""The record of a staged copy: which chunks are complete, with the checksum of each.

A line of JSON for each chunk; the first line says of what the copy is. It is appended while the copy is made, so an
interrupted copy goes on from there.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from slurmopt.storage.staging.hashing import ALGORITHM
from slurmopt.storage.staging.listing import File

NAME = "record.jsonl"
_FORMAT = 1
_FLUSH_BYTES, _FLUSH_SECONDS = 64 << 10, 1.0
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class Head:
    """The first line of a record."""

    source: str
    fingerprint: str
    keep: bool = False
    """Whether the copy stays after the jobs that use it."""
    boot: str = ""
    """The start of the machine. A copy of an earlier one may lack data that had not reached the disk."""
    cleared: bool = False
    """Whether what only an earlier version had is removed."""
    hash: str = ALGORITHM
    slurmopt: int = _FORMAT


@dataclass(frozen=True, slots=True)
class Entry:
    """A complete chunk of a file with this size and stamp."""

    size: int
    stamp: str
    digest: str


Entries = Mapping[tuple[str, int], Entry]
"""(path, chunk) → its entry."""


def this_boot() -> str:
    """Identifies the present start of the machine; "" if the kernel does not tell."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""


def read_head(folder: str) -> Head | None:
    """The first line of a copy's record; None if there is none that this version reads."""
    try:
        with open(os.path.join(folder, NAME), "rb") as file:
            return _head(file.readline())
    except OSError:
        return None


def _head(line: bytes) -> Head | None:
    value = _parsed(line)
    if not isinstance(value, dict) or value.get("slurmopt") != _FORMAT:
        return None
    try:
        head = Head(**value)
    except TypeError:
        return None
    return (
        head if all(isinstance(text, str) for text in (head.source, head.fingerprint, head.boot, head.hash)) else None
    )


def read(folder: str) -> tuple[Head | None, dict[tuple[str, int], Entry]]:
    """The whole record. Lines that were cut off are ignored, and so is a record with another checksum."""
    entries: dict[tuple[str, int], Entry] = {}
    try:
        with open(os.path.join(folder, NAME), "rb") as file:
            head = _head(file.readline())
            if head is None or head.hash != ALGORITHM:
                return head, {}
            for line in file:
                value = _parsed(line)
                if isinstance(value, list) and len(value) == 5 and isinstance(value[0], str):
                    path, chunk, size, stamp, digest = value
                    entries[path, chunk] = Entry(size, stamp, digest)
    except OSError:
        return None, {}
    return head, entries


def _parsed(line: bytes) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return None


class Record:
    """A record that is being written. `add` may be called by several threads."""

    def __init__(self, folder: str, head: Head, entries: Entries) -> None:
        """Replaces the record of the copy in `folder`. Raises OSError."""
        target = os.path.join(folder, NAME)
        with open(f"{target}.new", "w", encoding="utf-8", opener=_private) as file:
            file.write(json.dumps(asdict(head)) + "\n")
            file.writelines(_line(path, chunk, entry) for (path, chunk), entry in entries.items())
        os.replace(f"{target}.new", target)
        self._file = open(target, "ab", opener=_private)  # noqa: SIM115 - closed by `close`
        self._pending: list[str] = []
        self._bytes, self._flushed = 0, time.monotonic()
        self._lock = threading.Lock()

    def add(self, file: File, chunk: int, digest: str) -> None:
        """Notes that a chunk is complete. Raises OSError."""
        line = _line(file.path, chunk, Entry(file.size, file.stamp, digest))
        with self._lock:
            self._pending.append(line)
            self._bytes += len(line)
            if self._bytes > _FLUSH_BYTES or time.monotonic() - self._flushed > _FLUSH_SECONDS:
                self._flush()

    def _flush(self) -> None:
        self._file.write("".join(self._pending).encode())
        self._file.flush()
        self._pending.clear()
        self._bytes, self._flushed = 0, time.monotonic()

    def close(self) -> None:
        """Writes what is left. Raises OSError."""
        with self._lock:
            try:
                self._flush()
            finally:
                self._file.close()


def _line(path: str, chunk: int, entry: Entry) -> str:
    return json.dumps([path, chunk, entry.size, entry.stamp, entry.digest]) + "\n"


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
