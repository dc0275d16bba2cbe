"""Which checkpoints of one tier are complete: numbered records that only one writer can put.

Attempt K's record N is `commits/KKKK-NNNNNN.json`, and a store lets only one writer have a name. An attempt puts at its
own next number and nowhere else. To shut an older attempt out, a newer one takes the number that the older would take
next: whatever is still alive of it finds its name taken, and can neither commit nor prune any more. No clock, no lock
that a dead node could hold, and the same on a folder (`link`) and on S3 (`If-None-Match: *`).

    open    somebody begins to write
    commit  a checkpoint is complete from here on           the fields of `Commit`
    prune   checkpoints are gone from here on, put before   checkpoints
            the first byte is deleted
    damaged checkpoints whose bytes are not those that      checkpoints
            were saved: set aside, never restored again
    fence   the end of this attempt                         by

Each has `owner`, the one hand that put it, and `xxh3`, the checksum of all the rest.
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
"""No record is longer."""


class Fenced(CheckpointError):
    """A newer attempt has taken over: this one can neither commit nor prune."""


def checkpoint_name(step: int, unique: str) -> str:
    """The folder of one save."""
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
    """The ledger as it was read: what each attempt has put, by number."""

    by_attempt: dict[int, dict[int, dict[str, Any]]]

    @property
    def commits(self) -> list[Commit]:
        """The checkpoints that stand, newest first."""
        gone = self.pruned | self.damaged
        found = [commit for record in self._all() if (commit := _commit(record)) and commit.name not in gone]
        return sorted(found, key=_age, reverse=True)

    @property
    def pruned(self) -> set[str]:
        return _named(self._all(), "prune")

    @property
    def damaged(self) -> set[str]:
        """Set aside, and still there."""
        return _named(self._all(), "damaged") - self.pruned

    @property
    def unreadable(self) -> list[str]:
        """The keys of the records that are not what was put: nobody knows what they stood for."""
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
    """Every record. A damaged one (a full disk, a foreign hand) counts as taken, and says nothing."""
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
        # The same bytes, and not only the same values: several texts name one number.
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
    """Whatever a foreign hand wrote: no name of a checkpoint leads out of the tier."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def is_count(value: object) -> bool:
    """A number that every reader can count with: no bool, and none that has thousands of digits."""
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
    # What is no number is no reason to lose a checkpoint: users put it there.
    values["metrics"] = {str(name): value for name, value in metrics.items() if _measured(value)}
    commit = Commit(**values)  # type: ignore[arg-type]
    return commit if _NAME.fullmatch(commit.name) and commit.manifest == f"{commit.name}/manifest.json" else None


class Ledger:
    """One attempt's hand in the ledger of one tier. Nobody else puts a record that would not shut it out, so what it
    has read once, with what it put since, stays true."""

    def __init__(self, store: Store, attempt: int, owner: str) -> None:
        self._store, self._attempt, self._owner = store, attempt, owner
        self._next = 0
        self.records = Records({})
        self.fenced = False

    def open(self) -> None:
        """Shuts older attempts out and takes this attempt's turn. Fenced where a newer attempt is here already.

        It looks once more after its own record is there: of two attempts that open at the same time one sees the other.
        """
        here = False
        while True:
            self.records = read(self._store)
            newer = [attempt for attempt in self.records.by_attempt if attempt > self._attempt]
            if newer:
                raise self._fenced(f"attempt {max(newer)}")
            older = [attempt for attempt in self.records.by_attempt if attempt < self._attempt]
            if not all(self._shut_out(attempt) for attempt in older):
                continue
            if here:
                return
            self._next = self.records.next_number(self._attempt)
            here = self._put({"kind": "open"})

    def _shut_out(self, older: int) -> bool:
        """False where it has just put one more record: then it must be read."""
        numbers = self.records.by_attempt[older]
        if numbers[max(numbers)].get("kind") == "fence":
            return True
        record = {"kind": "fence", "by": self._attempt, "owner": self._owner}
        if not self._store.put_new(key(older, max(numbers) + 1), _encoded(record)):
            return False
        numbers[max(numbers) + 1] = record
        return True

    def commit(self, commit: Commit) -> None:
        """Makes the checkpoint count; everything it names must be durable by now."""
        self._put_mine({"kind": "commit", **asdict(commit)})

    def prune(self, names: Iterable[str], keys: Iterable[str]) -> None:
        """Takes checkpoints back and deletes `keys`, the files that no other checkpoint needs."""
        self._put_mine({"kind": "prune", "checkpoints": list(names)})
        self._store.delete(keys)
        self._forget()

    def set_aside(self, names: Iterable[str]) -> None:
        """Nobody restores or refers to these any more; their files stay, for whoever wants to look."""
        self._put_mine({"kind": "damaged", "checkpoints": list(names)})

    def _forget(self) -> None:
        """Deletes the records that say nothing any more, commits before the prunes that took them back. The last of
        each attempt stays: it is what shuts that attempt out."""
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

    def _delete(self, spent: list[tuple[int, int, dict[str, Any]]]) -> None:
        self._store.delete([key(attempt, number) for attempt, number, _ in spent])
        for attempt, number, _ in spent:
            del self.records.by_attempt[attempt][number]

    def _put_mine(self, record: dict[str, Any]) -> None:
        if self.fenced or not self._put(record):
            raise self._fenced("another attempt")

    def _put(self, record: dict[str, Any]) -> bool:
        """Whether it was put. A put that storage reported as failed may have landed: that number is passed over."""
        record = {**record, "owner": self._owner}
        mine = self.records.by_attempt.setdefault(self._attempt, {})
        while not self._store.put_new(key(self._attempt, self._next), _encoded(record)):
            there = _record(self._store, key(self._attempt, self._next))
            if there.get("owner") != self._owner:
                return False
            mine[self._next] = there
            self._next += 1
        mine[self._next] = record
        self._next += 1
        return True

    def _fenced(self, by: str) -> Fenced:
        self.fenced = True
        return Fenced(f"{self._store.place}: {by} has taken over; attempt {self._attempt} saves nothing more")
