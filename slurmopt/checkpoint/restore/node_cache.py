"""NodeCache: copies files between the disks of nodes in a restore, and lets the ranks of a node share what they
read."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from slurmopt.checkpoint.collectives import LONG_TIMEOUT, Collectives, collective_call
from slurmopt.checkpoint.format.manifest import File, Manifest
from slurmopt.checkpoint.format.segments import is_there
from slurmopt.checkpoint.restore.fetching import Progress, no_progress
from slurmopt.checkpoint.restore.node_window import Window
from slurmopt.errors import StorageError
from slurmopt.job.facts.rank_facts import RankFacts
from slurmopt.storage.memory import staging
from slurmopt.storage.store import Store
from slurmopt.units import human_bytes

SHARED_FROM = 64 << 20
"""Bytes of a checkpoint: below this size synchronizing takes longer than reading it on each rank."""
_CHUNK_BYTES = 16 << 20
_FEW = 2


class NodeCache:
    """The cooperation of ranks and nodes in one restore. All its methods are collective calls."""

    def __init__(self, ranks: Collectives, facts: RankFacts, progress: Progress = no_progress) -> None:
        """`progress` is called with the bytes that are sent between nodes."""
        self._ranks, self._progress, self._first_of_node = ranks, progress, facts.local_rank == 0
        answers = ranks.gather((facts.node, self._first_of_node))
        self._firsts = [rank for rank, (_, first) in enumerate(answers) if first]
        self._node_of = [node for node, _ in answers]
        self._here = [rank for rank, node in enumerate(self._node_of) if node == facts.node]
        self._window: Window | None = None

    @property
    def nodes(self) -> int:
        """The number of nodes."""
        return len(self._firsts)

    def window(self, total_bytes: int) -> Window | None:
        """Memory that the ranks of this node share, for a checkpoint of this size; None where each rank reads alone."""
        if len(self._here) < 2 or total_bytes < SHARED_FROM:
            return None
        if self._window is None:
            self._window = Window(self._here, self._ranks.rank)
        return self._window if self._window.usable else None

    def exchange(self, own: Store, manifest: Manifest, encoded: bytes, wanted: set[str]) -> str | None:
        """Copies files from the nodes that have them to those that need them. Returns a problem, or None.

        `wanted`: the keys that this rank needs.
        """
        have = [at for at, file in enumerate(manifest.files) if is_there(own, file)] if self._first_of_node else []
        answers = self._ranks.gather((have, [at for at, file in enumerate(manifest.files) if file.key in wanted]))
        holders = {rank: set(answers[rank][0]) for rank in self._firsts}
        requests: dict[int, set[int]] = {rank: set() for rank in self._firsts}
        first_of = {self._node_of[rank]: rank for rank in self._firsts}
        for rank, (_, needed) in enumerate(answers):
            requests[first_of[self._node_of[rank]]].update(needed)
        return self._exchange_files(own, manifest, encoded, holders, requests)

    def _exchange_files(
        self,
        own: Store,
        manifest: Manifest,
        encoded: bytes,
        holders: dict[int, set[int]],
        requests: dict[int, set[int]],
    ) -> str | None:
        available = set().union(*holders.values())
        if lost := sorted(set().union(*requests.values()) - available):
            return f"{manifest.files[lost[0]].key} is on no node of this job"
        moves = _moves(holders, requests)
        incoming = [manifest.files[move.file] for move in moves if self._ranks.rank in move.to]
        problems = self._put_manifest(own, manifest, encoded) if self._first_of_node else {}
        problems |= _space_problem(own, incoming)
        if problem := _first_problem(self._ranks.gather(problems)):
            return problem
        problems = self._move_all(own, manifest, moves) if moves else {}
        answers = self._ranks.gather(problems, long=True)
        spoilt = {key for each in answers for key in each}
        # A file from a node that failed to read it has the right name and size, but wrong content.
        with contextlib.suppress(StorageError, OSError):
            own.delete([file.key for file in incoming if file.key in spoilt])
        return _first_problem(answers)

    def _put_manifest(self, own: Store, manifest: Manifest, encoded: bytes) -> dict[str, str]:
        """Stores the manifest on a node that lacks it; its writer may copy the checkpoint to the next tier."""
        try:
            own.put_new(manifest.key, encoded)
        except (StorageError, OSError) as error:
            return {manifest.key: str(error)}
        return {}

    def _move_all(self, own: Store, manifest: Manifest, moves: list[Move]) -> dict[str, str]:
        """Runs all moves; returns the problems on this node, by file."""
        problems: dict[str, str] = {}
        with collective_call():
            group = dist.new_group(self._firsts, backend="gloo", timeout=LONG_TIMEOUT)
            if self._first_of_node:
                for move in moves:  # the order is equal on all nodes, so that they cannot deadlock
                    if self._ranks.rank in (move.holder, *move.to) or move.to_many:
                        self._move(own, manifest.files[move.file], move, group, problems)
                dist.destroy_process_group(group)
        return problems

    def _move(self, own: Store, file: File, move: Move, group: object, problems: dict[str, str]) -> None:
        chunks = self._chunks(own, file, move, group, problems)
        try:
            if self._ranks.rank in move.to:
                own.write(file.key, chunks)
        except (StorageError, OSError) as error:
            problems[file.key] = str(error)
        for _ in chunks:  # the other nodes wait for every chunk, also after a failure
            pass

    def _chunks(
        self, own: Store, file: File, move: Move, group: object, problems: dict[str, str]
    ) -> Iterator[memoryview]:
        """Yields the file's chunks. A holder that fails to read sends meaningless bytes, since the others wait for
        them."""
        for start in range(0, file.bytes, _CHUNK_BYTES):
            memory = staging(_CHUNK_BYTES)[: min(_CHUNK_BYTES, file.bytes - start)]
            if self._ranks.rank == move.holder and file.key not in problems:
                try:
                    own.read_into(file.key, start, memory)
                except (StorageError, OSError) as error:
                    problems[file.key] = str(error)
            self._transfer(torch.frombuffer(memory, dtype=torch.uint8), move, group)
            self._progress(len(memory))
            yield memory

    def _transfer(self, chunk: torch.Tensor, move: Move, group: Any) -> None:
        if move.to_many:
            dist.broadcast(chunk, src=move.holder, group=group)
        elif self._ranks.rank == move.holder:
            for rank in move.to:
                dist.send(chunk, dst=rank, group=group)
        else:
            dist.recv(chunk, src=move.holder, group=group)

    def close(self) -> None:
        """Releases the shared memory."""
        if self._window is not None:
            self._window.close()


class Move(NamedTuple):
    """A file, by its index in the manifest, to be sent from the rank `holder` to those that lack it."""

    file: int
    holder: int
    to: tuple[int, ...]
    to_many: bool


def _moves(holders: dict[int, set[int]], requests: dict[int, set[int]]) -> list[Move]:
    """The files that nodes need and lack. For more than a few receivers a broadcast to all nodes is faster."""
    lacking: dict[int, list[int]] = {}
    for rank, files in requests.items():
        for file in files - holders[rank]:
            lacking.setdefault(file, []).append(rank)
    moves = []
    for file, to in sorted(lacking.items()):
        holder = min(rank for rank, files in holders.items() if file in files)
        moves.append(Move(file, holder, tuple(sorted(to)), len(to) > _FEW))
    return moves


def _space_problem(own: Store, incoming: list[File]) -> dict[str, str]:
    """A problem where the disk has less free space than the incoming files need."""
    need = sum(file.bytes for file in incoming)
    folder = Path(own.place)
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    if need <= free:
        return {}
    return {"": f"{own.place}: {human_bytes(need)} are to come here, and {human_bytes(free)} are free"}


def _first_problem(answers: list[dict[str, str]]) -> str | None:
    return next((problem for each in answers for problem in each.values()), None)
