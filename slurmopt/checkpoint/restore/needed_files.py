"""Computes which parts and files of a checkpoint a rank needs for its state."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from slurmopt.checkpoint.format.manifest import Manifest, Spread
from slurmopt.checkpoint.format.state import take_apart
from slurmopt.checkpoint.restore.restore import per_rank_names
from slurmopt.checkpoint.wrappers import state_of

Region = tuple[tuple[int, ...], tuple[int, ...]]
"""Offsets and sizes."""


@dataclass
class Needs:
    """`parts` are numbers of a manifest's parts, where the items are not in it; `files` are keys."""

    parts: set[int] = field(default_factory=set)
    files: set[str] = field(default_factory=set)


def needs(manifest: Manifest, state: dict[str, Any], rank: int) -> Needs:
    """What `rank` reads to fill `state`: its own shards of sharded tensors, and all others completely."""
    live: dict[str, torch.Tensor] = {}
    for name, value in state.items():
        take_apart(name, state_of(value), live)
    entries = {*state, *per_rank_names(state, rank, manifest.world_size), *per_rank_names(state, 0, 1)}
    result = Needs()
    if manifest.spread is not None:
        result.parts = set(_parts(manifest, manifest.spread, entries, live))
        result.files = {manifest.files[file].key for part in result.parts for file in manifest.parts[part].files}
    else:
        result.files = set(_files(manifest, entries, live))
    return result


def _is_of_entries(name: str, entries: set[str]) -> bool:
    """Whether a saved tensor or object belongs to one of the entries. One that only another rank has does not."""
    if name in entries:
        return True
    ends = [at for at, letter in enumerate(name) if letter in ".#"]
    return any(name[:end] in entries for end in ends)


def _parts(manifest: Manifest, spread: Spread, entries: set[str], live: dict[str, torch.Tensor]) -> Iterator[int]:
    for name, part in spread.objects.items():
        if _is_of_entries(name, entries):
            yield part
    known: dict[tuple[int, Any], set[int]] = {}
    for name, layout in spread.tensors.items():
        if not _is_of_entries(name, entries):
            continue
        regions = _regions(live.get(name))
        key = layout, regions
        if key not in known:
            known[key] = {held.part for held in spread.layouts[layout] if _overlaps(held.offsets, held.sizes, regions)}
        yield from known[key]


def _files(manifest: Manifest, entries: set[str], live: dict[str, torch.Tensor]) -> Iterator[str]:
    for item in manifest.items:
        if not _is_of_entries(item.name, entries):
            continue
        regions = _regions(live.get(item.name)) if item.offsets is not None else None
        if item.offsets is None or _overlaps(item.offsets, item.sizes or (), regions):
            yield from (manifest.files[segment.file].key for segment in item.segments)


def _regions(tensor: torch.Tensor | None) -> tuple[Region, ...] | None:
    """The regions of a tensor on this rank; None for the whole tensor."""
    if not isinstance(tensor, DTensor):
        return None
    return tuple((tuple(chunk.offsets), tuple(chunk.sizes)) for chunk in tensor.__create_chunk_list__())


def _overlaps(offsets: tuple[int, ...], sizes: tuple[int, ...], regions: Iterable[Region] | None) -> bool:
    if regions is None:
        return True
    return any(
        all(
            max(one, other) < min(one + length, other + extent)
            for one, length, other, extent in zip(offsets, sizes, at, span, strict=True)
        )
        for at, span in regions
        if len(at) == len(offsets)
    )
