"""Writes one rank's payload: divides it into segments, hashes and compresses them, references unchanged ones.

Runs in the writer process, so without torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import xxhash

from slurmopt.checkpoint.format.index import describe_items
from slurmopt.checkpoint.format.manifest import SEGMENT_BYTES, File, Index, Item, Manifest, Segment
from slurmopt.checkpoint.format.segments import Extent, extents, read_extent
from slurmopt.errors import CheckpointError
from slurmopt.storage.direct_io import ALIGNMENT, address
from slurmopt.storage.memory import aligned, staging
from slurmopt.storage.store import Store

_RUN_BYTES = 16 << 20
"""Bytes of the largest piece that is passed to a store."""

Address = tuple[str, tuple[int, ...] | None]
"""An item's name and offsets, which are equal in every save of the same state."""


class Place(NamedTuple):
    """The place of an item in an arena's buffer: large ones at multiples of 4096, small ones packed."""

    name: str
    offsets: tuple[int, ...] | None
    sizes: tuple[int, ...] | None
    start: int
    length: int


class Block(NamedTuple):
    """A piece of memory and the segments in it: (place, first byte within the piece, length)."""

    memory: memoryview
    segments: list[tuple[Place, int, int]]


@dataclass
class RankPayload:
    """One rank's part of a checkpoint's manifest."""

    files: list[File] = field(default_factory=list)
    items: list[Item] = field(default_factory=list)
    index: Index | None = None
    """Where the items are described in the payload file, for a manifest that does not contain them."""

    def as_json(self) -> dict[str, Any]:
        """The message to the coordinator, for a manifest that contains the items."""
        return {"files": self.files, "items": self.items}

    def summary(self) -> dict[str, Any]:
        """The message to the coordinator for a manifest that does not contain the items: only their summary."""
        assert self.index is not None
        tensors = [item for item in self.items if item.sizes is not None]
        own = {place for place, file in enumerate(self.files) if file.key == self.files[self.index.files[0]].key}
        return {
            "files": self.files,
            "place": self.index,
            "objects": [item.name for item in self.items if item.sizes is None],
            "elements": sum(math.prod(item.sizes or ()) for item in tensors),
            "written": sum(s.stored for item in self.items for s in item.segments if s.file in own),
            "held": sum(item.bytes for item in self.items),
        }


def arena_blocks(buffer: memoryview, places: list[Place]) -> Iterator[Block]:
    """The buffer's items in order, with adjacent small ones in one block."""
    small: list[Place] = []
    for place in sorted(places, key=lambda place: place.start):
        if place.length >= ALIGNMENT:
            yield from _small_block(buffer, small)
            small = []
            yield from _large_blocks(buffer, place)
        elif place.length:
            small.append(place)
            if place.start + place.length - small[0].start >= SEGMENT_BYTES:
                yield from _small_block(buffer, small)
                small = []
    yield from _small_block(buffer, small)


def _large_blocks(buffer: memoryview, place: Place) -> Iterator[Block]:
    for start in range(place.start, place.start + place.length, SEGMENT_BYTES):
        length = min(SEGMENT_BYTES, place.start + place.length - start)
        yield Block(buffer[start : start + aligned(length)], [(place, 0, length)])


def _small_block(buffer: memoryview, places: list[Place]) -> Iterator[Block]:
    if places:
        first = places[0].start // ALIGNMENT * ALIGNMENT
        last = aligned(places[-1].start + places[-1].length)
        yield Block(buffer[first:last], [(place, place.start - first, place.length) for place in places])


class PayloadWriter:
    """Turns blocks into the pieces of one payload file, and records the segments."""

    def __init__(self, key: str, encoding: str | None, before: dict[Address, list[tuple[File, Segment]]]) -> None:
        self._key, self._before = key, before
        self._compress = _compressor() if encoding == "zstd" else None
        self._encoding = encoding
        self._files: dict[str, File] = {}
        self._own = self._index(File(key, encoding, 0))
        self._items: dict[Address, Item] = {}
        self._starts: dict[Address, list[int]] = {}
        self._end = 0
        self._index_at: Index | None = None

    def pieces(self, blocks: Iterator[Block], base: memoryview | None = None) -> Iterator[memoryview]:
        """The new data of `blocks` in pieces of up to 16 MiB; adjacent pieces within `base` are joined."""
        waiting: memoryview | None = None
        for block in blocks:
            if not (piece := self._take(block)):
                continue
            joined = None if waiting is None or base is None else _joined(base, waiting, piece)
            if joined is None and waiting is not None:
                yield waiting
            waiting = joined or piece
        if waiting is not None:
            yield waiting

    def description(self) -> Iterator[memoryview]:
        """The description of what `pieces` has yielded, as the last piece of the file."""
        memory, length, checksum = describe_items(self._ordered())
        self._index_at = Index((), self._end, length, checksum)
        self._end += len(memory)
        yield memory

    def part(self) -> RankPayload:
        self._files[self._key] = File(self._key, self._encoding, self._end)
        index = self._index_at and self._index_at._replace(files=tuple(range(len(self._files))))
        return RankPayload(list(self._files.values()), self._ordered(), index)

    def _ordered(self) -> list[Item]:
        return [_in_order(item, self._starts[address]) for address, item in self._items.items()]

    def _take(self, block: Block) -> memoryview | None:
        """The data to write for a block; None where it is stored already."""
        sums = [xxhash.xxh3_128_hexdigest(block.memory[at : at + length]) for _, at, length in block.segments]
        if len(sums) == 1 and (known := self._known(block.segments[0], sums[0])):
            file, segment = known
            self._add(block.segments[0][0], segment._replace(file=self._index(file)))
            return None
        if self._compress is not None:
            return self._compressed(block, sums)
        for (place, at, length), checksum in zip(block.segments, sums, strict=True):
            self._add(place, Segment(self._own, self._end + at, length, length, checksum))
        self._end += len(block.memory)
        return block.memory

    def _compressed(self, block: Block, sums: list[str]) -> memoryview:
        assert self._compress is not None
        stored = b""
        for (place, at, length), checksum in zip(block.segments, sums, strict=True):
            packed = self._compress(block.memory[at : at + length])
            stored_checksum = xxhash.xxh3_128_hexdigest(packed)
            segment = Segment(self._own, self._end + len(stored), len(packed), length, checksum, stored_checksum)
            self._add(place, segment)
            stored += packed
        self._end += len(stored)
        return memoryview(stored)

    def _known(self, segment: tuple[Place, int, int], checksum: str) -> tuple[File, Segment] | None:
        place, _, length = segment
        address: Address = (place.name, place.offsets)
        index = len(self._items[address].segments) if address in self._items else 0
        earlier = self._before.get(address, [])
        if index >= len(earlier):
            return None
        file, stored = earlier[index]
        is_verifiable = file.encoding is None or stored.stored_xxh3 is not None  # format 1 had no such checksum
        return earlier[index] if is_verifiable and stored.xxh3 == checksum and stored.raw == length else None

    def _add(self, place: Place, segment: Segment) -> None:
        address: Address = (place.name, place.offsets)
        self._items.setdefault(address, Item(place.name, place.offsets, place.sizes, [])).segments.append(segment)
        self._starts.setdefault(address, []).append(place.start)

    def _index(self, file: File) -> int:
        self._files.setdefault(file.key, file)
        return list(self._files).index(file.key)


def _in_order(item: Item, starts: list[int]) -> Item:
    """Sorts the segments of an item, which arrive in the order of files in storage."""
    ordered = sorted(zip(starts, item.segments, strict=True), key=lambda each: each[0])
    return item._replace(segments=[segment for _, segment in ordered])


def _joined(base: memoryview, one: memoryview, other: memoryview) -> memoryview | None:
    """Both as one view, where they are adjacent in `base`."""
    if len(one) + len(other) > _RUN_BYTES or one.readonly or address(one) + len(one) != address(other):
        return None
    start = address(one) - address(base)
    return base[start : start + len(one) + len(other)]


def _compressor() -> Callable[[memoryview], bytes]:
    try:
        import zstandard
    except ImportError as error:
        raise CheckpointError("compression: zstd needs the package zstandard: pip install zstandard") from error
    return zstandard.ZstdCompressor(level=1).compress


def known_segments(manifest: Manifest | None) -> dict[Address, list[tuple[File, Segment]]]:
    """The segments of an earlier checkpoint, which a `PayloadWriter` may reference."""
    if manifest is None:
        return {}
    return {
        (item.name, item.offsets): [(manifest.files[segment.file], segment) for segment in item.segments]
        for item in manifest.items
    }


def stored_blocks(store: Store, part: RankPayload) -> Iterator[Block]:
    """Reads and verifies a part from `store`, to copy it to another tier."""
    wanted = []
    for item in part.items:
        start = 0
        for segment in item.segments:
            place = Place(item.name, item.offsets, item.sizes, start, item.bytes)
            wanted.append((place, part.files[segment.file], segment))
            start += segment.raw
    for extent in extents(wanted):
        memory = staging(extent.length)[: extent.length]
        raws = list(read_extent(store, extent, memory))
        if extent.file.encoding is not None:
            for place, _, raw in raws:
                yield Block(raw, [(place, 0, len(raw))])
            continue
        yield from _blocks_of(extent, memory)


def _blocks_of(extent: Extent[Place], memory: memoryview) -> Iterator[Block]:
    """Large segments in separate blocks, since they may be stored already; adjacent small ones in one block."""
    small: list[tuple[Place, Segment]] = []
    for place, segment in [*extent.segments, (None, None)]:
        large = segment is not None and segment.stored >= ALIGNMENT and segment.offset % ALIGNMENT == 0
        if small and (large or segment is None):
            first = small[0][1].offset // ALIGNMENT * ALIGNMENT
            last = min(aligned(small[-1][1].offset + small[-1][1].stored), extent.start + extent.length)
            inside = [(of, piece.offset - first, piece.stored) for of, piece in small]
            yield Block(memory[first - extent.start : last - extent.start], inside)
            small = []
        if large and place is not None and segment is not None:
            start = segment.offset - extent.start
            yield Block(memory[start : start + aligned(segment.stored)], [(place, 0, segment.stored)])
        elif place is not None and segment is not None:
            small.append((place, segment))


def from_json(values: dict[str, Any]) -> RankPayload:
    items = [
        Item(
            name,
            None if offsets is None else tuple(offsets),
            None if sizes is None else tuple(sizes),
            [Segment(*segment) for segment in segments],
        )
        for name, offsets, sizes, segments in values["items"]
    ]
    return RankPayload([File(*file) for file in values["files"]], items)


def merged(parts: list[RankPayload]) -> RankPayload:
    """Merges the parts of all ranks, in rank order."""
    files: dict[File, int] = {}
    items = []
    for part in parts:
        for item in part.items:
            places = [files.setdefault(part.files[segment.file], len(files)) for segment in item.segments]
            moved = [s._replace(file=place) for s, place in zip(item.segments, places, strict=True)]
            items.append(item._replace(segments=moved))
    return RankPayload(list(files), items)
