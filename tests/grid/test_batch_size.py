"""Which batch sizes a search tries, against machines whose memory and speed are formulas."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from slurmopt.grid.search.batch_size import FAST, MARGIN, Trial, answer, following

MOST = 16
"""Trials."""


@dataclass
class Machine:
    """A training whose memory is `memory(size)` of `limit`, and which is half as fast as it can be at size `knee`."""

    limit: float
    memory: Callable[[int], float]
    knee: float = 20.0
    breaks_at: float = math.inf
    tells_memory: bool = True

    def rate(self, size: int) -> float:
        return 1000 * size / (size + self.knee)

    def tried(self, size: int) -> Trial:
        if self.memory(size) > self.limit or size >= self.breaks_at:
            return Trial(size=size, error="out of memory", too_large=True)
        told = (self.memory(size), self.limit) if self.tells_memory else (None, None)
        return Trial(size=size, rate=self.rate(size), memory=told[0], limit=told[1])

    def search(self, low: int, high: int, step: int) -> list[Trial]:
        tried: list[Trial] = []
        while (size := following(tried, low, high, step)) is not None:
            assert low <= size <= high
            assert (size - low) % step == 0
            assert size not in [trial.size for trial in tried]
            tried.append(self.tried(size))
            assert len(tried) <= MOST
        return tried


LINEAR = Machine(80e9, lambda size: 2e9 + 1e8 * size)


@pytest.mark.parametrize(
    "machine",
    [
        LINEAR,
        Machine(80e9, lambda size: 2e9 + 1e8 * size + 1e4 * size**2),
        Machine(80e9, lambda size: 2e9 + 1e8 * size, breaks_at=300),
        Machine(80e9, lambda size: 2e9 + 1e8 * size, tells_memory=False),
        Machine(80e9, lambda size: 30e9 + 1e8 * max(size, 100)),
        Machine(80e9, lambda size: 1e9 + 1e7 * size),
    ],
    ids=["linear", "bends", "breaks", "memory-not-known", "a floor", "the axis ends first"],
)
def test_the_largest_and_the_smallest_fast_one_are_found(machine: Machine) -> None:
    tried = machine.search(8, 4096, 8)
    found = answer(tried)
    assert found is not None
    sizes = range(8, 4097, 8)
    part = 1 - MARGIN if machine.tells_memory else 1.0
    largest = max(size for size in sizes if machine.memory(size) <= part * machine.limit and size < machine.breaks_at)
    assert largest / 1.25 <= found.largest.size <= largest
    best = min(size for size in sizes if machine.rate(size) >= FAST * machine.rate(found.largest.size))
    assert best <= found.best.size <= 1.5 * best + 8
    assert machine.rate(found.best.size) >= FAST * max(trial.rate or 0.0 for trial in tried)


def test_one_prediction_is_enough_where_the_memory_is_linear() -> None:
    assert [trial.size for trial in LINEAR.search(8, 4096, 8)][:3] == [8, 16, 696]
    found = answer(LINEAR.search(8, 4096, 8))
    assert found is not None
    assert found.per_unit == pytest.approx(1e8)


def test_a_least_size_that_does_not_fit_ends_the_search() -> None:
    tried = Machine(1e9, lambda size: 2e9).search(8, 4096, 8)
    assert [(trial.size, trial.error) for trial in tried] == [(8, "out of memory")]
    assert answer(tried) is None


def test_a_size_that_leaves_no_margin_is_no_answer() -> None:
    full = Trial(size=16, rate=2.0, memory=0.95e9, limit=1e9)
    found = answer([Trial(size=8, rate=1.0, memory=0.5e9, limit=1e9), full])
    assert found is not None
    assert found.largest.size == 8


def test_one_size() -> None:
    assert [trial.size for trial in LINEAR.search(8, 8, 8)] == [8]
