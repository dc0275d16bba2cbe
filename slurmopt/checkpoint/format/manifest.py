"""What a checkpoint holds and where each byte of it lies: one JSON file, no pickles.

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

A checkpoint of many items (format 3) keeps them out of this file, so that no rank reads those of all others: each
rank's are at the end of its payload file (see `index`), and `items` is empty.

parts         [files, offset, bytes, xxh3_128]: for each rank which of the files its items lie in, and where in the
              first of them its items are described
spread        [name → layout, layouts, object → part]; a layout says where the parts of a tensor are described:
              [offsets, sizes, part]
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import xxhash

from slurmopt.checkpoint.format.ledger import Commit, checkpoint_name, is_count
from slurmopt.errors import CheckpointError

FORMAT = 3
INLINE_FORMAT = 2
"""Of a manifest that has the items: what reads this format alone can still read it."""
SEGMENT_BYTES = 8 << 20
_FILE = re.compile(r"step-\d{8,}/[A-Za-z0-9-]+/rank-\d{5,}\.bin")
_XXH3 = re.compile(r"[0-9a-f]{32}")
_ZSTD_RATIO = 1 << 16
"""zstd makes at most 128 KiB of 4 bytes."""
_INDEX_BYTES = 1 << 30
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


class Index(NamedTuple):
    """Where one rank's items are described: `stored` bytes at `offset` of the first of `files`, which are indices into
    the manifest's files. The items' segments count within `files`."""

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
    """Which part describes what. Tensors that are divided alike share a layout."""

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
        """What it has besides tensors."""
        here = {item.name for item in self.items if item.offsets is None}
        return here if self.spread is None else set(self.spread.objects)

    def lacking(self) -> str | None:
        """A tensor of which not every element is here; None where all are whole."""
        here = dict.fromkeys(self.tensors, 0)
        for item in self.items:
            if item.sizes is not None:
                here[item.name] += math.prod(item.sizes)
        return next((name for name, (_, shape) in self.tensors.items() if here[name] != math.prod(shape)), None)

    def encode(self) -> bytes:
        values = vars(self) if self.spread is not None else _inline(vars(self))
        return json.dumps(values, separators=(",", ":")).encode()

    def commit(self, encoded: bytes, sizes: tuple[int, int] | None = None) -> Commit:
        """The ledger's record of this checkpoint. `sizes`, in bytes, where the items are not here: what was written for
        it, and the state it holds."""
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
    if not is_count(values["format"]):
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
            "items": items_of(values["items"]),
            "parts": [Index(tuple(files), *rest) for files, *rest in values.get("parts", [])],
            "spread": _spread(values.get("spread")),
        }
    )
    _check(manifest, commit)
    return manifest


def items_of(values: list[Any]) -> list[Item]:
    """Items as JSON has them."""
    return [
        Item(str(name), _sizes(offsets), _sizes(sizes), [Segment(*segment) for segment in segments])
        for name, offsets, sizes, segments in values
    ]


def _spread(values: list[Any] | None) -> Spread | None:
    if values is None:
        return None
    tensors, layouts, objects = values
    held = [[Held(tuple(offsets), tuple(sizes), part) for offsets, sizes, part in layout] for layout in layouts]
    return Spread(dict(tensors), held, dict(objects))


def _sizes(values: list[int] | None) -> tuple[int, ...] | None:
    return None if values is None else tuple(values)


def _check(manifest: Manifest, commit: Commit) -> None:
    """Whatever wrote it: no path leaves the tier, and no reader is made to take more memory than there are bytes for.

    ValueError for what is wrong.
    """
    numbers = (manifest.step, manifest.attempt, manifest.world_size)
    if (
        not all(map(is_count, numbers))
        or type(manifest.time) not in (int, float)
        or not isinstance(manifest.unique, str)
    ):
        raise ValueError("step, attempt, world_size, time or unique is none")
    if manifest.name != commit.name:
        raise Damaged(f"{commit.manifest} is the manifest of {manifest.name}")
    for name, (dtype, shape) in manifest.tensors.items():
        if not isinstance(dtype, str) or not _is_shape(shape):
            raise ValueError(f"the tensor {name} has no type or shape")
    for file in manifest.files:
        if not isinstance(file.key, str) or not _FILE.fullmatch(file.key) or not is_count(file.bytes):
            raise ValueError(f"{file.key!r} is no payload file")
        if file.encoding not in (None, "zstd"):
            raise ValueError(f"{file.key} has an unknown encoding")
    if manifest.spread is not None:
        _check_spread(manifest, manifest.spread)
        return
    check_items(manifest)
    if lacking := manifest.lacking():
        raise ValueError(f"the tensor {lacking} is not whole")


def _check_spread(manifest: Manifest, spread: Spread) -> None:
    if manifest.items or spread.tensors.keys() != manifest.tensors.keys():
        raise ValueError("its parts hold other tensors than it has")
    for number, index in enumerate(manifest.parts):
        if not index.files or not all(is_count(each) and each < len(manifest.files) for each in index.files):
            raise ValueError(f"part {number} lies in no file")
        if not is_count(index.offset) or not is_count(index.stored) or not _is_checksum(index.xxh3):
            raise ValueError(f"part {number} has no place in its file")
        if index.stored > _INDEX_BYTES or index.offset + index.stored > manifest.files[index.files[0]].bytes:
            raise ValueError(f"part {number} is out of bounds")
    whole_ones: set[tuple[int, tuple[int, ...]]] = set()
    for name, (_, shape) in manifest.tensors.items():
        layout = spread.tensors[name]
        if (layout, shape) in whole_ones:
            continue
        if not is_count(layout) or layout >= len(spread.layouts):
            raise ValueError(f"the tensor {name} has no layout")
        _check_layout(name, shape, spread.layouts[layout], len(manifest.parts))
        whole_ones.add((layout, shape))
    if not all(is_count(part) and part < len(manifest.parts) for part in spread.objects.values()):
        raise ValueError("an object of it is in no part")


def _check_layout(name: str, shape: tuple[int, ...], layout: list[Held], parts: int) -> None:
    for held in layout:
        _check_region(name, held.offsets, held.sizes, shape)
        if not is_count(held.part) or held.part >= parts:
            raise ValueError(f"a part of {name} is nowhere")
    if sum(math.prod(held.sizes) for held in layout) != math.prod(shape):
        raise ValueError(f"the tensor {name} is not whole")


def check_items(manifest: Manifest) -> None:
    """ValueError where an item is none, or asks for more memory than there are bytes for."""
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
    if not all(map(is_count, segment[:4])) or not _is_checksum(segment.xxh3):
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
    _check_region(item.name, item.offsets, item.sizes, shape)
    elements, length = math.prod(item.sizes or ()), item.bytes
    if (length % elements or not elements <= length <= _WIDEST * elements) if elements else length:
        raise ValueError(f"a part of {item.name} has {length:,} bytes for {elements:,} elements")


def _check_region(name: str, offsets: Any, sizes: Any, shape: tuple[int, ...]) -> None:
    if not _is_shape(offsets) or not _is_shape(sizes) or not len(offsets) == len(sizes) == len(shape):
        raise ValueError(f"a part of {name} has no place in it")
    if any(at + size > end for at, size, end in zip(offsets, sizes, shape, strict=True)):
        raise ValueError(f"a part of {name} lies outside of it")


def _is_shape(values: object) -> bool:
    return isinstance(values, tuple) and len(values) <= _DIMENSIONS and all(map(is_count, values))
