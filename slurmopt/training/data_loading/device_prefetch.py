"""Copies batches to a device; with CUDA while the training works on the batch before."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._pytree import tree_iter, tree_map

from slurmopt.training.data_loading.batch_costs import Costs


def on_device(batches: Iterator[Any], device: torch.device, costs: Costs) -> Iterator[Any]:
    """The batches, on `device`. What is no tensor stays as it is."""
    if device.type == "cuda":
        return _Ahead(batches, device, costs)
    return (_moved(batch, device) for batch in batches)


def _moved(batch: Any, device: torch.device) -> Any:
    return tree_map(lambda one: one.to(device, non_blocking=True) if isinstance(one, torch.Tensor) else one, batch)


class _Ahead:
    """Copies the next batch on a stream of its own. Needs pinned memory, or the copy does not overlap."""

    def __init__(self, batches: Iterator[Any], device: torch.device, costs: Costs) -> None:
        self._batches, self._device, self._costs = batches, device, costs
        self._stream = torch.cuda.Stream(device)
        self._copies: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []
        self._next: tuple[Any] | Exception | None = self._copied()

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self._next is None:
            raise StopIteration
        if isinstance(self._next, Exception):
            error, self._next = self._next, None
            try:
                raise error
            finally:
                del error  # or it and this frame would refer to each other
        (batch,) = self._next
        current = torch.cuda.current_stream(self._device)
        current.wait_stream(self._stream)
        for one in tree_iter(batch):
            if isinstance(one, torch.Tensor):
                one.record_stream(current)  # or its memory could be reused for the next copy
        self._next = self._copied()
        self._count()
        return batch

    def _copied(self) -> tuple[Any] | Exception:
        """The next batch on its way, or what was raised instead: that has its turn after the batch before."""
        try:
            batch = next(self._batches)
        except Exception as error:  # noqa: BLE001 - raised in its turn, StopIteration too
            # Without this frame, which refers to events of CUDA: in a cycle they would wait for the garbage collector,
            # perhaps that of a forked process, which they abort.
            return error.with_traceback(error.__traceback__ and error.__traceback__.tb_next)
        began, ended = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        with torch.cuda.stream(self._stream):
            began.record()
            moved = _moved(batch, self._device)
            ended.record()
        self._copies.append((began, ended))
        return (moved,)

    def _count(self) -> None:
        while self._copies and self._copies[0][1].query():
            began, ended = self._copies.pop(0)
            self._costs.copied(began.elapsed_time(ended) / 1e3)
