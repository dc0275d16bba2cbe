"""Commits, prunes and cleans up one tier: in rank 0's writer, and for a node's own disk in that node's first writer."""

from __future__ import annotations

import re
import sys
import threading
from pathlib import Path
from typing import Any

from slurmopt.checkpoint.commit.retention import expired
from slurmopt.checkpoint.format import ledger
from slurmopt.checkpoint.format.ledger import Commit, Ledger
from slurmopt.checkpoint.format.manifest import folder_of
from slurmopt.checkpoint.tiers import SMALL_SECONDS, Tier
from slurmopt.errors import CheckpointError, StorageError
from slurmopt.run_folder.process import mark, marked
from slurmopt.storage.lustre import stripe

_OURS = re.compile(r"step-\d{8,}/a\d{4,}-[0-9a-f]{8}/(?:rank-\d{5,}\.bin|manifest\.json)")
"""Nothing else is ever cleaned up: the folder may hold files of the user's."""
_LARGE = 100 << 30
"""Bytes: a layout for files up to this size is progressive, so it fits the small ones too."""


class Committer:
    """One attempt's right to commit on one tier. Any thread may call; one call at a time does its work."""

    def __init__(self, tier: Tier, attempt: int, world_size: int) -> None:
        self.tier, self._attempt, self._world_size = tier, attempt, world_size
        self._store = tier.store(SMALL_SECONDS)
        self._ledger = Ledger(self._store, attempt, mark())
        self._turn = threading.Lock()
        self._opened = False
        self._untidy = True
        self._failed: set[str] = set()

    def open(self, first: bool = False) -> None:
        """Shuts older attempts out. CheckpointError where this very attempt is being written by a living process.

        `first`: nobody of this attempt has begun to write yet.
        """
        with self._turn:
            self._open(first)

    def _open(self, first: bool = False) -> None:
        if self._opened:
            return
        _refuse_second(ledger.read(self._store), self._attempt, self._store.place)
        self._ledger.open()
        self._opened = True
        if first:
            self._store.abort_abandoned(ledger.FOLDER if self.tier.kind.is_folder else "step-")
        # Set once on the root, before any payload: folders and files made later inherit it.
        if self.tier.kind.is_folder and (told := stripe(Path(self.tier.root), _LARGE, self._world_size)):
            print(f"slurmopt: {told}", file=sys.stderr, flush=True)

    @property
    def newest(self) -> int:
        """The step of the newest checkpoint here, 0 for none."""
        commits = self._ledger.records.commits
        return commits[0].step if commits else 0

    def seal(self, manifest: str, commit: dict[str, Any]) -> None:
        """Makes a checkpoint count."""
        record = Commit(**commit)
        with self._turn:
            self._open()
            records = self._ledger.records
            standing = {each.name for each in records.commits}
            # The record of one that others refer to may be damaged; its files are there, and were verified with theirs.
            needed = {name for each in records.commits for name in each.references} - records.pruned - records.damaged
            if lost := set(record.references) - standing - needed:
                raise CheckpointError(f"it refers to {min(lost)}, which is gone")
            if record.name in self._failed:
                raise StorageError(f"{record.name} was given up meanwhile")
            if not self._store.put_new(record.manifest, manifest.encode()):
                raise StorageError(f"{self._store.place}/{record.manifest} is there already")
            self._ledger.commit(record)

    def set_aside(self, name: str) -> None:
        """What a damaged checkpoint shares with others is damaged in those too; they are found out one by one."""
        with self._turn:
            self._open()
            self._ledger.set_aside([name])

    def failed(self, name: str) -> None:
        """A save to this tier came to nothing: what it left is removed after the next commit."""
        self._failed.add(name)
        self._untidy = True

    def tidy(self, protected: list[str]) -> list[str]:
        """Lets go of what need not be kept, and of what failed saves have left; returns the checkpoints that went."""
        with self._turn:
            tier, commits = self.tier, self._ledger.records.commits
            names = expired(
                commits, keep=tier.keep, keep_every=tier.keep_every, best=tier.best, metric=tier.metric,
                mode=tier.mode, protected=protected,
            )  # fmt: skip
            untidy, self._untidy = self._untidy, False  # before the work: another save may fail meanwhile
            doomed = sorted({*names, *(self._orphans({*protected}) if untidy else [])})
            if doomed:
                self._failed.update(doomed)  # to be tried again, should this fail
                keys = [key for name in doomed for key in self._store.list(f"{name}/") if _OURS.fullmatch(key)]
                try:
                    self._ledger.prune(doomed, keys)
                except (StorageError, CheckpointError):
                    self._untidy = True
                    raise
            return names

    def _orphans(self, protected: set[str]) -> list[str]:
        """What saves that were never committed have left: of attempts that are shut out, and failed ones of ours."""
        records = self._ledger.records
        if records.unreadable:  # any of these may be what such a record stood for
            return []
        needed = {name for commit in records.commits for name in commit.references}
        kept = {commit.name for commit in records.commits} | needed | protected | records.damaged
        found = {folder_of(key) for key in self._store.list("step-") if _OURS.fullmatch(key)}
        # Of our own attempt only what is known to have failed: the rest is being written.
        return sorted(name for name in found - kept if _attempt_of(name) < self._attempt or name in self._failed)


def _refuse_second(records: ledger.Records, attempt: int, place: str) -> None:
    numbers = records.by_attempt.get(attempt, {})
    if numbers and (pid := marked(numbers[max(numbers)].get("owner"))) is not None:
        raise CheckpointError(f"{place}: process {pid} saves the same attempt of this run; wait for it or stop it")


def _attempt_of(name: str) -> int:
    return int(name.rpartition("/a")[2].partition("-")[0])
