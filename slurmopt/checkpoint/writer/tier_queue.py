"""TierQueue: the queue of saves to one tier within one writer, with a thread of its own.

All ranks get the same saves in the same order, and every queue keeps it: a tier waits for all ranks' parts of one save
before it begins the next, so different orders would deadlock.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from slurmopt.checkpoint.format.rank_payload import Place, RankPayload
from slurmopt.storage.store import Store

_BACKLOG = 2
"""Saves that may wait for a tier besides the one in progress; those that wait stay on the faster tier."""


class Save:
    """One snapshot in progress. `tiers` are those it is due on, fastest first; slower tiers copy it from faster ones.

    `release` is called once, when the snapshot's buffer is no longer needed.
    """

    def __init__(
        self,
        step: int,
        name: str,
        tiers: list[str],
        memory: memoryview | None,
        places: list[Place],
        release: Callable[[], None],
    ) -> None:
        self.step, self.name, self.tiers, self.memory, self.places = step, name, tiers, memory, places
        self.stored: tuple[Store, RankPayload] | None = None
        self.tensors: dict[str, Any] = {}
        """Type and shape of the tensors that only this rank has."""
        self.describe = False
        """Whether the items are described in the payload file, and not in the manifest."""
        self._release: Callable[[], None] | None = release
        self._finished: set[str] = set()
        self._changed = threading.Condition()

    def wait_turn(self, tier: str) -> None:
        """Waits until every faster tier has it, or has failed."""
        faster = set(self.tiers[: self.tiers.index(tier)])
        with self._changed:
            self._changed.wait_for(lambda: faster <= self._finished)

    def finish(self, tier: str, stored: tuple[Store, RankPayload] | None) -> None:
        """Records that `tier` is done with it; `stored`: where it is now, None after a failure."""
        with self._changed:
            self.stored = self.stored or stored
            self._finished.add(tier)
            release = self._release if self.stored or self._finished >= set(self.tiers) else None
            if release is not None:
                self._release = None
            self._changed.notify_all()
        if release is not None:
            release()


class TierQueue:
    """One tier's queue. `work` writes a save; `drop` is called for one that is left out because the queue is full."""

    def __init__(self, tier: str, work: Callable[[Save], None], drop: Callable[[Save], None]) -> None:
        self._tier, self._work, self._drop = tier, work, drop
        self._waiting: deque[Save] = deque()
        self._changed = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name=f"slurmopt-{tier}")
        self._thread.start()

    def put(self, save: Save) -> None:
        dropped = []
        with self._changed:
            self._waiting.append(save)
            while len(self._waiting) > _BACKLOG:
                dropped.append(self._waiting.popleft())
            self._changed.notify()
        for each in dropped:
            self._drop(each)

    def close(self) -> None:
        """Ends the thread once the queue is empty."""
        with self._changed:
            self._closing = True
            self._changed.notify()

    def join(self) -> None:
        self._thread.join()

    def _run(self) -> None:
        while (save := self._next()) is not None:
            self._work(save)

    def _next(self) -> Save | None:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closing)
            return self._waiting.popleft() if self._waiting else None
