"""The queues of a writer: one a tier, in the order that all ranks share."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slurmopt.checkpoint.format.rank_payload import RankPayload
from slurmopt.checkpoint.writer.tier_queue import Save, TierQueue
from slurmopt.storage.folder import FolderStore

SECONDS = 30.0


@pytest.fixture
def stored(tmp_path: Path) -> tuple[FolderStore, RankPayload]:
    return FolderStore(tmp_path), RankPayload()


def make(step: int, tiers: list[str], release: Callable[[], None] = lambda: None) -> Save:
    return Save(step, f"step-{step:08d}/a0000-00000000", tiers, 0, [], release)


def test_a_tier_takes_saves_in_their_order_however_slow_the_faster_tier_is(stored: Any) -> None:
    """Otherwise two ranks could take them in different orders, and each would wait for the other's part."""
    slow, order = threading.Event(), []

    def to_scratch(save: Save) -> None:
        assert slow.wait(SECONDS)
        save.finish("scratch", stored)

    def to_shared(save: Save) -> None:
        save.wait_turn("shared")
        order.append((save.step, save.stored is not None))
        save.finish("shared", stored)

    scratch, shared = TierQueue("scratch", to_scratch, pytest.fail), TierQueue("shared", to_shared, pytest.fail)
    by_way_of_scratch, straight = make(6, ["scratch", "shared"]), make(9, ["shared"])
    for save in (by_way_of_scratch, straight):
        for tier, lane in (("scratch", scratch), ("shared", shared)):
            if tier in save.tiers:
                lane.put(save)
    shared.close()
    shared._thread.join(0.2)  # time enough to take the second first, if it could
    slow.set()
    scratch.close()
    for lane in (scratch, shared):
        lane.join()
    assert order == [(6, True), (9, False)]


def test_of_many_that_wait_the_oldest_are_left_out() -> None:
    begun, go, worked, dropped = threading.Event(), threading.Event(), [], []

    def work(save: Save) -> None:
        begun.set()
        assert go.wait(SECONDS)
        worked.append(save.step)

    lane = TierQueue("s3", work, lambda save: dropped.append(save.step))
    lane.put(make(1, ["s3"]))
    assert begun.wait(SECONDS)
    for step in (2, 3, 4, 5):
        lane.put(make(step, ["s3"]))
    go.set()
    lane.close()
    lane.join()
    assert dropped == [2, 3]
    assert worked == [1, 4, 5]


def test_the_buffer_is_given_back_once_the_first_tier_has_it(stored: Any) -> None:
    released: list[str] = []
    save = make(1, ["scratch", "shared", "s3"], lambda: released.append("now"))
    save.finish("scratch", None)  # failed: the next tier still needs the buffer
    assert released == []
    save.finish("shared", stored)
    save.finish("s3", stored)
    assert released == ["now"]


def test_the_buffer_is_given_back_where_every_tier_fails() -> None:
    released: list[str] = []
    save = make(1, ["scratch", "shared"], lambda: released.append("now"))
    save.finish("scratch", None)
    save.finish("shared", None)
    assert released == ["now"]
