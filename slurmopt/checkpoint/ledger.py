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

Each has `owner`, the one hand that put it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from slurmopt.errors import CheckpointError
from slurmopt.storage.store import Store

FOLDER = "commits/"
_KEY = re.compile(r"commits/(\d{4,})-(\d{6,})\.json")
_NAME = re.compile(r"step-\d{8,}/[A-Za-z0-9-]+")


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
    """The ledger as it was read: its commits that stand, newest first, and what each attempt has put."""

    commits: list[Commit]
    pruned: set[str]
    damaged: set[str]
    by_attempt: dict[int, dict[int, dict[str, Any]]]

    def next_number(self, attempt: int) -> int:
        return max(self.by_attempt.get(attempt, {-1: {}})) + 1


def read(store: Store) -> Records:
    """Every record. A damaged one (a full disk, a foreign hand) counts as taken, and says nothing."""
    by_attempt: dict[int, dict[int, dict[str, Any]]] = {}
    for name in store.list(FOLDER):
        if match := _KEY.fullmatch(name):
            by_attempt.setdefault(int(match[1]), {})[int(match[2])] = _record(store, name)
    records = [record for numbers in by_attempt.values() for record in numbers.values()]
    pruned, damaged = _named(records, "prune"), _named(records, "damaged")
    found = [commit for record in records if (commit := _commit(record))]
    standing = [commit for commit in found if commit.name not in pruned | damaged]
    return Records(sorted(standing, key=_age, reverse=True), pruned, damaged - pruned, by_attempt)


def _age(commit: Commit) -> tuple[int, int, float]:
    return commit.step, commit.attempt, commit.time


def _record(store: Store, name: str) -> dict[str, Any]:
    try:
        value = json.loads(store.get(name))
    except (FileNotFoundError, ValueError, RecursionError):  # deleted since the listing, or damaged
        return {}
    return value if isinstance(value, dict) else {}


def _named(records: list[dict[str, Any]], kind: str) -> set[str]:
    lists = [record.get("checkpoints") for record in records if record.get("kind") == kind]
    return {str(name) for names in lists if isinstance(names, list) for name in names}


def _commit(record: dict[str, Any]) -> Commit | None:
    if record.get("kind") != "commit":
        return None
    values = {name: record.get(name) for name in Commit.__dataclass_fields__}
    numbers = ("step", "attempt", "bytes", "total_bytes", "world_size")
    if not all(isinstance(values[name], int) for name in numbers) or not isinstance(values["time"], (int, float)):
        return None
    if not all(isinstance(values[name], str) for name in ("unique", "manifest", "manifest_xxh3")):
        return None
    references, metrics = values["references"] or (), values["metrics"] or {}
    if not isinstance(references, (list, tuple)) or not isinstance(metrics, dict):
        return None
    values["references"], values["metrics"] = tuple(map(str, references)), metrics
    commit = Commit(**values)  # type: ignore[arg-type]
    return commit if _NAME.fullmatch(commit.name) and commit.manifest == f"{commit.name}/manifest.json" else None


class Ledger:
    """One attempt's hand in the ledger of one tier."""

    def __init__(self, store: Store, attempt: int, owner: str) -> None:
        self._store, self._attempt, self._owner = store, attempt, owner
        self._next = 0
        self.fenced = False

    def open(self) -> Records:
        """Shuts older attempts out and takes this attempt's turn. Fenced where a newer attempt is here already."""
        while True:
            records = read(self._store)
            newer = [attempt for attempt in records.by_attempt if attempt > self._attempt]
            if newer:
                raise self._fenced(f"attempt {max(newer)}")
            if not all(self._shut_out(records, older) for older in records.by_attempt if older < self._attempt):
                continue
            self._next = records.next_number(self._attempt)
            if self._put({"kind": "open"}):
                return records

    def _shut_out(self, records: Records, older: int) -> bool:
        numbers = records.by_attempt[older]
        if numbers[max(numbers)].get("kind") == "fence":
            return True
        record = {"kind": "fence", "by": self._attempt}
        return self._store.put_new(key(older, max(numbers) + 1), json.dumps(record).encode())

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
        records = read(self._store)
        taken_back, prunes = [], []
        for attempt, numbers in records.by_attempt.items():
            for number in sorted(numbers)[:-1]:
                commit = _commit(numbers[number])
                if commit is not None and commit.name in records.pruned:
                    taken_back.append(key(attempt, number))
                elif numbers[number].get("kind") == "prune":
                    prunes.append(key(attempt, number))
        last_commits = {
            commit.name for numbers in records.by_attempt.values() if (commit := _commit(numbers[max(numbers)]))
        }
        self._store.delete(taken_back)
        if not last_commits & records.pruned:
            self._store.delete(prunes)

    def _put_mine(self, record: dict[str, Any]) -> None:
        if self.fenced or not self._put(record):
            raise self._fenced("another attempt")

    def _put(self, record: dict[str, Any]) -> bool:
        """Whether it was put. A put that storage reported as failed may have landed: that number is passed over."""
        data = json.dumps({**record, "owner": self._owner}).encode()
        while not self._store.put_new(key(self._attempt, self._next), data):
            if _record(self._store, key(self._attempt, self._next)).get("owner") != self._owner:
                return False
            self._next += 1
        self._next += 1
        return True

    def _fenced(self, by: str) -> Fenced:
        self.fenced = True
        return Fenced(f"{self._store.place}: {by} has taken over; attempt {self._attempt} saves nothing more")
