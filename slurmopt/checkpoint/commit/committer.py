"""Committer: commits and prunes checkpoints on one tier, in rank 0's writer or, for a node-local tier, in each
node's."""

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
"""The only files that are ever deleted: the folder may contain the user's own files."""
_LARGE = 100 << 30
"""Bytes: the stripe layout for this file size is progressive, so it fits small files too."""


class Committer:
    """One attempt's right to commit on one tier. Thread-safe; calls are serialized."""

    def __init__(self, tier: Tier, attempt: int, world_size: int) -> None:
        self.tier, self._attempt, self._world_size = tier, attempt, world_size
        self._store = tier.store(SMALL_SECONDS)
        self._ledger = Ledger(self._store, attempt, mark())
        self._turn = threading.Lock()
        self._opened = False
        self._has_leftovers = True
        self._failed: set[str] = set()

    def open(self, first: bool = False) -> None:
        """Fences older attempts. Raises CheckpointError where a living process saves the same attempt.

        `first`: no writer of this attempt has begun to write yet.
        """
        with self._turn:
            self._open(first)

    def _open(self, first: bool = False) -> None:
        if self._opened:
            return
        _refuse_second_writer(ledger.read(self._store), self._attempt, self._store.place)
        self._ledger.open()
        self._opened = True
        if first:
            self._store.abort_abandoned(ledger.FOLDER if self.tier.kind.is_folder else "step-")
        # Set once on the root, before any payload: later folders and files inherit it.
        if self.tier.kind.is_folder and (report := stripe(Path(self.tier.root), _LARGE, self._world_size)):
            print(f"slurmopt: {report}", file=sys.stderr, flush=True)

    @property
    def newest(self) -> int:
        """The step of the newest checkpoint on this tier, 0 for none."""
        commits = self._ledger.records.commits
        return commits[0].step if commits else 0

    def commit(self, manifest: str, fields: dict[str, Any]) -> None:
        """Writes the manifest and records the checkpoint as complete. `fields` are those of Commit."""
        record = Commit(**fields)
        with self._turn:
            self._open()
            records = self._ledger.records
            committed = {each.name for each in records.commits}
            # A referenced checkpoint may have a damaged record; its files exist and were verified with the others.
            needed = {name for each in records.commits for name in each.references} - records.pruned - records.damaged
            if lost := set(record.references) - committed - needed:
                raise CheckpointError(f"it refers to {min(lost)}, which is gone")
            if record.name in self._failed:
                raise StorageError(f"{record.name} was given up meanwhile")
            if not self._store.put_new(record.manifest, manifest.encode()):
                raise StorageError(f"{self._store.place}/{record.manifest} is there already")
            self._ledger.commit(record)

    def set_aside(self, name: str) -> None:
        """Marks a checkpoint as damaged. Others that reference its files are found when they are restored."""
        with self._turn:
            self._open()
            self._ledger.set_aside([name])

    def mark_failed(self, name: str) -> None:
        """Records a failed save; its files are removed after the next commit."""
        self._failed.add(name)
        self._has_leftovers = True

    def clean_up(self, protected: list[str]) -> list[str]:
        """Deletes expired checkpoints and files of failed saves; returns the names of the deleted checkpoints."""
        with self._turn:
            tier, commits = self.tier, self._ledger.records.commits
            names = expired(
                commits, keep=tier.keep, keep_every=tier.keep_every, best=tier.best, metric=tier.metric,
                mode=tier.mode, protected=protected,
            )  # fmt: skip
            untidy, self._has_leftovers = (
                self._has_leftovers,
                False,
            )  # before the deletion: another save may fail meanwhile
            unneeded = sorted({*names, *(self._orphans({*protected}) if untidy else [])})
            if unneeded:
                self._failed.update(unneeded)  # retried if this fails
                keys = [key for name in unneeded for key in self._store.list(f"{name}/") if _OURS.fullmatch(key)]
                try:
                    self._ledger.prune(unneeded, keys)
                except (StorageError, CheckpointError):
                    self._has_leftovers = True
                    raise
            return names

    def _orphans(self, protected: set[str]) -> list[str]:
        """Folders of saves that were never committed: of fenced attempts, and failed ones of this attempt."""
        records = self._ledger.records
        if records.unreadable:  # any folder may belong to an unreadable record
            return []
        needed = {name for commit in records.commits for name in commit.references}
        kept = {commit.name for commit in records.commits} | needed | protected | records.damaged
        folders = {folder_of(key) for key in self._store.list("step-") if _OURS.fullmatch(key)}
        # Of this attempt only failed saves: others may be in progress.
        return sorted(name for name in folders - kept if _attempt_of(name) < self._attempt or name in self._failed)


def _refuse_second_writer(records: ledger.Records, attempt: int, place: str) -> None:
    numbers = records.by_attempt.get(attempt, {})
    if numbers and (pid := marked(numbers[max(numbers)].get("owner"))) is not None:
        raise CheckpointError(f"{place}: process {pid} saves the same attempt of this run; wait for it or stop it")


def _attempt_of(name: str) -> int:
    return int(name.rpartition("/a")[2].partition("-")[0])
