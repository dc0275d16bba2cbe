"""Snapshots: copies the state into the buffers of an arena, by a plan that all ranks agree on."""

from __future__ import annotations

import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch

from slurmopt import log
from slurmopt.checkpoint.collectives import Collectives
from slurmopt.checkpoint.format.rank_payload import Place
from slurmopt.checkpoint.snapshot.arena import Arena, affordable, available_memory
from slurmopt.checkpoint.snapshot.division import SHARE_BYTES, Division
from slurmopt.checkpoint.snapshot.entries import Entries, Entry, per_rank_name
from slurmopt.checkpoint.snapshot.pinning import pin
from slurmopt.checkpoint.snapshot.snapshot_plan import SnapshotPlan, item_offsets, signature
from slurmopt.checkpoint.wrappers import plain_keys, unwrapped
from slurmopt.errors import CheckpointError
from slurmopt.storage.memory import aligned
from slurmopt.units import human_bytes

_OBJECT_ROOM = 1 << 20
_GUESSED_STATES = 2
"""Tensors that an optimizer is assumed to keep per parameter before its first step; Adam keeps two."""


@dataclass
class Snapshot:
    """One copy of this rank's share, in one buffer of the arena. `was_planned`: plan and arena existed already, as for
    later saves."""

    buffer: int
    arena: Arena
    plan: SnapshotPlan
    objects: list[Place]
    was_planned: bool


class StateSummary(NamedTuple):
    """What a rank sends the others about its state: why it cannot be saved, whether the current plan fits, a digest of
    its division, and digests of the entries that may differ between the ranks."""

    problem: str | None
    fits: bool
    spread: str
    digests: dict[str, int]


class Collected(NamedTuple):
    """A state that is about to be copied."""

    tensors: dict[str, torch.Tensor]
    entries: dict[str, Entry]
    division: Division
    summary: StateSummary


class Snapshots:
    """Manages the arena's buffers: `take` occupies one, and `free` releases it from another thread."""

    def __init__(self, buffers: int, ranks: Collectives, on_this_node: int, longest: float) -> None:
        """`on_this_node`: ranks that share the memory. `longest`: the maximum of seconds until a buffer is written."""
        self._buffers, self._ranks = buffers, ranks
        self._on_this_node, self._longest = on_this_node, longest
        self._entries = Entries(ranks.rank)
        self._plan: SnapshotPlan | None = None
        self._arena: Arena | None = None
        self._free: list[int] = []
        self._changed = threading.Condition()

    def prepare(self, state: dict[str, Any]) -> None:
        """Creates the arena before the first save, with room for the optimizer's state after its first step."""
        tensors, entries = self._collect(state)
        objects = self._objects(entries)
        size = sum(_local_bytes(tensor, self._ranks.world_size) for tensor in tensors.values())
        size += sum(_future_bytes(value, self._ranks.world_size) for value in state.values())
        unequal = 2 * SHARE_BYTES if self._ranks.world_size > 1 else 0
        self._make_arena(size + unequal + _OBJECT_ROOM + sum(map(len, objects.values())))

    @property
    def buffers(self) -> int:
        """The number of buffers; less than requested where memory is short."""
        return self._buffers if self._arena is None else self._arena.buffers

    def has_free_buffer(self, wait: bool) -> bool:
        """Whether a buffer is free; with `wait`, waits for one."""
        with self._changed:
            if wait and self._arena is not None:
                self._changed.wait_for(lambda: self._free, timeout=self._longest)
            return self._arena is None or bool(self._free)

    def take(self, state: dict[str, Any], collected: Collected, summaries: list[StateSummary]) -> Snapshot:
        """Copies the state into a free buffer. `summaries` are those of all ranks."""
        before = self._plan, self._arena
        tensors, objects = self._agreed(state, collected, summaries)
        assert self._plan is not None
        need = self._plan.bytes + item_offsets([len(data) for data in objects.values()])[1]
        self._ensure_arena(need)
        assert self._arena is not None
        with self._changed:
            buffer = self._free.pop()
        self._plan.copy(tensors, self._arena, buffer)
        places = self._put_objects(objects, self._arena.buffer(buffer))
        return Snapshot(buffer, self._arena, self._plan, places, before == (self._plan, self._arena))

    def free(self, buffer: int) -> None:
        """Releases a buffer that the writer no longer needs."""
        with self._changed:
            if buffer not in self._free:
                self._free.append(buffer)
            self._changed.notify_all()

    def close(self) -> None:
        if self._plan is not None:
            self._plan.forget_arena()
        if self._arena is not None:
            self._arena.close()
            self._arena = None

    def collect(self, state: dict[str, Any]) -> Collected:
        """Collects the state to save, before anything is copied; its `summary` is for all ranks."""
        tensors: dict[str, torch.Tensor] = {}
        entries: dict[str, Entry] = {}
        problem = None
        try:
            tensors, entries = self._collect(state)
        except CheckpointError as error:
            problem = str(error)
        division, fits = self._division(state, tensors)
        digests = self._entries.digests(entries) if self._ranks.world_size > 1 else {}
        return Collected(tensors, entries, division, StateSummary(problem, fits, division.digest, digests))

    def _agreed(
        self, state: dict[str, Any], own: Collected, summaries: list[StateSummary]
    ) -> tuple[dict[str, torch.Tensor], dict[str, bytes]]:
        """Tensors and objects, after all ranks have agreed on a plan. What one rank cannot save raises on all of them,
        so that none waits for it."""
        if reason := next((summary.problem for summary in summaries if summary.problem), None):
            raise CheckpointError(reason)
        tensors, entries, division, _ = own
        spreads = {summary.spread for summary in summaries}
        differ, differing = self._entries.compare([summary.digests for summary in summaries], self._ranks.gather)
        if differ:
            tensors, entries = self._collect(state)
            division, _ = self._division(state, tensors)
            spreads = set(self._ranks.gather(division.digest))
        if differ or not all(summary.fits for summary in summaries):
            if differ or len(spreads) > 1:
                self._check_alike(state, tensors)
            self._plan = SnapshotPlan(tensors, self._ranks, division, alike=len(spreads) == 1)
            self._log_differing(differing)
        return tensors, self._objects(entries)

    def _division(self, state: dict[str, Any], tensors: dict[str, torch.Tensor]) -> tuple[Division, bool]:
        """The division of the tensors, and whether the current plan is for it."""
        if self._plan is not None and self._plan.signature == signature(tensors):
            return self._plan.division, True
        prefixes = tuple(per_rank_name(name, self._ranks.rank) for name in state)
        own = [name for name in tensors if name.startswith(prefixes)]
        return Division(tensors, self._ranks.world_size, own, _buffers(state)), False

    def _check_alike(self, state: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
        """Raises CheckpointError for tensors that only some ranks have, or in other shapes: they could not be
        restored."""
        own = {f"state[{name!r}]": "there" for name in state}
        for name, tensor in self._entries.alike(state, tensors).items():
            own[name] = f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"
        shapes = self._ranks.gather(own)
        for rank, theirs in enumerate(shapes):
            for name in {**shapes[0], **theirs}:
                first, other = shapes[0].get(name, "missing"), theirs.get(name, "missing")
                if first != other:
                    raise CheckpointError(
                        f"{name} is {first} on rank 0 and {other} on rank {rank}; "
                        "the state must have the same entries and shapes on all ranks"
                    )

    def _collect(self, state: dict[str, Any]) -> tuple[dict[str, torch.Tensor], dict[str, Entry]]:
        """The tensors by name, and the rest by entry."""
        tensors: dict[str, torch.Tensor] = {}
        return tensors, {name: self._entries.take_apart(name, value, tensors) for name, value in state.items()}

    def _objects(self, entries: dict[str, Entry]) -> dict[str, bytes]:
        """The objects that this rank writes: its own, and on rank 0 the shared ones."""
        return {each.key: each.object for each in entries.values() if each.is_own or self._ranks.rank == 0}

    def _log_differing(self, names: list[str]) -> None:
        if names and self._ranks.rank == 0:
            named = ", ".join(f"state[{name!r}]" for name in names)
            line = f"{named}: differs between the ranks, so each rank's own is saved and restored"
            log.info(line)

    def _ensure_arena(self, need: int) -> None:
        if self._arena is None or need > self._arena.size:
            self._make_arena(need + _OBJECT_ROOM)

    def _make_arena(self, size: int) -> None:
        self._drop_arena()
        size = aligned(size)
        available = available_memory() // self._on_this_node
        buffers = affordable(size, self._buffers, available)
        folder = None if buffers else Path(tempfile.gettempdir())
        if buffers < self._buffers:
            log.warning(_memory_warning(size, self._buffers, available, folder))
        try:
            self._arena = Arena(size, buffers or 1, folder)
        except OSError as error:
            raise CheckpointError(f"there is no room for a snapshot of {human_bytes(size)}: {error}") from error
        if folder is None:
            self._arena.populate()
            pin(self._arena)
        with self._changed:
            self._free = list(
                reversed(range(self._arena.buffers))
            )  # buffer 0, whose pages are faulted in first, is used first

    def _drop_arena(self) -> None:
        """Closes the arena once no buffer is being written."""
        if self._arena is None:
            return
        with self._changed:
            idle = self._changed.wait_for(lambda: self._is_idle(), timeout=self._longest)
        if not idle:
            raise CheckpointError(
                f"the save before has been under way for over {self._longest:.0f} s; is storage hung?"
            )
        if self._plan is not None:
            self._plan.forget_arena()
        self._arena.close()
        self._arena = None

    def _is_idle(self) -> bool:
        return self._arena is None or len(self._free) == self._arena.buffers

    def _put_objects(self, objects: dict[str, bytes], memory: memoryview) -> list[Place]:
        assert self._plan is not None
        starts, _ = item_offsets([len(data) for data in objects.values()])
        places = []
        for (name, data), start in zip(objects.items(), starts, strict=True):
            start += self._plan.bytes
            memory[start : start + len(data)] = data
            places.append(Place(name, None, None, start, len(data)))
        return places


def _memory_warning(size: int, wanted: int, available: int, folder: Path | None) -> str:
    if folder is not None:
        instead = f"snapshots go to a file in {folder}, which is slower"
    else:
        instead = "there is one snapshot instead of two: a save that comes while it is being written is put off"
    have = f"{human_bytes(available)} of memory left for this rank"
    return f"{human_bytes(size * wanted)} for snapshots do not fit into the {have}; {instead}"


def _buffers(state: dict[str, Any]) -> set[str]:
    """Names of the models' buffers: batch norm statistics differ between the ranks, and DDP uses those of rank 0."""
    models = {name: model for name, value in state.items() if isinstance(model := unwrapped(value), torch.nn.Module)}
    buffers = {name: plain_keys(model, [key for key, _ in model.named_buffers()]) for name, model in models.items()}
    return {f"{name}.{key}" for name, keys in buffers.items() for key in keys.values()}


def _local_bytes(tensor: torch.Tensor, world_size: int) -> int:
    from torch.distributed.tensor import DTensor

    if isinstance(tensor, DTensor):
        local = tensor.to_local()
        return aligned(local.numel() * local.element_size())
    return aligned(tensor.numel() * tensor.element_size() // world_size)


def _future_bytes(value: Any, world_size: int) -> int:
    """The estimated bytes of the state of an optimizer before its first step."""
    if not isinstance(value, torch.optim.Optimizer) or value.state:
        return 0
    parameters = [parameter for group in value.param_groups for parameter in group["params"]]
    return _GUESSED_STATES * sum(_local_bytes(parameter.detach(), world_size) + 64 for parameter in parameters)
