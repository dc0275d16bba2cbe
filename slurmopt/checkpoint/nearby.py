"""A checkpoint brought to every node before its ranks read it: once a node, not once a rank."""

from __future__ import annotations

import mmap
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed as dist

from slurmopt.checkpoint.agreement import Agreement
from slurmopt.checkpoint.manifest import File, Manifest
from slurmopt.errors import StorageError
from slurmopt.runtime.ranks import RankFacts
from slurmopt.storage.copy import CHUNK_BYTES, copy
from slurmopt.storage.folder import FolderStore
from slurmopt.storage.store import Store


class Nearby:
    """What the nodes do for each other in one restore. All ranks call the same methods together."""

    def __init__(self, ranks: Agreement, facts: RankFacts) -> None:
        self._ranks, self._facts, self._first_of_node = ranks, facts, facts.local_rank == 0
        firsts = ranks.gather(self._first_of_node)
        self._firsts = [rank for rank, first in enumerate(firsts) if first]
        self._caches: list[str] = []

    @property
    def nodes(self) -> int:
        """How many nodes there are."""
        return len(self._firsts)

    def downloaded(self, remote: Store, manifest: Manifest) -> Store:
        """`remote` itself where each node has one rank; else a folder on each node that its first rank fills."""
        if len(self._firsts) == self._ranks.world_size:
            return remote
        folder = tempfile.mkdtemp(prefix="slurmopt-") if self._first_of_node else ""
        problem = _bring_all(remote, FolderStore(Path(folder)), manifest) if self._first_of_node else None
        told = self._ranks.gather((self._facts.node, folder, problem))
        self._caches += [folder] if folder else []
        if any(problem for _, _, problem in told):  # no room there, or S3 itself fails: then each rank asks S3
            return remote
        return FolderStore(Path(next(path for node, path, _ in told if path and node == self._facts.node)))

    def exchanged(self, own: Store, manifest: Manifest, encoded: bytes) -> str | None:
        """Files on the disk of one node go to those that lack them; why that cannot be done, or None."""
        have = [file.key for file in manifest.files if _is_there(own, file)] if self._first_of_node else []
        nodes = {rank: set(keys) for rank, keys in enumerate(self._ranks.gather(have)) if rank in self._firsts}
        lost = [file.key for file in manifest.files if not any(file.key in keys for keys in nodes.values())]
        if lost:
            return f"{lost[0]} is on no node of this job"
        problem = self._put_manifest(own, manifest, encoded) if self._first_of_node else None
        scarce = [file for file in manifest.files if not all(file.key in keys for keys in nodes.values())]
        if scarce:
            problem = self._share_all(own, scarce, nodes) or problem
        return next(filter(None, self._ranks.gather(problem)), None)

    def _put_manifest(self, own: Store, manifest: Manifest, encoded: bytes) -> str | None:
        """A node that was not there when it was saved lacks this, too; its writer may want to pass it on."""
        try:
            own.put_new(manifest.key, encoded)
        except StorageError as error:
            return str(error)
        return None

    def _share_all(self, own: Store, scarce: list[File], nodes: dict[int, set[str]]) -> str | None:
        group = dist.new_group(self._firsts, backend="gloo")
        problem = None
        if self._first_of_node:
            for file in scarce:
                holder = min(rank for rank, keys in nodes.items() if file.key in keys)
                have_it = file.key in nodes[self._ranks.rank]
                problem = self._share(own, file, holder, have_it, group) or problem
            dist.destroy_process_group(group)
        return problem

    def _share(self, own: Store, file: File, holder: int, have: bool, group: object) -> str | None:
        chunks, problem = self._broadcast(own, file, holder, group), None
        try:
            if not have:
                own.write(file.key, chunks)
        except StorageError as error:
            problem = str(error)
        for _ in chunks:  # the others wait for every broadcast, whatever became of ours
            pass
        return problem

    def _broadcast(self, own: Store, file: File, holder: int, group: object) -> Iterator[memoryview]:
        for start in range(0, file.bytes, CHUNK_BYTES):
            memory = memoryview(mmap.mmap(-1, CHUNK_BYTES))[: min(CHUNK_BYTES, file.bytes - start)]
            if self._ranks.rank == holder:
                own.read_into(file.key, start, memory)
            dist.broadcast(torch.frombuffer(memory, dtype=torch.uint8), src=holder, group=group)
            yield memory

    def close(self) -> None:
        """Removes what was brought here only to be read once; all ranks have read by then."""
        self._ranks.gather(None)
        for cache in self._caches:
            shutil.rmtree(cache, ignore_errors=True)


def _is_there(store: Store, file: File) -> bool:
    try:
        return store.size(file.key) == file.bytes
    except FileNotFoundError:
        return False


def _bring_all(source: Store, target: Store, manifest: Manifest) -> str | None:
    """Copies a checkpoint's files; why that failed, or None."""
    try:
        for file in manifest.files:
            copy(source, target, file.key, file.bytes)
    except (StorageError, FileNotFoundError) as error:
        return str(error)
    return None
