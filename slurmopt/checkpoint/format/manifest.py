"""Manifest: what a checkpoint contains and where each byte of it is stored; one JSON file without pickles.

format        2, or 1, which has no checksums of compressed bytes, or 3, which keeps the items elsewhere (see below); a
              newer one is refused
step, attempt, unique, time, world_size, metrics
tensors       name → dtype, shape
paths         name → the keys that lead to it in the nested state
files         [key, encoding, bytes]: payload files of this checkpoint, and of earlier ones for what has not changed
items         [name, offsets, sizes, segments]: a tensor or a part of one (offsets and sizes in elements), or an
              object (offsets and sizes null), in pieces of up to 8 MiB
segments      [file, offset, stored bytes, raw bytes, xxh3_128 of the raw bytes, xxh3_128 of the stored bytes (null
              where they are the raw ones)]

In a checkpoint of many items (format 3) `items` is empty: each rank's are at the end of its payload file (see `index`),
so that no rank reads those of all others.

parts         [files, offset, bytes, xxh3_128]: for each rank which of the files its items lie in, and where in the
              first of them its items are described
spread        [name → layout, layouts, object → part]; a layout says where the parts of a tensor are described:
              [offsets, sizes, part]
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import xxhash

from slurmopt.checkpoint.format.ledger import Commit, checkpoint_name
from slurmopt.errors import CheckpointError

FORMAT = 3
INLINE_FORMAT = 2
"""The format of a manifest that contains the items, which older versions can read too."""
SEGMENT_BYTES = 8 << 20


class Damaged(CheckpointError):
    """Data that differs from what was saved."""


class File(NamedTuple):
    """A payload file: its key on the tier, how it is compressed (None or zstd), its length in bytes."""

    key: str
    encoding: str | None
    bytes: int


class Segment(NamedTuple):
    """Up to 8 MiB of an item. `file` is an index into the manifest's files."""

    file: int
    offset: int
    stored: int
    raw: int
    xxh3: str
    stored_xxh3: str | None = None
    """The checksum of compressed data, of which some bits may change without an effect on the decompressed data."""


class Item(NamedTuple):
    """A tensor, a part of one, or an object (offsets and sizes are None)."""

    name: str
    offsets: tuple[int, ...] | None
    sizes: tuple[int, ...] | None
    segments: list[Segment]

    @property
    def bytes(self) -> int:
        return sum(segment.raw for segment in self.segments)


class Index(NamedTuple):
    """The place of one rank's item description: `stored` bytes at `offset` of the first of `files`, which are indices
    into the manifest's files. The items' segments refer to `files`."""

    files: tuple[int, ...]
    offset: int
    stored: int
    xxh3: str


class Held(NamedTuple):
    """A part of a tensor, and the rank that has written it."""

    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    part: int


class Spread(NamedTuple):
    """Which part describes which items. Tensors with the same division share a layout."""

    tensors: dict[str, int]
    layouts: list[list[Held]]
    objects: dict[str, int]


@dataclass
class Manifest:
    """One checkpoint on one tier."""

    step: int
    attempt: int
    unique: str
    time: float
    world_size: int
    tensors: dict[str, tuple[str, tuple[int, ...]]]
    files: list[File]
    items: list[Item]
    paths: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    format: int = INLINE_FORMAT
    parts: list[Index] = field(default_factory=list)
    spread: Spread | None = None

    @property
    def name(self) -> str:
        return checkpoint_name(self.step, self.unique)

    @property
    def key(self) -> str:
        return f"{self.name}/manifest.json"

    @property
    def references(self) -> tuple[str, ...]:
        """The earlier checkpoints whose files this one needs."""
        return tuple(sorted({folder for file in self.files if (folder := folder_of(file.key)) != self.name}))

    @property
    def object_names(self) -> set[str]:
        """The names of the items that are not tensors."""
        names = {item.name for item in self.items if item.offsets is None}
        return names if self.spread is None else set(self.spread.objects)

    def lacking(self) -> str | None:
        """The name of an incomplete tensor; None where all are complete."""
        elements = dict.fromkeys(self.tensors, 0)
        for item in self.items:
            if item.sizes is not None:
                elements[item.name] += math.prod(item.sizes)
        return next((name for name, (_, shape) in self.tensors.items() if elements[name] != math.prod(shape)), None)

    def encode(self) -> bytes:
        values = vars(self) if self.spread is not None else _inline(vars(self))
        return json.dumps(values, separators=(",", ":")).encode()

    def commit(self, encoded: bytes, sizes: tuple[int, int] | None = None) -> Commit:
        """The ledger's record of this checkpoint. `sizes`: the bytes written and those of the state, where the manifest
        does not contain the items."""
        written, held = sizes or self._sizes()
        return Commit(
            step=self.step,
            unique=self.unique,
            attempt=self.attempt,
            time=self.time,
            manifest=self.key,
            manifest_xxh3=xxhash.xxh3_128_hexdigest(encoded),
            bytes=written,
            total_bytes=held,
            world_size=self.world_size,
            references=self.references,
            metrics=self.metrics,
        )

    def _sizes(self) -> tuple[int, int]:
        own = {index for index, file in enumerate(self.files) if folder_of(file.key) == self.name}
        segments = [segment for item in self.items for segment in item.segments]
        written = sum(segment.stored for segment in segments if segment.file in own)
        return written, sum(segment.raw for segment in segments)


def _inline(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in ("parts", "spread")}


def folder_of(key: str) -> str:
    """The checkpoint that contains a file."""
    return key.rpartition("/")[0]
