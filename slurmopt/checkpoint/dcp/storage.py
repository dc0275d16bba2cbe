"""SlurmoptWriter: lets `dcp.save` and `dcp.async_save`, and what is built on them, save to slurmopt's storage.

    dcp.save(state, checkpoint_id="step-120", storage_writer=SlurmoptWriter("/data/run-7"))
    dcp.load(state, storage_reader=SlurmoptReader("/data/run-7"))            # the newest complete one

Each save has a folder of its own, and is complete once its record is in the ledger: an interrupted save, on any rank,
does not affect earlier ones, also of the same step.
"""

from __future__ import annotations

import os
import re
import secrets
import threading
import time
from dataclasses import dataclass, replace
from typing import Any

import torch.distributed as dist
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta, TensorStorageMetadata
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner
from torch.distributed.checkpoint.storage import StorageWriter, WriteResult
from torch.futures import Future

from slurmopt.checkpoint.commit.retention import expired
from slurmopt.checkpoint.dcp.items import Stored, merged, written
from slurmopt.checkpoint.dcp.place import open_store, step_in
from slurmopt.checkpoint.dcp.reader import SlurmoptReader
from slurmopt.checkpoint.format import ledger
from slurmopt.checkpoint.format.ledger import Ledger, Records, checkpoint_name
from slurmopt.checkpoint.format.manifest import Manifest, folder_of
from slurmopt.errors import CheckpointError, StorageError
from slurmopt.run_folder.process import mark
from slurmopt.storage.store import Store

__all__ = ["SlurmoptReader", "SlurmoptWriter"]

_ATTEMPT = "SLURMOPT_ATTEMPT"


@dataclass(frozen=True)
class _Hand:
    """The attempt under which a process commits, and its owner mark."""

    attempt: int
    owner: str


@dataclass(frozen=True)
class _Share:
    """What the coordinator sends each rank about a save."""

    name: str
    rank: int


@dataclass(frozen=True)
class _Hold:
    """A process's open ledger of one place."""

    ledger: Ledger
    hand: _Hand


_holds: dict[str, _Hold] = {}
_lock = threading.RLock()  # dcp.async_save saves from several threads
_cleaned: set[str] = set()
_ATTEMPT_OF = re.compile(r"step-\d{8,}/a(\d{4,})-[0-9a-f]{8}")
_FILE_OF = re.compile(r"rank-\d{5,}\.bin|manifest\.json")
"""The only files that are ever deleted: the folder may contain the user's own files."""


class SlurmoptWriter(StorageWriter):
    """Saves to `place`, a folder or s3://BUCKET/PREFIX, which holds any number of checkpoints.

    `step`: the step of the next save; where it is None, the `checkpoint_id` of `dcp.save` says it. `keep`: how many of
    the last checkpoints stay; None keeps all. `metrics` are for people. `compression`: None or zstd. `options` are
    those of `slurmopt.storage.s3.store.S3Store`.

    In a slurmopt run its attempt's number fences older attempts; elsewhere each process that begins to save shuts out
    those before it. Raises CheckpointError for a save without a step, and once a newer attempt has taken over.
    """

    def __init__(
        self,
        place: str | os.PathLike[str],
        *,
        step: int | None = None,
        keep: int | None = None,
        metrics: dict[str, float] | None = None,
        compression: str | None = None,
        **options: Any,
    ) -> None:
        self.place = open_store(place, options).place  # an invalid place raises here, not at the first save
        self.step, self.keep = step, keep
        self.metrics, self.compression = dict(metrics or {}), compression
        self._options = options
        self._hand: _Hand | None = None
        self._step, self._name = step, ""

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return step_in(checkpoint_id) is not None

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        named = step_in(checkpoint_id)  # DCP calls this only with a checkpoint_id
        self._step = self.step if named is None else named

    def storage_meta(self) -> StorageMeta | None:
        return StorageMeta(checkpoint_id=self.place)

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        if kwargs.get("use_collectives") is False:
            raise CheckpointError("use_collectives=False saves each rank for itself; slurmopt commits all ranks as one")

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        if not all(getattr(plan, "usable", True) for plan in plans):
            raise CheckpointError("a planner with enable_plan_caching cannot be used: each save has a name of its own")
        if self._step is None:
            raise CheckpointError("which step is it? valid: SlurmoptWriter(…, step=120), or checkpoint_id='step-120'")
        with _lock:
            self._hold()
        self._name = checkpoint_name(self._step, f"a{self._attempt:04d}-{secrets.token_hex(4)}")
        self._step = self.step
        return [replace(plan, storage_data=_Share(self._name, rank)) for rank, plan in enumerate(plans)]

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        share: _Share = plan.storage_data
        done: Future[list[WriteResult]] = Future()
        key = f"{share.name}/rank-{share.rank:05d}.bin"
        done.set_result(written(open_store(self.place, self._options), key, self.compression, plan, planner))
        return done

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Commits the checkpoint, of which every rank's payload is durable."""
        store, manifest = open_store(self.place, self._options), self._manifest(metadata, results)
        encoded = manifest.encode()
        if not store.put_new(manifest.key, encoded):
            raise StorageError(f"{store.place}/{manifest.key} is there already")
        with _lock:
            hold = self._hold()
            hold.commit(manifest.commit(encoded))
            self._prune(store, hold.records, hold)

    def _manifest(self, metadata: Metadata, results: list[list[WriteResult]]) -> Manifest:
        step, _, unique = self._name.removeprefix("step-").partition("/")
        stored: list[list[Stored]] = [[result.storage_data for result in of_rank] for of_rank in results]
        files, items = merged(stored)
        known = metadata.state_dict_metadata
        return Manifest(
            step=int(step),
            attempt=self._attempt,
            unique=unique,
            time=round(time.time(), 3),
            world_size=len(results),
            tensors={
                name: (str(each.properties.dtype).removeprefix("torch."), tuple(each.size))
                for name, each in known.items()
                if isinstance(each, TensorStorageMetadata)
            },
            files=files,
            items=items,
            paths={name: tuple((metadata.planner_data or {}).get(name, (name,))) for name in known},
            metrics={key: float(value) for key, value in self.metrics.items()},
        )

    def _prune(self, store: Store, records: Records, hold: Ledger) -> None:
        names = [] if self.keep is None else expired(records.commits, keep=self.keep)
        if self.place not in _cleaned:
            names += self._interrupted_saves(store, {commit.name for commit in records.commits} | records.damaged)
            _cleaned.add(self.place)
        if names:
            hold.prune(names, [key for name in names for key in store.list(f"{name}/") if _ours(key)])

    def _interrupted_saves(self, store: Store, kept: set[str]) -> list[str]:
        """The folders of interrupted saves of fenced attempts."""
        folders = {folder_of(key) for key in store.list("step-") if _ours(key)} - kept
        older = (name for name in folders if (match := _ATTEMPT_OF.fullmatch(name)) and int(match[1]) < self._attempt)
        return sorted(older)

    @property
    def _attempt(self) -> int:
        assert self._hand is not None
        return self._hand.attempt

    def _hold(self) -> Ledger:
        """This process's ledger; the first call fences earlier processes and attempts."""
        if self.place not in _holds:
            store = open_store(self.place, self._options)
            self._hand = self._hand or _Hand(_attempt(store), mark())
            hold = Ledger(store, self._hand.attempt, self._hand.owner)
            hold.open()
            _holds[self.place] = _Hold(hold, self._hand)
        self._hand = _holds[self.place].hand
        return _holds[self.place].ledger

    def __getstate__(self) -> dict[str, Any]:
        """Shares the owner with the background process from which DCP may save, so that both may save in turn."""
        if not dist.is_initialized() or dist.get_rank() == 0:
            with _lock:
                self._hold()
        return self.__dict__


def _ours(key: str) -> bool:
    folder, _, file = key.rpartition("/")
    return bool(_ATTEMPT_OF.fullmatch(folder) and _FILE_OF.fullmatch(file))


def _attempt(store: Store) -> int:
    attempt = os.environ.get(_ATTEMPT, "")
    return int(attempt) if attempt.isdecimal() else max(ledger.read(store).by_attempt, default=-1) + 1
