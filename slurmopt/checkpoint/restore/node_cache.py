"""What the nodes of a job do for each other in a restore: files of one node's disk go to those that need them, and what
all ranks of a node need is read once."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from slurmopt.checkpoint.collectives import LONG_TIMEOUT, Collectives, together
from slurmopt.checkpoint.format.manifest import File, Manifest
from slurmopt.checkpoint.format.segments import is_there
from slurmopt.checkpoint.restore.fetching import Moved, nobody
from slurmopt.checkpoint.restore.node_window import Window
from slurmopt.errors import StorageError
from slurmopt.job.facts.rank_facts import RankFacts
from slurmopt.storage.copy import CHUNK_BYTES
from slurmopt.storage.memory import staging
from slurmopt.storage.store import Store
from slurmopt.units import human_bytes

SHARED_FROM = 64 << 20
"""Bytes of a checkpoint: below, each rank reads it for itself sooner than all have met."""
_FEW = 2


class NodeCache:
    """What the ranks of a node, and the nodes, do for each other in one restore. All ranks call the same together."""

    def __init__(self, ranks: Collectives, facts: RankFacts, moved: Moved = nobody) -> None:
        """`moved` is told of bytes that go from node to node."""
        self._ranks, self._moved, self._first_of_node = ranks, moved, facts.local_rank == 0
        told = ranks.gather((facts.node, self._first_of_node))
        self._firsts = [rank for rank, (_, first) in enumerate(told) if first]
        self._node_of = [node for node, _ in told]
        self._here = [rank for rank, node in enumerate(self._node_of) if node == facts.node]
        self._window: Window | None = None

    @property
    def nodes(self) -> int:
        """How many nodes there are."""
        return len(self._firsts)

    def window(self, total_bytes: int) -> Window | None:
        """Memory that this node's ranks share, for a checkpoint of this size; None where each reads for itself."""
        if len(self._here) < 2 or total_bytes < SHARED_FROM:
            return None
        if self._window is None:
            self._window = Window(self._here, self._ranks.rank)
        return self._window if self._window.usable else None

    def exchanged(self, own: Store, manifest: Manifest, encoded: bytes, wanted: set[str]) -> str | None:
        """Files on the disk of one node go to those that need and lack them; why that cannot be done, or None.

        `wanted`: the keys that this rank needs.
        """
        have = [at for at, file in enumerate(manifest.files) if is_there(own, file)] if self._first_of_node else []
        told = self._ranks.gather((have, [at for at, file in enumerate(manifest.files) if file.key in wanted]))
        holders = {rank: set(told[rank][0]) for rank in self._firsts}
        wishes: dict[int, set[int]] = {rank: set() for rank in self._firsts}
        first_of = {self._node_of[rank]: rank for rank in self._firsts}
        for rank, (_, needed) in enumerate(told):
            wishes[first_of[self._node_of[rank]]].update(needed)
        return self._exchanged(own, manifest, encoded, holders, wishes)

    def _exchanged(
        self, own: Store, manifest: Manifest, encoded: bytes, holders: dict[int, set[int]], wishes: dict[int, set[int]]
    ) -> str | None:
        there = set().union(*holders.values())
        if lost := sorted(set().union(*wishes.values()) - there):
            return f"{manifest.files[lost[0]].key} is on no node of this job"
        moves = _moves(holders, wishes)
        coming = [manifest.files[move.file] for move in moves if self._ranks.rank in move.to]
        problems = self._put_manifest(own, manifest, encoded) if self._first_of_node else {}
        problems |= _no_room(own, coming)
        if problem := _first(self._ranks.gather(problems)):
            return problem
        problems = self._move_all(own, manifest, moves) if moves else {}
        told = self._ranks.gather(problems, long=True)
        spoilt = {key for each in told for key in each}
        # What came from a holder that could not read has the right name and size, and is wrong.
        with contextlib.suppress(StorageError, OSError):
            own.delete([file.key for file in coming if file.key in spoilt])
        return _first(told)

    def _put_manifest(self, own: Store, manifest: Manifest, encoded: bytes) -> dict[str, str]:
        """A node that was not there when it was saved lacks this, too; its writer may want to pass it on."""
        try:
            own.put_new(manifest.key, encoded)
        except (StorageError, OSError) as error:
            return {manifest.key: str(error)}
        return {}

    def _move_all(self, own: Store, manifest: Manifest, moves: list[Move]) -> dict[str, str]:
        """What went wrong here, by file."""
        problems: dict[str, str] = {}
        with together():
            group = dist.new_group(self._firsts, backend="gloo", timeout=LONG_TIMEOUT)
            if self._first_of_node:
                for move in moves:  # all have the same order, so nobody waits for one that waits for him
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
        for _ in chunks:  # the others wait for every chunk, whatever became of ours
            pass

    def _chunks(
        self, own: Store, file: File, move: Move, group: object, problems: dict[str, str]
    ) -> Iterator[memoryview]:
        """A holder that cannot read goes on, with bytes that mean nothing: the others wait for as many as there are."""
        for start in range(0, file.bytes, CHUNK_BYTES):
            memory = staging(CHUNK_BYTES)[: min(CHUNK_BYTES, file.bytes - start)]
            if self._ranks.rank == move.holder and file.key not in problems:
                try:
                    own.read_into(file.key, start, memory)
                except (StorageError, OSError) as error:
                    problems[file.key] = str(error)
            self._pass_on(torch.frombuffer(memory, dtype=torch.uint8), move, group)
            self._moved(len(memory))
            yield memory

    def _pass_on(self, chunk: torch.Tensor, move: Move, group: Any) -> None:
        if move.to_many:
            dist.broadcast(chunk, src=move.holder, group=group)
        elif self._ranks.rank == move.holder:
            for rank in move.to:
                dist.send(chunk, dst=rank, group=group)
        else:
            dist.recv(chunk, src=move.holder, group=group)

    def close(self) -> None:
        """Gives back the memory that was shared."""
        if self._window is not None:
            self._window.close()


class Move(NamedTuple):
    """A file, by its number in the manifest, that goes from the rank `holder` to those that lack it."""

    file: int
    holder: int
    to: tuple[int, ...]
    to_many: bool


def _moves(holders: dict[int, set[int]], wishes: dict[int, set[int]]) -> list[Move]:
    """Only what a node needs and lacks. To more than a few nodes at once, all take part: a broadcast is quicker."""
    lacking: dict[int, list[int]] = {}
    for rank, files in wishes.items():
        for file in files - holders[rank]:
            lacking.setdefault(file, []).append(rank)
    moves = []
    for file, to in sorted(lacking.items()):
        holder = min(rank for rank, files in holders.items() if file in files)
        moves.append(Move(file, holder, tuple(sorted(to)), len(to) > _FEW))
    return moves


def _no_room(own: Store, coming: list[File]) -> dict[str, str]:
    """A problem where the disk has less room than what is to come there."""
    need = sum(file.bytes for file in coming)
    folder = Path(own.place)
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    if need <= free:
        return {}
    return {"": f"{own.place}: {human_bytes(need)} are to come here, and {human_bytes(free)} are free"}


def _first(told: list[dict[str, str]]) -> str | None:
    return next((problem for each in told for problem in each.values()), None)
