"""What a rank needs of a checkpoint: the parts that describe it, and the files that it lies in."""

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
    """`parts` are those of a manifest that does not have its items; `files` are keys."""

    parts: set[int] = field(default_factory=set)
    files: set[str] = field(default_factory=set)


def needs(manifest: Manifest, state: dict[str, Any], rank: int) -> Needs:
    """What `rank` reads to fill `state`: of sharded tensors its own shards, of all others everything."""
    live: dict[str, torch.Tensor] = {}
    for name, value in state.items():
        take_apart(name, state_of(value), live)
    entries = {*state, *per_rank_names(state, rank, manifest.world_size), *per_rank_names(state, 0, 1)}
    found = Needs()
    if manifest.spread is not None:
        found.parts = set(_parts(manifest, manifest.spread, entries, live))
        found.files = {manifest.files[file].key for part in found.parts for file in manifest.parts[part].files}
    else:
        found.files = set(_files(manifest, entries, live))
    return found


def _belongs(name: str, entries: set[str]) -> bool:
    """Whether a saved tensor or object is of one of these entries. What another rank has its own is of none."""
    if name in entries:
        return True
    ends = [at for at, letter in enumerate(name) if letter in ".#"]
    return any(name[:end] in entries for end in ends)


def _parts(manifest: Manifest, spread: Spread, entries: set[str], live: dict[str, torch.Tensor]) -> Iterator[int]:
    for name, part in spread.objects.items():
        if _belongs(name, entries):
            yield part
    known: dict[tuple[int, Any], set[int]] = {}
    for name, layout in spread.tensors.items():
        if not _belongs(name, entries):
            continue
        regions = _regions(live.get(name))
        key = layout, regions
        if key not in known:
            known[key] = {held.part for held in spread.layouts[layout] if _concerns(held.offsets, held.sizes, regions)}
        yield from known[key]


def _files(manifest: Manifest, entries: set[str], live: dict[str, torch.Tensor]) -> Iterator[str]:
    for item in manifest.items:
        if not _belongs(item.name, entries):
            continue
        regions = _regions(live.get(item.name)) if item.offsets is not None else None
        if item.offsets is None or _concerns(item.offsets, item.sizes or (), regions):
            yield from (manifest.files[segment.file].key for segment in item.segments)


def _regions(tensor: torch.Tensor | None) -> tuple[Region, ...] | None:
    """What of a tensor is on this rank; None for all of it."""
    if not isinstance(tensor, DTensor):
        return None
    return tuple((tuple(chunk.offsets), tuple(chunk.sizes)) for chunk in tensor.__create_chunk_list__())


def _concerns(offsets: tuple[int, ...], sizes: tuple[int, ...], regions: Iterable[Region] | None) -> bool:
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
