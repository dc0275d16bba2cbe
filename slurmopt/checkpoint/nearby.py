"""A checkpoint brought to every node before its ranks read it: once a node, not once a rank."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed as dist

from slurmopt.checkpoint.agreement import LONG_TIMEOUT, Agreement, together
from slurmopt.checkpoint.manifest import File, Manifest
from slurmopt.errors import SlurmoptError, StorageError
from slurmopt.runtime.ranks import RankFacts
from slurmopt.storage.copy import CHUNK_BYTES, copy
from slurmopt.storage.folder import FolderStore
from slurmopt.storage.memory import staging
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
        folder, problem = self._download(remote, manifest) if self._first_of_node else ("", None)
        told = self._ranks.gather((self._facts.node, folder, problem), long=True)
        if any(problem for _, _, problem in told):  # no room there, or S3 itself fails: then each rank asks S3
            return remote
        return FolderStore(Path(next(path for node, path, _ in told if path and node == self._facts.node)))

    def _download(self, remote: Store, manifest: Manifest) -> tuple[str, str | None]:
        try:
            folder = tempfile.mkdtemp(prefix="slurmopt-")
        except OSError as error:
            return "", str(error)
        self._caches.append(folder)
        return folder, _bring_all(remote, FolderStore(Path(folder)), manifest)

    def exchanged(self, own: Store, manifest: Manifest, encoded: bytes) -> str | None:
        """Files on the disk of one node go to those that lack them; why that cannot be done, or None."""
        have = [file.key for file in manifest.files if _is_there(own, file)] if self._first_of_node else []
        nodes = {rank: set(keys) for rank, keys in enumerate(self._ranks.gather(have)) if rank in self._firsts}
        lost = [file.key for file in manifest.files if not any(file.key in keys for keys in nodes.values())]
        if lost:
            return f"{lost[0]} is on no node of this job"
        problems = self._put_manifest(own, manifest, encoded) if self._first_of_node else {}
        scarce = [file for file in manifest.files if not all(file.key in keys for keys in nodes.values())]
        if scarce:
            problems |= self._share_all(own, scarce, nodes)
        told = self._ranks.gather(problems, long=True)
        spoilt = {key for each in told for key in each}
        if self._first_of_node:  # what came from a holder that could not read has the right name and size, and is wrong
            with contextlib.suppress(StorageError, OSError):
                own.delete([file.key for file in scarce if file.key in spoilt and file.key not in have])
        return next((problem for each in told for problem in each.values()), None)

    def _put_manifest(self, own: Store, manifest: Manifest, encoded: bytes) -> dict[str, str]:
        """A node that was not there when it was saved lacks this, too; its writer may want to pass it on."""
        try:
            own.put_new(manifest.key, encoded)
        except (StorageError, OSError) as error:
            return {manifest.key: str(error)}
        return {}

    def _share_all(self, own: Store, scarce: list[File], nodes: dict[int, set[str]]) -> dict[str, str]:
        """What went wrong here, by file."""
        problems: dict[str, str] = {}
        with together():
            group = dist.new_group(self._firsts, backend="gloo", timeout=LONG_TIMEOUT)
            if self._first_of_node:
                for file in scarce:
                    holder = min(rank for rank, keys in nodes.items() if file.key in keys)
                    have_it = file.key in nodes[self._ranks.rank]
                    self._share(own, file, holder, have_it, group, problems)
                dist.destroy_process_group(group)
        return problems

    def _share(self, own: Store, file: File, holder: int, have: bool, group: object, problems: dict[str, str]) -> None:
        chunks = self._broadcast(own, file, holder, group, problems)
        try:
            if not have:
                own.write(file.key, chunks)
        except (StorageError, OSError) as error:
            problems[file.key] = str(error)
        for _ in chunks:  # the others wait for every broadcast, whatever became of ours
            pass

    def _broadcast(
        self, own: Store, file: File, holder: int, group: object, problems: dict[str, str]
    ) -> Iterator[memoryview]:
        """A holder that cannot read goes on, with bytes that mean nothing: the others wait for as many as there are."""
        for start in range(0, file.bytes, CHUNK_BYTES):
            memory = staging(CHUNK_BYTES)[: min(CHUNK_BYTES, file.bytes - start)]
            if self._ranks.rank == holder and file.key not in problems:
                try:
                    own.read_into(file.key, start, memory)
                except (StorageError, OSError) as error:
                    problems[file.key] = str(error)
            dist.broadcast(torch.frombuffer(memory, dtype=torch.uint8), src=holder, group=group)
            yield memory

    def close(self) -> None:
        """Removes what was brought here only to be read once. Nobody is waited for: who comes here after a restore or
        its failure has heard from all ranks that they have read; who comes on its own comes from an error."""
        for cache in self._caches:
            shutil.rmtree(cache, ignore_errors=True)


def _is_there(store: Store, file: File) -> bool:
    try:
        return store.size(file.key) == file.bytes
    except (StorageError, OSError):  # what cannot be looked at cannot be passed on
        return False


def _bring_all(source: Store, target: Store, manifest: Manifest) -> str | None:
    """Copies a checkpoint's files; why that failed, or None."""
    try:
        for file in manifest.files:
            copy(source, target, file.key, file.bytes)
    except (SlurmoptError, OSError) as error:
        return str(error)
    return None
