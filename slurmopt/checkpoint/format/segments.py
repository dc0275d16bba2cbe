"""Reads segments, adjacent ones together, and verifies each before it is used."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

import xxhash

from slurmopt.checkpoint.format.manifest import Damaged, File, Segment
from slurmopt.errors import CheckpointError, StorageError
from slurmopt.storage.direct_io import ALIGNMENT
from slurmopt.storage.store import Store

EXTENT_BYTES = 8 << 20
"""The maximum of bytes of one read, without the padding for direct I/O. Each reader allocates as much, and the first
access to that memory takes longer than the copy out of it."""
_GAP_BYTES = 64 << 10
Token = TypeVar("Token")


@dataclass
class Extent(Generic[Token]):
    """A range of one file with its `segments`, each with a token of the caller."""

    file: File
    start: int
    length: int
    segments: list[tuple[Token, Segment]]


def extents(wanted: Iterable[tuple[Token, File, Segment]]) -> list[Extent[Token]]:
    """The ranges to read for `wanted`, by file and offset, aligned for direct I/O."""
    ranges: list[Extent[Token]] = []
    for token, file, segment in sorted(wanted, key=lambda each: (each[1].key, each[2].offset)):
        start = segment.offset // ALIGNMENT * ALIGNMENT
        end = min(-(-(segment.offset + segment.stored) // ALIGNMENT) * ALIGNMENT, file.bytes)
        last = ranges[-1] if ranges else None
        if last and last.file.key == file.key and _fits(last, start, end):
            last.length = max(last.length, end - last.start)
            last.segments.append((token, segment))
        else:
            ranges.append(Extent(file, start, end - start, [(token, segment)]))
    return ranges


def _fits(last: Extent[Token], start: int, end: int) -> bool:
    return start - (last.start + last.length) <= _GAP_BYTES and end - last.start <= EXTENT_BYTES


def read_extent(store: Store, extent: Extent[Token], memory: memoryview) -> Iterator[tuple[Token, Segment, memoryview]]:
    """Reads into `memory` (at least `extent.length` bytes) and yields each segment's raw bytes, verified.

    Raises Damaged for corrupt data, FileNotFoundError for a missing file.
    """
    fill(store, extent, memory[: extent.length])
    for token, segment in extent.segments:
        at = segment.offset - extent.start
        stored = memory[at : at + segment.stored]
        if segment.stored_xxh3 is not None:
            _verify(stored, segment.stored, segment.stored_xxh3, extent.file, segment)
        raw = _decoded(stored, extent.file, segment)
        _verify(raw, segment.raw, segment.xxh3, extent.file, segment)
        yield token, segment, raw


def _verify(data: memoryview, length: int, checksum: str, file: File, segment: Segment) -> None:
    if len(data) != length or xxhash.xxh3_128_hexdigest(data) != checksum:
        raise Damaged(f"{file.key} is damaged at byte {segment.offset:,} (checksum)")


def fill(store: Store, extent: Extent[Token], memory: memoryview) -> None:
    """Reads a range. Raises Damaged where its file is too short, FileNotFoundError where it is missing."""
    try:
        store.read_into(extent.file.key, extent.start, memory)
    except StorageError as error:
        length = store.size(extent.file.key)
        if length < extent.file.bytes:  # storage works, but the file is truncated
            raise Damaged(f"{extent.file.key} has {length:,} bytes instead of {extent.file.bytes:,}") from error
        raise


def is_there(store: Store, file: File) -> bool:
    """Whether a payload file exists on `store` with its full length."""
    try:
        return store.size(file.key) == file.bytes
    except (StorageError, OSError):  # an inaccessible file can be neither copied nor referenced
        return False


def _decoded(stored: memoryview, file: File, segment: Segment) -> memoryview:
    if file.encoding is None:
        return stored
    try:
        import zstandard
    except ImportError as error:
        raise CheckpointError(
            f"{file.key} is compressed: that needs the package zstandard: pip install zstandard"
        ) from error
    try:
        if zstandard.frame_content_size(stored) != segment.raw:  # checked before the memory is allocated
            raise Damaged(f"{file.key} is damaged at byte {segment.offset:,} (zstd: another length)")
        raw = zstandard.ZstdDecompressor().decompress(stored, max_output_size=segment.raw)
        return memoryview(bytearray(raw))  # torch warns of read-only memory
    except zstandard.ZstdError as error:
        raise Damaged(f"{file.key} is damaged at byte {segment.offset:,} (zstd: {error})") from error
