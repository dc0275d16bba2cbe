"""All ranks leave at the same step. Nothing is said about it until somebody asks, so it costs a step nothing.

When a rank is asked to stop (a signal; another rank's word, looked for once a second), a thread of it promises in the
rendezvous store not to pass its next step without knowing where all leave. The latest of the promises is that step. The
thread promises even while the training sits in a collective that waits for a rank which has promised already, so nobody
waits for ever; and no rank can have passed the step, because none passes its own promise before all are known.
"""

from __future__ import annotations

import importlib
import sys
import threading
import time
from typing import Any

from slurmopt.runtime import run, signals

_LOOK_EVERY = 1.0
_PATIENCE = 120.0
"""Seconds that a rank waits for the others' promises: one that is not heard of by then has a trouble of its own."""
_generation = 0
_LEFT = 0
"""The promise of a rank that takes no more steps: it holds nobody to anything."""


class Stop:
    """One rank's part in leaving together. Times are seconds."""

    def __init__(self, rank: int, world_size: int) -> None:
        """Called by all ranks in their main threads, torch's default group being there."""
        run.take_signals()
        self._rank, self._world_size = rank, world_size
        self._store: Any = _store() if world_size > 1 else None
        self._turn = threading.Lock()
        self._step = 0
        self._promise: int | None = None
        self._at: int | None = None
        self._decided = threading.Event()
        self._closed = threading.Event()
        if self._store is not None:
            threading.Thread(target=self._agree, name="slurmopt-stop", daemon=True).start()

    def due(self, step: int) -> bool:
        """Whether all ranks leave now, after `step`. Waits only where somebody asked and this rank has promised."""
        with self._turn:
            self._step = max(step, self._step)
            promise = self._promise
        if self._store is None:
            return run.stop_requested()
        if promise is None or step < promise:
            return False
        if not self._decided.wait(_PATIENCE):
            print("slurmopt: not all ranks answered where to stop; going on", file=sys.stderr, flush=True)
            self._at = sys.maxsize
            self._decided.set()
        return self._at is not None and step >= self._at

    def close(self) -> None:
        """This rank takes no more steps: nobody shall wait for its promise."""
        self._closed.set()
        if self._store is not None and self._promise is None:
            with self._turn:
                self._promise = _LEFT
            self._tell(_LEFT)

    def _agree(self) -> None:
        try:
            self._wait_for_request()
            if self._closed.is_set():
                return
            with self._turn:
                self._promise = self._step + 1
            self._store.set("asked", "yes")
            self._tell(self._promise)
            self._at = self._latest()
            self._decided.set()
        except RuntimeError:  # the store is gone with rank 0: the attempt is ending
            return

    def _wait_for_request(self) -> None:
        while not (signals.wait(_LOOK_EVERY) or self._closed.is_set() or run.stop_requested()):
            if self._store.check(["asked"]):
                signals.request("rank")

    def _tell(self, promise: int) -> None:
        try:
            self._store.set(f"promise/{self._rank}", str(promise))
        except RuntimeError:  # as above
            return

    def _latest(self) -> int:
        """The step at which all leave: rank 0 gathers the promises, the others read its answer."""
        if self._rank != 0:
            self._until("at")
            return int(self._store.get("at"))
        promises = []
        for rank in range(self._world_size):
            self._until(f"promise/{rank}")
            promises.append(int(self._store.get(f"promise/{rank}")))
        self._store.set("at", str(max(promises)))
        return max(promises)

    def _until(self, key: str) -> None:
        """Polls: a blocking read would keep the store from everybody else in this process."""
        deadline, pause = time.monotonic() + _PATIENCE, 0.001
        while not self._store.check([key]) and time.monotonic() < deadline:
            time.sleep(pause)
            pause = min(0.05, pause * 1.5)


def _store() -> Any:
    """The store of torch's default group, whoever made that: slurmopt, torchrun, the user. Its keys are not used twice:
    all ranks count their calls alike."""
    global _generation
    _generation += 1
    dist = importlib.import_module("torch.distributed")
    store = importlib.import_module("torch.distributed.distributed_c10d")._get_default_store()
    return dist.PrefixStore(f"slurmopt/stop/{_generation}", store)
