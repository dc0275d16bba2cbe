"""Decodes manifests, and validates them without trusting their origin."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import xxhash

from slurmopt.checkpoint.format.ledger import Commit, is_count
from slurmopt.checkpoint.format.manifest import (
    FORMAT,
    SEGMENT_BYTES,
    Damaged,
    File,
    Held,
    Index,
    Item,
    Manifest,
    Segment,
    Spread,
)
from slurmopt.errors import CheckpointError

_FILE = re.compile(r"step-\d{8,}/[A-Za-z0-9-]+/rank-\d{5,}\.bin")
_XXH3 = re.compile(r"[0-9a-f]{32}")
_ZSTD_RATIO = 1 << 16
"""The largest ratio of zstd: 128 KiB from 4 bytes."""
_INDEX_BYTES = 1 << 30
_OBJECTS_BYTES, _OBJECTS_RATIO = 1 << 30, 64
_WIDEST, _DIMENSIONS = 32, 64
"""The maximum bytes of one element, and dimensions of a tensor."""


def decode(encoded: bytes, commit: Commit) -> Manifest:
    """The manifest of `commit`. Raises Damaged where it is another or corrupt, CheckpointError for a newer format."""
    if xxhash.xxh3_128_hexdigest(encoded) != commit.manifest_xxh3:
        raise Damaged(f"{commit.manifest} is not the file that was saved (checksum)")
    try:
        return _manifest(json.loads(encoded), commit)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise Damaged(f"{commit.manifest} is not a manifest: {error}") from error


def _manifest(values: dict[str, Any], commit: Commit) -> Manifest:
    if not is_count(values["format"]):
        raise ValueError("its format is not a number")
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
    """Items from their JSON form."""
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
    """Ensures that no path leads out of the tier, and that no reader allocates more memory than there is data.

    Raises ValueError for anything invalid.
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
            raise ValueError(f"{file.key!r} is not a payload file")
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
    """Raises ValueError for an invalid item, and for one that would need more memory than there is data."""
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
    """Checks that all elements of a tensor have the same size, whatever the dtype is."""
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
