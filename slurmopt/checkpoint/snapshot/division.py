"""Division: assigns the tensors of a state to ranks, computed on each rank from shapes and placements alone.

A shard is written by its owner; of replicas of a shard by the rank with the least to write so far. Tensors that all
ranks have are divided into shares of up to 16 MiB, and each share goes to the rank with the least. Small tensors are
grouped in a share, so that one rank writes, and later reads, them all.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Collection, Iterator, Sequence
from functools import cached_property
from itertools import product
from typing import Any, NamedTuple

import torch
import xxhash
from torch.distributed.tensor import DTensor

from slurmopt.checkpoint.format.manifest import Held, Spread

SHARE_BYTES = 16 << 20
"""Replicated tensors are divided between the ranks in parts of about this size."""


class Chunk(NamedTuple):
    """A tensor or a part of one; offsets and sizes are in elements."""

    name: str
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]


class _Tensor(NamedTuple):
    """The properties of a tensor that matter, without a reference to it."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    mesh: Any = None
    placements: tuple[Any, ...] = ()

    @classmethod
    def of(cls, tensor: torch.Tensor) -> _Tensor:
        spread = (tensor.device_mesh, tuple(tensor.placements)) if isinstance(tensor, DTensor) else (None, ())
        return cls(tuple(tensor.shape), tensor.dtype, *spread)


class Division:
    """The division of `tensors` between `world_size` ranks; equal on all ranks that have the same tensors.

    `own`: names that this rank alone has. `of_first`: names that are rank 0's to write, as the ranks' values may
    differ.
    """

    def __init__(
        self,
        tensors: dict[str, torch.Tensor],
        world_size: int,
        own: Collection[str] = (),
        first_rank_only: Collection[str] = (),
    ) -> None:
        self._tensors = {name: _Tensor.of(tensor) for name, tensor in tensors.items()}
        self._world_size = world_size
        self.own, self.first_rank_only = own, first_rank_only
        shared = sorted(tensors.keys() - set(own))  # an order that is equal on all ranks
        self._sharded = [name for name in shared if self._tensors[name].mesh is not None]
        self._whole = [name for name in shared if self._tensors[name].mesh is None]
        self._meshes: dict[Any, _Mesh] = {}
        self._shard_cache: dict[Any, tuple[tuple[int, ...], tuple[int, ...]]] = {}

    @property
    def derivable(self) -> bool:
        """Whether it follows from shapes and placements: each sharded tensor has one contiguous shard on each rank."""
        return all(self._is_derivable(each) for each in {self._tensors[name] for name in self._sharded})

    def _is_derivable(self, tensor: _Tensor) -> bool:
        placements, grid = tensor.placements, tensor.mesh.shape
        if self._mesh(tensor.mesh).ranks != list(range(self._world_size)):
            return False
        if not all(each.is_replicate() or hasattr(each, "dim") for each in placements):
            return False
        strided = {each.dim for each in placements if _strides(each) > 1}
        first = (0,) * len(placements)
        return all(_is_even(tensor.shape[dim], _cuts(dim, grid, placements, first)) for dim in strided)

    @cached_property
    def digest(self) -> str:
        """A digest that is equal on all ranks where their divisions are equal."""
        parts = [f"{self._world_size}\0{SHARE_BYTES}"]
        for name in (*self._whole, *self._sharded):
            tensor = self._tensors[name]
            spread = "" if tensor.mesh is None else f"{tensor.placements}\0{self._mesh(tensor.mesh).text}"
            parts.append(f"{name}\0{tensor.dtype}\0{tensor.shape}\0{spread}\0{name in self.first_rank_only}")
        return xxhash.xxh3_128_hexdigest("\n".join(parts).encode())

    @property
    def chunks(self) -> int:
        """The approximate number of parts of the shared tensors; includes empty ones."""
        sharded = [self._tensors[name] for name in self._sharded]
        return sum(self._mesh(each.mesh).parts(each.placements) for each in sharded) + sum(1 for _ in self._parts())

    def share(self, rank: int) -> list[Chunk]:
        """The chunks that `rank` writes; its own tensors are included only for this rank."""
        chunks = [
            Chunk(name, held.offsets, held.sizes)
            for name, parts in self._shards(rank)
            for held in parts
            if held.part == rank
        ]
        chunks += [chunk for chunk, writer in self._distribute() if writer == rank]
        return chunks + [part for name in self.own for part in _cut(name, self._tensors[name], self._divides)]

    def spread(self) -> Spread:
        """Every part of every shared tensor with the rank that writes it."""
        layouts: dict[tuple[Held, ...], int] = {}
        tensors = {}
        numbers: dict[int, tuple[list[Held], int]] = {}  # by identity: comparing long layouts is slow
        for name, held in self._shards(None):
            if id(held) not in numbers:
                numbers[id(held)] = held, layouts.setdefault(tuple(held), len(layouts))
            tensors[name] = numbers[id(held)][1]
        whole: dict[str, list[Held]] = {name: [] for name in self._whole}
        for chunk, writer in self._distribute():
            whole[chunk.name].append(Held(chunk.offsets, chunk.sizes, writer))
        tensors |= {name: layouts.setdefault(tuple(held), len(layouts)) for name, held in whole.items()}
        return Spread(tensors, [list(layout) for layout in layouts], {})

    @property
    def _divides(self) -> bool:
        return self._world_size > 1

    def _shards(self, rank: int | None) -> Iterator[tuple[str, list[Held]]]:
        """The parts of each sharded tensor; with `rank` only those of which it has a replica."""
        loads: dict[tuple[int, ...], list[int]] = {}
        alike: dict[_Tensor, list[Held]] = {}  # without replicas loads do not matter
        for name in self._sharded:
            tensor = self._tensors[name]
            if tensor not in alike:
                parts = list(self._parts_of(tensor, rank, loads))
                if any(each.is_replicate() for each in tensor.placements):
                    yield name, parts
                    continue
                alike[tensor] = parts
            yield name, alike[tensor]

    def _parts_of(self, tensor: _Tensor, rank: int | None, loads: dict[tuple[int, ...], list[int]]) -> Iterator[Held]:
        mesh = self._mesh(tensor.mesh)
        for coordinate in mesh.shards(tensor.placements) if rank is None else [mesh.coordinates[rank]]:
            sizes, offsets = self._shard(tensor, coordinate)
            length = math.prod(sizes) * tensor.dtype.itemsize
            if length:
                replicas = mesh.replicas(coordinate, tensor.placements)
                so_far = loads.setdefault(replicas, [0] * len(replicas))
                least = so_far.index(min(so_far))
                so_far[least] += length
                yield Held(offsets, sizes, replicas[least])

    def _shard(self, tensor: _Tensor, coordinate: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Sizes and offsets of the shard at a coordinate of its mesh; cached for each shape."""
        key = tensor, coordinate
        if key not in self._shard_cache:
            grid, placements = tensor.mesh.shape, tensor.placements
            spans = [_rows(size, _cuts(dim, grid, placements, coordinate)) for dim, size in enumerate(tensor.shape)]
            self._shard_cache[key] = tuple(map(len, spans)), tuple(span.start for span in spans)
        return self._shard_cache[key]

    def _distribute(self) -> Iterator[tuple[Chunk, int]]:
        """The chunks of whole tensors, each with the rank that writes it."""
        ranks = [(0, rank) for rank in range(self._world_size)]  # a heap: the least load first, then the lowest rank
        share: list[Chunk] = []
        size = 0
        for chunk in self._parts():
            length = self._length(chunk)
            if chunk.name in self.first_rank_only:
                yield chunk, 0
                continue
            if share and size + length > SHARE_BYTES:
                yield from _assign_share(share, size, ranks)
                share, size = [], 0
            share.append(chunk)
            size += length
        yield from _assign_share(share, size, ranks)

    def _parts(self) -> Iterator[Chunk]:
        for name in self._whole:
            yield from _cut(name, self._tensors[name], self._divides)

    def _length(self, chunk: Chunk) -> int:
        return math.prod(chunk.sizes) * self._tensors[chunk.name].dtype.itemsize

    def _mesh(self, mesh: Any) -> _Mesh:
        if mesh not in self._meshes:
            self._meshes[mesh] = _Mesh(mesh)
        return self._meshes[mesh]


class _Mesh:
    """The ranks of a device mesh by coordinate, and the reverse."""

    def __init__(self, mesh: Any) -> None:
        grid = mesh.mesh
        self._grid, self._shape = grid, tuple(grid.shape)
        order = grid.flatten().tolist()
        self.ranks = sorted(order)
        self.coordinates = dict(zip(order, product(*map(range, self._shape)), strict=True))
        self.text = f"{self._shape}{xxhash.xxh3_64_hexdigest(repr(order).encode())}"
        self._replicas: dict[Any, tuple[int, ...]] = {}

    def parts(self, placements: Any) -> int:
        """The number of shards of a tensor with these placements."""
        return math.prod(size for size, each in zip(self._shape, placements, strict=True) if not each.is_replicate())

    def shards(self, placements: Any) -> Iterator[tuple[int, ...]]:
        """The coordinate of one replica of each shard."""
        return product(
            *(range(1 if each.is_replicate() else size) for size, each in zip(self._shape, placements, strict=True))
        )

    def replicas(self, coordinate: tuple[int, ...], placements: Any) -> tuple[int, ...]:
        """The ranks that have the shard at `coordinate`."""
        index = tuple(
            slice(None) if each.is_replicate() else at for at, each in zip(coordinate, placements, strict=True)
        )
        key = tuple(-1 if isinstance(at, slice) else at for at in index)
        if key not in self._replicas:
            self._replicas[key] = tuple(self._grid[index].flatten().tolist())
        return self._replicas[key]


Cut = tuple[int, int, int]
"""Along one dimension of a mesh: the number of parts, the index of the part, and the number of strides."""


def _cuts(dim: int, grid: Sequence[int], placements: Sequence[Any], coordinate: tuple[int, ...]) -> list[Cut]:
    """The cuts of a tensor's dimension `dim`, in the order of the mesh's dimensions."""
    return [
        (parts, at, _strides(each))
        for parts, at, each in zip(grid, coordinate, placements, strict=True)
        if getattr(each, "dim", None) == dim
    ]


def _strides(placement: Any) -> int:
    """More than 1 where FSDP and tensor parallelism divide the same dimension."""
    return int(getattr(placement, "split_factor", 1))


def _rows(size: int, cuts: list[Cut]) -> range:
    """The part of `range(size)` after all cuts. Parts are those of torch.chunk: of equal length except the last ones,
    which may be empty. ValueError where the result is not contiguous."""
    rows: Sequence[int] = range(size)
    for parts, at, strides in cuts:
        pieces = [_chunk(_chunk(rows, strides, each), parts, at) for each in range(strides)]
        rows = pieces[0] if strides == 1 else [row for piece in pieces for row in piece]
    if isinstance(rows, range):
        return rows
    whole = range(rows[0], rows[0] + len(rows)) if rows else range(0)
    if list(whole) != rows:
        raise ValueError(f"the rows {rows[:3]}… of a shard are not in one piece")
    return whole


def _is_even(size: int, cuts: list[Cut]) -> bool:
    """Whether all parts are contiguous and have equal length, which is required with strides."""
    left = size
    for parts, _, strides in cuts:
        if left % (parts * strides):
            return False
        left //= parts
    try:
        return bool(_rows(size, cuts))
    except ValueError:
        return False


def _chunk(rows: Sequence[int], parts: int, at: int) -> Sequence[int]:
    length = -(-len(rows) // parts)
    return rows[at * length : (at + 1) * length]


def _cut(name: str, tensor: _Tensor, divides: bool) -> list[Chunk]:
    """A whole tensor as chunks of rows of about 16 MiB; none for a tensor without elements."""
    shape = tensor.shape
    if not math.prod(shape):
        return []
    row = tensor.dtype.itemsize * math.prod(shape[1:]) if shape else 0
    rows = max(1, SHARE_BYTES // row) if divides and row else 0
    if not rows or rows >= shape[0]:
        return [Chunk(name, (0,) * len(shape), shape)]
    rest = (0,) * (len(shape) - 1)
    return [
        Chunk(name, (start, *rest), (min(rows, shape[0] - start), *shape[1:])) for start in range(0, shape[0], rows)
    ]


def _assign_share(share: list[Chunk], size: int, ranks: list[tuple[int, int]]) -> Iterator[tuple[Chunk, int]]:
    if share:
        load, rank = ranks[0]
        heapq.heapreplace(ranks, (load + size, rank))
        for chunk in share:
            yield chunk, rank
