"""One tier as one rank's writer sees it: writes this rank's part there, and knows what lies there already."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import chain
from typing import Any

from slurmopt.checkpoint import part as parts
from slurmopt.checkpoint.ledger import Commit
from slurmopt.checkpoint.manifest import File, Segment, decode
from slurmopt.checkpoint.part import Address, Block, Part, PartWriter, Place
from slurmopt.checkpoint.tiers import Tier
from slurmopt.storage.store import Store


class Target:
    """Writes one save after the other: what the next may refer to is known once the one before it is settled."""

    def __init__(self, tier: Tier, rank: int, world_size: int, incremental: bool) -> None:
        self.tier, self.store = tier, tier.store()
        self._rank, self._world_size, self._incremental = rank, world_size, incremental
        self._known: dict[Address, list[tuple[File, Segment]]] = {}
        self._written: dict[str, Part] = {}
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
            self._known = parts.known_segments(decode(self.store.get(record.manifest), record))

    def part_of(self, commit: dict[str, Any]) -> Part:
        """This rank's share of a checkpoint that lies here, whoever wrote it."""
        record = Commit(**{**commit, "references": tuple(commit["references"])})
        manifest = decode(self.store.get(record.manifest), record)
        return Part(manifest.files, manifest.items[self._rank :: self._world_size])

    def wait_settled(self) -> None:
        """Until the save before is settled; the coordinator's deadline sees to it that it is."""
        with self._changed:
            self._changed.wait_for(lambda: not self._written and not self._held)

    def from_arena(self, name: str, places: list[Place], buffer: memoryview) -> Part:
        return self._write(name, parts.arena_blocks(buffer, places), buffer)

    def from_store(self, name: str, store: Store, part: Part) -> Part:
        return self._write(name, parts.stored_blocks(store, part), None)

    def _write(self, name: str, blocks: Iterator[Block], base: memoryview | None) -> Part:
        key = f"{name}/rank-{self._rank:05d}.bin"
        writer = PartWriter(key, self.tier.compression, self._known)
        pieces = writer.pieces(blocks, base)
        first = next(pieces, None)  # None: everything is there already
        if first is not None:
            self.store.write(key, chain([first], pieces))
        return writer.part()

    def under_way(self, name: str, part: Part) -> None:
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
