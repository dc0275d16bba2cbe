"""Writes the items of a DCP save plan as segments of a payload file."""

from __future__ import annotations

import io
from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple

import torch
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner, WriteItem
from torch.distributed.checkpoint.storage import WriteResult

from slurmopt.checkpoint.format.manifest import SEGMENT_BYTES, File, Item
from slurmopt.checkpoint.format.rank_payload import Address, Block, PayloadWriter, Place
from slurmopt.checkpoint.format.tensor_bytes import memory_of
from slurmopt.storage.direct_io import ALIGNMENT
from slurmopt.storage.memory import aligned
from slurmopt.storage.store import Store


class Stored(NamedTuple):
    """The stored location of one item. `item` is None for a tensor without elements."""

    files: list[File]
    item: Item | None


def written(store: Store, key: str, encoding: str | None, plan: SavePlan, planner: SavePlanner) -> list[WriteResult]:
    """Writes the plan's items to the file `key`, which is durable on return."""
    writer = PayloadWriter(key, encoding, {})
    pieces = writer.pieces(_blocks(plan, planner))
    first = next(pieces, None)
    if first is not None:
        store.write(key, chain([first], pieces))
    part = writer.part()
    items: dict[Address, Item] = {(item.name, item.offsets): item for item in part.items}
    results = []
    for each in plan.items:
        item = items.get((each.index.fqn, _place(each, 0).offsets))
        results.append(WriteResult(each.index, item.bytes if item else 0, Stored(part.files, item)))
    return results


def merged(stored: list[list[Stored]]) -> tuple[list[File], list[Item]]:
    """The files and items of all ranks, with segments that refer to the common list of files."""
    files: dict[File, int] = {}
    items = []
    for each in chain.from_iterable(stored):
        if each.item is None:
            continue
        segments = []
        for segment in each.item.segments:
            index = files.setdefault(File(*each.files[segment.file]), len(files))
            segments.append(segment._replace(file=index))
        items.append(each.item._replace(segments=segments))
    return list(files), items


def _blocks(plan: SavePlan, planner: SavePlanner) -> Iterator[Block]:
    """Each item in segments, one resolved at a time. Large ones are aligned for direct I/O."""
    end = 0
    for each in sorted(plan.items, key=lambda each: -_length(each)):
        data = _bytes_of(planner.resolve_data(each))
        place = _place(each, len(data))
        for start in range(0, len(data), SEGMENT_BYTES):
            piece = data[start : start + SEGMENT_BYTES]
            yield Block(piece, [(place, 0, len(piece))])
        end += len(data)
        if len(data) >= ALIGNMENT and end % ALIGNMENT:
            yield Block(memoryview(bytes(aligned(end) - end)), [])
            end = aligned(end)


def _length(item: WriteItem) -> int:
    return item.tensor_storage_size() or 0


def _place(item: WriteItem, length: int) -> Place:
    if item.tensor_data is None:
        return Place(item.index.fqn, None, None, 0, length)
    chunk = item.tensor_data.chunk
    return Place(item.index.fqn, tuple(chunk.offsets), tuple(chunk.sizes), 0, length)


def _bytes_of(value: torch.Tensor | io.BytesIO) -> memoryview:
    if isinstance(value, io.BytesIO):
        return value.getbuffer()
    plain = value.detach().resolve_conj().resolve_neg().cpu().contiguous()
    return memory_of(plain)
