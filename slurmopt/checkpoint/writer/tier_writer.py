"""TierWriter: writes one rank's part of each save to one tier, and references what is stored there already."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import chain
from typing import Any

from slurmopt.checkpoint.format import rank_payload as parts
from slurmopt.checkpoint.format.index import items_taken_by, load_items
from slurmopt.checkpoint.format.ledger import Commit
from slurmopt.checkpoint.format.manifest import File, Manifest, Segment
from slurmopt.checkpoint.format.manifest_reader import decode
from slurmopt.checkpoint.format.rank_payload import Address, Block, PayloadWriter, Place, RankPayload
from slurmopt.checkpoint.format.segments import is_there
from slurmopt.checkpoint.tiers import Tier
from slurmopt.storage.store import Store

Known = dict[Address, list[tuple[File, Segment]]]
"""The stored segments of each item."""
_ALL_BYTES = 32 << 20


class TierWriter:
    """Writes one save at a time, since the next may reference a save only once that is settled."""

    def __init__(self, tier: Tier, rank: int, world_size: int, incremental: bool) -> None:
        self.tier, self.store = tier, tier.store()
        self._rank, self._world_size, self._incremental = rank, world_size, incremental
        self._known: Known = {}
        self._written: dict[str, RankPayload] = {}
        self._failed: set[str] = set()
        self._changed = threading.Condition()
        self._held = False

    def hold(self) -> None:
        """Makes the next save wait for `release`."""
        with self._changed:
            self._held = True

    def release(self) -> None:
        with self._changed:
            self._held = False
            self._changed.notify_all()

    def start_from(self, commit: dict[str, Any]) -> None:
        """Allows references to this checkpoint, which has just been read and verified."""
        if self._incremental:
            record = Commit(**{**commit, "references": tuple(commit["references"])})
            manifest = decode(self.store.get(record.manifest), record)
            self._known = self._present_on_node(
                parts.known_segments(load_items(self.store, manifest, self._referable_parts(manifest)))
            )

    def _referable_parts(self, manifest: Manifest) -> list[int]:
        """The parts that the next save may reference: all where their descriptions are small, since this rank may now
        write what another rank wrote then; else this rank's own."""
        if sum(index.stored for index in manifest.parts) <= _ALL_BYTES:
            return list(range(len(manifest.parts)))
        return [self._rank] if len(manifest.parts) == self._world_size else []

    def _present_on_node(self, known: Known) -> Known:
        """Leaves out files that a node-local disk lacks: the copy to the next tier reads what is referenced."""
        if not self.tier.node_local:
            return known
        files = {file for pieces in known.values() for file, _ in pieces}
        files = {file for file in files if is_there(self.store, file)}
        return {address: pieces for address, pieces in known.items() if all(file in files for file, _ in pieces)}

    def payload_of(self, commit: dict[str, Any]) -> RankPayload:
        """This rank's share of a checkpoint on this tier, for a copy to another tier."""
        record = Commit(**{**commit, "references": tuple(commit["references"])})
        manifest = decode(self.store.get(record.manifest), record)
        if manifest.spread is None and self.tier.node_local:
            return RankPayload(manifest.files, items_taken_by(manifest, self._rank, self._world_size, manifest.items))
        if manifest.spread is None:
            return RankPayload(manifest.files, manifest.items[self._rank :: self._world_size])
        own_parts = range(self._rank, len(manifest.parts), self._world_size)
        return RankPayload(manifest.files, load_items(self.store, manifest, own_parts).items)

    def wait_settled(self) -> None:
        """Waits until the previous save is settled; the coordinator enforces its deadline."""
        with self._changed:
            self._changed.wait_for(lambda: not self._written and not self._held)

    def from_arena(self, name: str, places: list[Place], buffer: memoryview, describe: bool) -> RankPayload:
        """Writes a snapshot. `describe`: the file also contains its items, for a manifest that does not."""
        return self._write(name, parts.arena_blocks(buffer, places), buffer, describe)

    def from_store(self, name: str, store: Store, part: RankPayload, describe: bool) -> RankPayload:
        """Copies `part` of a save from another tier."""
        return self._write(name, parts.stored_blocks(store, part), None, describe)

    def _write(self, name: str, blocks: Iterator[Block], base: memoryview | None, describe: bool) -> RankPayload:
        key = f"{name}/rank-{self._rank:05d}.bin"
        writer = PayloadWriter(key, self.tier.compression, self._known)
        pieces = writer.pieces(blocks, base)
        if describe:
            pieces = chain(pieces, writer.description())
        first = next(pieces, None)  # None: everything is stored already
        if first is not None:
            self.store.write(key, chain([first], pieces))
        return writer.part()

    def add_pending(self, name: str, part: RankPayload) -> None:
        """Records a written save that the coordinator will settle; it may have failed on another rank already."""
        with self._changed:
            if name not in self._failed:
                self._written[name] = part

    def settle(self, name: str, committed: bool) -> None:
        with self._changed:
            part = self._written.pop(name, None)
            if part is None:
                self._failed.add(name)
            if not committed:
                self._known = {}  # unknown state: the next save references nothing
            elif part is not None and self._incremental:
                self._known = {
                    (item.name, item.offsets): [(part.files[segment.file], segment) for segment in item.segments]
                    for item in part.items
                }
            self._changed.notify_all()
