"""One tier as one rank's writer sees it: writes this rank's part there, and knows what lies there already."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import chain
from typing import Any

from slurmopt.checkpoint.format import rank_payload as parts
from slurmopt.checkpoint.format.index import opened, taken_on
from slurmopt.checkpoint.format.ledger import Commit
from slurmopt.checkpoint.format.manifest import File, Manifest, Segment
from slurmopt.checkpoint.format.manifest_reader import decode
from slurmopt.checkpoint.format.rank_payload import Address, Block, PartWriter, Place, RankPayload
from slurmopt.checkpoint.format.segments import is_there
from slurmopt.checkpoint.tiers import Tier
from slurmopt.storage.store import Store

Known = dict[Address, list[tuple[File, Segment]]]
"""What lies on a tier, by item."""
_ALL_BYTES = 32 << 20


class Target:
    """Writes one save after the other: what the next may refer to is known once the one before it is settled."""

    def __init__(self, tier: Tier, rank: int, world_size: int, incremental: bool) -> None:
        self.tier, self.store = tier, tier.store()
        self._rank, self._world_size, self._incremental = rank, world_size, incremental
        self._known: Known = {}
        self._written: dict[str, RankPayload] = {}
        self._failed: set[str] = set()
        self._changed = threading.Condition()
        self._held = False

    def hold(self) -> None:
        """The next save waits for `let_go`."""
        with self._changed:
            self._held = True

    def let_go(self) -> None:
        with self._changed:
            self._held = False
            self._changed.notify_all()

    def start_from(self, commit: dict[str, Any]) -> None:
        """What this checkpoint holds has just been read and verified, so it may be referred to."""
        if self._incremental:
            record = Commit(**{**commit, "references": tuple(commit["references"])})
            manifest = decode(self.store.get(record.manifest), record)
            self._known = self._on_this_node(
                parts.known_segments(opened(self.store, manifest, self._concerned(manifest)))
            )

    def _concerned(self, manifest: Manifest) -> list[int]:
        """The parts that the next save may refer to. All of them where they are small: another rank may write now what
        this part describes. Where they are large, this rank's own."""
        if sum(index.stored for index in manifest.parts) <= _ALL_BYTES:
            return list(range(len(manifest.parts)))
        return [self._rank] if len(manifest.parts) == self._world_size else []

    def _on_this_node(self, known: Known) -> Known:
        """A node's own disk may lack what other nodes wrote; the way to the next tier needs what is referred to."""
        if not self.tier.node_local:
            return known
        there = {file for pieces in known.values() for file, _ in pieces}
        there = {file for file in there if is_there(self.store, file)}
        return {address: pieces for address, pieces in known.items() if all(file in there for file, _ in pieces)}

    def part_of(self, commit: dict[str, Any]) -> RankPayload:
        """This rank's share of a checkpoint that lies here, whoever wrote it."""
        record = Commit(**{**commit, "references": tuple(commit["references"])})
        manifest = decode(self.store.get(record.manifest), record)
        if manifest.spread is None and self.tier.node_local:
            return RankPayload(manifest.files, taken_on(manifest, self._rank, self._world_size, manifest.items))
        if manifest.spread is None:
            return RankPayload(manifest.files, manifest.items[self._rank :: self._world_size])
        mine = range(self._rank, len(manifest.parts), self._world_size)
        return RankPayload(manifest.files, opened(self.store, manifest, mine).items)

    def wait_settled(self) -> None:
        """Until the save before is settled; the coordinator's deadline sees to it that it is."""
        with self._changed:
            self._changed.wait_for(lambda: not self._written and not self._held)

    def from_arena(self, name: str, places: list[Place], buffer: memoryview, describe: bool) -> RankPayload:
        """`describe`: the file gets a description of what is in it, for a manifest that does not have the items."""
        return self._write(name, parts.arena_blocks(buffer, places), buffer, describe)

    def from_store(self, name: str, store: Store, part: RankPayload, describe: bool) -> RankPayload:
        return self._write(name, parts.stored_blocks(store, part), None, describe)

    def _write(self, name: str, blocks: Iterator[Block], base: memoryview | None, describe: bool) -> RankPayload:
        key = f"{name}/rank-{self._rank:05d}.bin"
        writer = PartWriter(key, self.tier.compression, self._known)
        pieces = writer.pieces(blocks, base)
        if describe:
            pieces = chain(pieces, writer.description())
        first = next(pieces, None)  # None: everything is there already
        if first is not None:
            self.store.write(key, chain([first], pieces))
        return writer.part()

    def under_way(self, name: str, part: RankPayload) -> None:
        """Written, and to be settled by the coordinator; another rank may have failed it already."""
        with self._changed:
            if name not in self._failed:
                self._written[name] = part

    def settle(self, name: str, committed: bool) -> None:
        with self._changed:
            part = self._written.pop(name, None)
            if part is None:
                self._failed.add(name)
            if not committed:
                self._known = {}  # nobody knows what stands now, so the next save refers to nothing
            elif part is not None and self._incremental:
                self._known = {
                    (item.name, item.offsets): [(part.files[segment.file], segment) for segment in item.segments]
                    for item in part.items
                }
            self._changed.notify_all()
