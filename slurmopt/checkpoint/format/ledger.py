"""Ledger: records which checkpoints of one tier are complete, and fences older attempts.

Attempt K's record N is `commits/KKKK-NNNNNN.json`, and a store creates each name only once. An attempt only creates its
own next number. To fence an older attempt, a newer one creates the number that the older one would use next: whatever
is still alive of it finds its name taken, and can neither commit nor prune any more. There is no clock and no lock that
a dead node could hold, and it works alike on a folder (`link`) and on S3 (`If-None-Match: *`).

    open    a process begins to write
    commit  a checkpoint is complete from here on           the fields of `Commit`
    prune   checkpoints are gone from here on, put before   checkpoints
            the first byte is deleted
    damaged checkpoints whose bytes are not those that      checkpoints
            were saved: set aside, never restored again
    fence   the end of this attempt                         by

Each has `owner`, the process that created it, and `xxh3`, the checksum of the rest.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

import xxhash

from slurmopt.errors import CheckpointError
from slurmopt.storage.store import Store

FOLDER = "commits/"
_KEY = re.compile(r"commits/(\d{4,})-(\d{6,})\.json")
_UNREADABLE = "unreadable"
_NAME = re.compile(r"step-[0-9]{8,}/[A-Za-z0-9-]+")
_RECORD_BYTES = 16 << 20
"""The maximum size of a record."""


class Fenced(CheckpointError):
    """A newer attempt has taken over: this one can neither commit nor prune any more."""


def checkpoint_name(step: int, unique: str) -> str:
    """The name of a checkpoint, which is its folder."""
    return f"step-{step:08d}/{unique}"


@dataclass(frozen=True)
class Commit:
    """A complete checkpoint. Sizes are bytes: `bytes` were written for it, `total_bytes` is the state it holds."""

    step: int
    unique: str
    attempt: int
    time: float
    manifest: str
    manifest_xxh3: str
    bytes: int
    total_bytes: int
    world_size: int
    references: tuple[str, ...] = ()
    metrics: dict[str, float] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return checkpoint_name(self.step, self.unique)


def key(attempt: int, number: int) -> str:
    return f"{FOLDER}{attempt:04d}-{number:06d}.json"


@dataclass
class Records:
    """The records of the ledger, by attempt and number."""

    by_attempt: dict[int, dict[int, dict[str, Any]]]

    @property
    def commits(self) -> list[Commit]:
        """The complete checkpoints, newest first."""
        gone = self.pruned | self.damaged
        commits = [commit for record in self._all() if (commit := _commit(record)) and commit.name not in gone]
        return sorted(commits, key=_age, reverse=True)

    @property
    def pruned(self) -> set[str]:
        return _named(self._all(), "prune")

    @property
    def damaged(self) -> set[str]:
        """The damaged checkpoints that are not pruned."""
        return _named(self._all(), "damaged") - self.pruned

    @property
    def unreadable(self) -> list[str]:
        """The keys of corrupt records, whose content is unknown."""
        return [
            key(attempt, number)
            for attempt, numbers in self.by_attempt.items()
            for number, record in numbers.items()
            if record.get("kind") == _UNREADABLE
        ]

    def next_number(self, attempt: int) -> int:
        return max(self.by_attempt.get(attempt, {-1: {}})) + 1

    def _all(self) -> list[dict[str, Any]]:
        return [record for numbers in self.by_attempt.values() for record in numbers.values()]


def read(store: Store) -> Records:
    """Reads all records. A corrupt one occupies its number and has no content."""
    by_attempt: dict[int, dict[int, dict[str, Any]]] = {}
    for name in store.list(FOLDER):
        if match := _KEY.fullmatch(name):
            by_attempt.setdefault(int(match[1]), {})[int(match[2])] = _record(store, name)
    return Records(by_attempt)


def _age(commit: Commit) -> tuple[int, int, float]:
    return commit.step, commit.attempt, commit.time


def _record(store: Store, name: str) -> dict[str, Any]:
    try:
        data = store.get(name, _RECORD_BYTES)
        value = json.loads(data)
        # Compares bytes, not only values: several texts denote the same number.
        if isinstance(value, dict) and value.pop("xxh3", None) and _encoded(value) == data:
            return value
    except FileNotFoundError:  # deleted since the listing
        return {}
    except (ValueError, RecursionError):
        pass
    return {"kind": _UNREADABLE}


def _encoded(record: dict[str, Any]) -> bytes:
    return json.dumps({**record, "xxh3": _checksum(record)}).encode()


def _checksum(record: dict[str, Any]) -> str:
    return xxhash.xxh3_128_hexdigest(json.dumps(record, sort_keys=True).encode())


def _named(records: list[dict[str, Any]], kind: str) -> set[str]:
    lists = [record.get("checkpoints") for record in records if record.get("kind") == kind]
    return {name for names in lists if isinstance(names, list) for name in names if _is_name(name)}


def _is_name(name: object) -> bool:
    """Whether it is a valid name of a checkpoint, which cannot lead out of the tier."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def is_count(value: object) -> bool:
    """Whether it is a non-negative 64-bit integer, and not a bool."""
    return type(value) is int and 0 <= value < 1 << 63


def _measured(value: object) -> bool:
    return type(value) is float or (type(value) is int and abs(value) < 1 << 63)


def _commit(record: dict[str, Any]) -> Commit | None:
    if record.get("kind") != "commit":
        return None
    values = {name: record.get(name) for name in Commit.__dataclass_fields__}
    numbers = ("step", "attempt", "bytes", "total_bytes", "world_size")
    if not all(is_count(values[name]) for name in numbers):
        return None
    if not _measured(values["time"]) or not math.isfinite(record["time"]):
        return None
    if not all(isinstance(values[name], str) for name in ("unique", "manifest", "manifest_xxh3")):
        return None
    references, metrics = values["references"] or (), values["metrics"] or {}
    if not isinstance(references, (list, tuple)) or not isinstance(metrics, dict):
        return None
    if not all(map(_is_name, references)):
        return None
    values["references"] = tuple(references)
    # A metric that is not a number is ignored: it must not make the checkpoint invalid.
    values["metrics"] = {str(name): value for name, value in metrics.items() if _measured(value)}
    commit = Commit(**values)  # type: ignore[arg-type]
    return commit if _NAME.fullmatch(commit.name) and commit.manifest == f"{commit.name}/manifest.json" else None


class Ledger:
    """One attempt's access to the ledger of one tier. Any record of another attempt fences this one, so the records
    that it has read and created remain valid until then."""

    def __init__(self, store: Store, attempt: int, owner: str) -> None:
        self._store, self._attempt, self._owner = store, attempt, owner
        self._next = 0
        self.records = Records({})
        self.fenced = False

    def open(self) -> None:
        """Fences older attempts and opens this one. Raises Fenced where a newer attempt exists.

        It reads again after its own record exists: of two attempts that open at the same time one sees the other.
        """
        is_open = False
        while True:
            self.records = read(self._store)
            newer = [attempt for attempt in self.records.by_attempt if attempt > self._attempt]
            if newer:
                raise self._fenced(f"attempt {max(newer)}")
            older = [attempt for attempt in self.records.by_attempt if attempt < self._attempt]
            if not all(self._fence(attempt) for attempt in older):
                continue
            if is_open:
                return
            self._next = self.records.next_number(self._attempt)
            is_open = self._put({"kind": "open"})

    def _fence(self, older: int) -> bool:
        """Returns False where the older attempt has created another record meanwhile, which must be read."""
        numbers = self.records.by_attempt[older]
        if numbers[max(numbers)].get("kind") == "fence":
            return True
        record = {"kind": "fence", "by": self._attempt, "owner": self._owner}
        if not self._store.put_new(key(older, max(numbers) + 1), _encoded(record)):
            return False
        numbers[max(numbers) + 1] = record
        return True

    def commit(self, commit: Commit) -> None:
        """Records a checkpoint as complete; everything it names must be durable already."""
        self._put_or_raise({"kind": "commit", **asdict(commit)})

    def prune(self, names: Iterable[str], keys: Iterable[str]) -> None:
        """Removes checkpoints from the ledger, then deletes `keys`, the files that no other checkpoint needs."""
        self._put_or_raise({"kind": "prune", "checkpoints": list(names)})
        self._store.delete(keys)
        self._forget()

    def set_aside(self, names: Iterable[str]) -> None:
        """Marks checkpoints as damaged: they are not restored or referenced any more. Their files remain."""
        self._put_or_raise({"kind": "damaged", "checkpoints": list(names)})

    def _forget(self) -> None:
        """Deletes obsolete records, commits before the prunes that refer to them. The last record of each attempt
        remains, since it fences that attempt."""
        pruned = self.records.pruned
        earlier = [
            (attempt, number, record)
            for attempt, numbers in self.records.by_attempt.items()
            for number, record in numbers.items()
            if number != max(numbers)
        ]
        self._delete([each for each in earlier if (commit := _commit(each[2])) and commit.name in pruned])
        last_commits = {commit.name for record in self._last_records() if (commit := _commit(record))}
        if not last_commits & pruned:
            self._delete([each for each in earlier if each[2].get("kind") == "prune"])

    def _last_records(self) -> list[dict[str, Any]]:
        return [numbers[max(numbers)] for numbers in self.records.by_attempt.values()]

    def _delete(self, obsolete: list[tuple[int, int, dict[str, Any]]]) -> None:
        self._store.delete([key(attempt, number) for attempt, number, _ in obsolete])
        for attempt, number, _ in obsolete:
            del self.records.by_attempt[attempt][number]

    def _put_or_raise(self, record: dict[str, Any]) -> None:
        if self.fenced or not self._put(record):
            raise self._fenced("another attempt")

    def _put(self, record: dict[str, Any]) -> bool:
        """Returns whether the record was created. A put that failed may have succeeded: that number is skipped."""
        record = {**record, "owner": self._owner}
        own = self.records.by_attempt.setdefault(self._attempt, {})
        while not self._store.put_new(key(self._attempt, self._next), _encoded(record)):
            existing = _record(self._store, key(self._attempt, self._next))
            if existing.get("owner") != self._owner:
                return False
            own[self._next] = existing
            self._next += 1
        own[self._next] = record
        self._next += 1
        return True

    def _fenced(self, by: str) -> Fenced:
        self.fenced = True
        return Fenced(f"{self._store.place}: {by} has taken over; attempt {self._attempt} saves nothing more")
