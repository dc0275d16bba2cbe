"""What a checkpoint holds and where each byte of it lies: one JSON file, no pickles.

format        2, or 1, which has no checksums of compressed bytes; a newer one is refused
step, attempt, unique, time, world_size, metrics
tensors       name → dtype, shape
paths         name → the keys that lead to it in the nested state
files         [key, encoding, bytes]: payload files of this checkpoint, and of earlier ones for what has not changed
items         [name, offsets, sizes, segments]: a tensor or a part of one (offsets and sizes in elements), or an
              object (offsets and sizes null), in pieces of up to 8 MiB
segments      [file, offset, stored bytes, raw bytes, xxh3_128 of the raw bytes, xxh3_128 of the stored bytes (null
              where they are the raw ones)]
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import xxhash

from slurmopt.checkpoint.ledger import Commit, checkpoint_name, whole
from slurmopt.errors import CheckpointError

FORMAT = 2
SEGMENT_BYTES = 8 << 20
_FILE = re.compile(r"step-\d{8,}/[A-Za-z0-9-]+/rank-\d{5,}\.bin")
_XXH3 = re.compile(r"[0-9a-f]{32}")
_ZSTD_RATIO = 1 << 16
"""zstd makes at most 128 KiB of 4 bytes."""
_OBJECTS_BYTES, _OBJECTS_RATIO = 1 << 30, 64
_WIDEST, _DIMENSIONS = 32, 64
"""Bytes of one element, and dimensions of a tensor, at most."""


class Damaged(CheckpointError):
    """Bytes that are not those that were saved."""


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
    """Of compressed bytes, in which some bits may change without changing what they are unpacked to."""


class Item(NamedTuple):
    """A tensor, a part of one, or an object (offsets and sizes are None)."""

    name: str
    offsets: tuple[int, ...] | None
    sizes: tuple[int, ...] | None
    segments: list[Segment]

    @property
    def bytes(self) -> int:
        return sum(segment.raw for segment in self.segments)


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
    format: int = FORMAT

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

    def lacking(self) -> str | None:
        """A tensor of which not every element is here; None where all are whole."""
        here = dict.fromkeys(self.tensors, 0)
        for item in self.items:
            if item.sizes is not None:
                here[item.name] += math.prod(item.sizes)
        return next((name for name, (_, shape) in self.tensors.items() if here[name] != math.prod(shape)), None)

    def encode(self) -> bytes:
        return json.dumps(vars(self), separators=(",", ":")).encode()

    def commit(self, encoded: bytes) -> Commit:
        """The ledger's record of this checkpoint."""
        own = {index for index, file in enumerate(self.files) if folder_of(file.key) == self.name}
        segments = [segment for item in self.items for segment in item.segments]
        return Commit(
            step=self.step,
            unique=self.unique,
            attempt=self.attempt,
            time=self.time,
            manifest=self.key,
            manifest_xxh3=xxhash.xxh3_128_hexdigest(encoded),
            bytes=sum(segment.stored for segment in segments if segment.file in own),
            total_bytes=sum(segment.raw for segment in segments),
            world_size=self.world_size,
            references=self.references,
            metrics=self.metrics,
        )


def folder_of(key: str) -> str:
    """The checkpoint that a file lies in."""
    return key.rpartition("/")[0]


def decode(encoded: bytes, commit: Commit) -> Manifest:
    """The manifest that `commit` names. Damaged where it is another or broken, CheckpointError for a newer format."""
    if xxhash.xxh3_128_hexdigest(encoded) != commit.manifest_xxh3:
        raise Damaged(f"{commit.manifest} is not the file that was saved (checksum)")
    try:
        return _manifest(json.loads(encoded), commit)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise Damaged(f"{commit.manifest} is no manifest: {error}") from error


def _manifest(values: dict[str, Any], commit: Commit) -> Manifest:
    if not whole(values["format"]):
        raise ValueError("its format is no number")
    if not 1 <= values["format"] <= FORMAT:
        raise CheckpointError(
            f"{commit.manifest} has format {values['format']} and this slurmopt reads up to {FORMAT}; "
            "use the version that saved it, or a newer one"
        )
    manifest = Manifest(
        **{
            **values,
            "tensors": {name: (dtype, tuple(shape)) for name, (dtype, shape) in values["tensors"].items()},
            "paths": {name: tuple(path) for name, path in values["paths"].items()},
            "files": [File(*file) for file in values["files"]],
            "items": [
                Item(str(name), _sizes(offsets), _sizes(sizes), [Segment(*segment) for segment in segments])
                for name, offsets, sizes, segments in values["items"]
            ],
        }
    )
    _check(manifest, commit)
    return manifest


def _sizes(values: list[int] | None) -> tuple[int, ...] | None:
    return None if values is None else tuple(values)


def _check(manifest: Manifest, commit: Commit) -> None:
    """Whatever wrote it: no path leaves the tier, and no reader is made to take more memory than there are bytes for.

    ValueError for what is wrong.
    """
    numbers = (manifest.step, manifest.attempt, manifest.world_size)
    if not all(map(whole, numbers)) or type(manifest.time) not in (int, float) or not isinstance(manifest.unique, str):
        raise ValueError("step, attempt, world_size, time or unique is none")
    if manifest.name != commit.name:
        raise Damaged(f"{commit.manifest} is the manifest of {manifest.name}")
    for name, (dtype, shape) in manifest.tensors.items():
        if not isinstance(dtype, str) or not _is_shape(shape):
            raise ValueError(f"the tensor {name} has no type or shape")
    for file in manifest.files:
        if not isinstance(file.key, str) or not _FILE.fullmatch(file.key) or not whole(file.bytes):
            raise ValueError(f"{file.key!r} is no payload file")
        if file.encoding not in (None, "zstd"):
            raise ValueError(f"{file.key} has an unknown encoding")
    _check_items(manifest)
    if lacking := manifest.lacking():
        raise ValueError(f"the tensor {lacking} is not whole")


def _check_items(manifest: Manifest) -> None:
    used = dict.fromkeys((file.key for file in manifest.files), 0)
    seen = set()
    objects, objects_stored = 0, 0
    for item in manifest.items:
        if (item.name, item.offsets) in seen:
            raise ValueError(f"{item.name} is there twice")
        seen.add((item.name, item.offsets))
        for segment in item.segments:
            _check_segment(manifest, item, segment)
            used[manifest.files[segment.file].key] += segment.stored
        if item.offsets is not None or item.sizes is not None:
            _check_part(item, manifest.tensors[item.name][1])
        else:
            objects += item.bytes
            objects_stored += sum(segment.stored for segment in item.segments)
    if objects > _OBJECTS_BYTES + _OBJECTS_RATIO * objects_stored:
        raise ValueError(f"its objects have {objects:,} bytes")
    for file in manifest.files:
        if used[file.key] > 2 * file.bytes:
            raise ValueError(f"{file.key} is used again and again")


def _check_segment(manifest: Manifest, item: Item, segment: Segment) -> None:
    files = manifest.files
    if not all(map(whole, segment[:4])) or not _is_checksum(segment.xxh3):
        raise ValueError(f"a segment of {item.name} is none")
    fits = segment.file < len(files) and segment.offset + segment.stored <= files[segment.file].bytes
    if not fits or not 0 < segment.raw <= SEGMENT_BYTES or not 0 < segment.stored <= 2 * SEGMENT_BYTES:
        raise ValueError(f"a segment of {item.name} is out of bounds")
    most = segment.stored * _ZSTD_RATIO
    if segment.raw > most if files[segment.file].encoding else segment.raw != segment.stored:
        raise ValueError(f"a segment of {item.name} has another length than its bytes")
    compressed = files[segment.file].encoding is not None and manifest.format > 1
    if not _is_checksum(segment.stored_xxh3) if compressed else segment.stored_xxh3 is not None:
        raise ValueError(f"a segment of {item.name} has no checksum of its stored bytes, or needs none")


def _is_checksum(value: object) -> bool:
    return isinstance(value, str) and _XXH3.fullmatch(value) is not None


def _check_part(item: Item, shape: tuple[int, ...]) -> None:
    """A tensor's elements all have the same width, whatever the type is called."""
    offsets, sizes = item.offsets, item.sizes
    if not _is_shape(offsets) or not _is_shape(sizes) or not len(offsets or ()) == len(sizes or ()) == len(shape):
        raise ValueError(f"a part of {item.name} has no place in it")
    if any(at + size > end for at, size, end in zip(offsets or (), sizes or (), shape, strict=True)):
        raise ValueError(f"a part of {item.name} lies outside of it")
    elements, length = math.prod(sizes or ()), item.bytes
    if (length % elements or not elements <= length <= _WIDEST * elements) if elements else length:
        raise ValueError(f"a part of {item.name} has {length:,} bytes for {elements:,} elements")


def _is_shape(values: object) -> bool:
    return isinstance(values, tuple) and len(values) <= _DIMENSIONS and all(map(whole, values))
