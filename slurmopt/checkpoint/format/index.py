"""The item descriptions of a large checkpoint: each rank's are at the end of its payload file.

A description is the JSON of a manifest's `items`, of the items that this rank wrote, whose segments refer to the rank's
own list of files. The manifest has its position, length and checksum.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import xxhash

from slurmopt.checkpoint.format.manifest import Damaged, Index, Item, Manifest, Spread
from slurmopt.checkpoint.format.manifest_reader import check_items, items_of
from slurmopt.checkpoint.format.segments import Extent, fill
from slurmopt.storage.direct_io import ALIGNMENT
from slurmopt.storage.memory import aligned, staging
from slurmopt.storage.store import Store

INLINE_ITEMS = 16384
"""Up to this number the items are in the manifest itself, which is then some megabytes long."""
_READERS = 8


def describe_items(items: list[Item]) -> tuple[memoryview, int, str]:
    """The description of items: a buffer for direct I/O, the length of the description in it, and its checksum."""
    encoded = json.dumps(items, separators=(",", ":")).encode()
    memory = staging(len(encoded))
    memory[: len(encoded)] = encoded
    return memory, len(encoded), xxhash.xxh3_128_hexdigest(encoded)


def load_items(store: Store, manifest: Manifest, parts: Iterable[int] | None = None) -> Manifest:
    """`manifest` with the items of `parts`, by default of all. Returns a manifest that has its items unchanged.

    Damaged where a description is not the one that was saved, FileNotFoundError where its file is gone.
    """
    if manifest.spread is None:
        return manifest
    wanted = sorted(set(range(len(manifest.parts)) if parts is None else parts))
    regions = _regions(manifest.spread)
    with ThreadPoolExecutor(max(1, min(_READERS, len(wanted))), thread_name_prefix="slurmopt-index") as pool:
        items_of_parts = list(pool.map(lambda part: _items(store, manifest, part), wanted))
    for part, items in zip(wanted, items_of_parts, strict=True):
        _check_whole(manifest, manifest.spread, regions, part, items)
    whole = replace(manifest, items=[item for items in items_of_parts for item in items], spread=None, parts=[])
    _checked(whole, manifest.key)
    return whole


def items_taken_by(manifest: Manifest, rank: int, world_size: int, whole: Iterable[Item]) -> list[Item]:
    """The items of a node-local checkpoint that `rank` copies to the next tier, of those of the manifest (`whole`).

    They are those of which it wrote the first bytes, since these are on its node if it runs where it ran before.
    """
    return [item for item in whole if _writer_of(manifest, item) % world_size == rank]


def files_taken_by(manifest: Manifest, rank: int, world_size: int) -> set[str]:
    """The keys of the files that `rank` needs to copy its share of a checkpoint to the next tier."""
    if manifest.spread is not None:
        own_parts = manifest.parts[rank::world_size]
        return {manifest.files[file].key for index in own_parts for file in index.files}
    items = items_taken_by(manifest, rank, world_size, manifest.items)
    return {manifest.files[segment.file].key for item in items for segment in item.segments}


def _writer_of(manifest: Manifest, item: Item) -> int:
    key = manifest.files[item.segments[0].file].key if item.segments else ""
    return int(key.rpartition("/rank-")[2].removesuffix(".bin") or 0)


def fold_parts(spread: Spread, count: int) -> Spread:
    """`spread` with its parts assigned to `count` ranks in turn."""
    layouts = [[held._replace(part=held.part % count) for held in layout] for layout in spread.layouts]
    return Spread(spread.tensors, layouts, {name: part % count for name, part in spread.objects.items()})


def _items(store: Store, manifest: Manifest, part: int) -> list[Item]:
    index = manifest.parts[part]
    key = manifest.files[index.files[0]].key
    encoded = _read(store, manifest, index)
    if xxhash.xxh3_128_hexdigest(encoded) != index.xxh3:
        raise Damaged(f"{key} is damaged at byte {index.offset:,} (checksum)")
    try:
        items = items_of(json.loads(encoded))
        return [_moved(item, index) for item in items]
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        raise Damaged(f"{key} describes no items: {error}") from error


def _read(store: Store, manifest: Manifest, index: Index) -> bytes:
    """Reads a description by direct I/O where possible, as everything in payload files."""
    file = manifest.files[index.files[0]]
    start = index.offset // ALIGNMENT * ALIGNMENT
    end = min(aligned(index.offset + index.stored), file.bytes)
    memory = staging(end - start)[: end - start]
    fill(store, Extent(file, start, end - start, []), memory)
    return bytes(memory[index.offset - start : index.offset - start + index.stored])


def _moved(item: Item, index: Index) -> Item:
    """An item whose segments refer to the manifest's files."""
    return item._replace(segments=[segment._replace(file=index.files[segment.file]) for segment in item.segments])


def _regions(spread: Spread) -> list[dict[int, int]]:
    """For each layout the number of elements in each part."""
    elements = []
    for layout in spread.layouts:
        held: dict[int, int] = {}
        for each in layout:
            held[each.part] = held.get(each.part, 0) + math.prod(each.sizes)
        elements.append(held)
    return elements


def _check_whole(
    manifest: Manifest, spread: Spread, regions: list[dict[int, int]], part: int, items: list[Item]
) -> None:
    """Raises Damaged where a part lacks something that it should contain."""
    elements: dict[str, int] = {}
    for item in items:
        if item.sizes is not None:
            elements[item.name] = elements.get(item.name, 0) + math.prod(item.sizes)
    objects = {item.name for item in items if item.sizes is None}  # an object may have the name of a tensor
    for name, layout in spread.tensors.items():
        if elements.get(name, 0) != regions[layout].get(part, 0):
            raise Damaged(f"{manifest.key}: part {part} has not all of {name} that it should")
    for name, of in spread.objects.items():
        if of == part and name not in objects:
            raise Damaged(f"{manifest.key}: part {part} lacks {name}")


def _checked(manifest: Manifest, key: str) -> None:
    try:
        check_items(manifest)
    except (ValueError, TypeError, LookupError) as error:
        raise Damaged(f"{key} is not a manifest: {error}") from error
