"""The store of rank 0 through which the ranks meet: at MASTER_PORT, or, where another process listens there, at a port
of rank 0's choice.

Whoever connects makes sure that the store is its own attempt's before it writes a word into it: at the port may be
another job's rank 0, whose count of arrivals would be wrong then, or a process that never answers. torch's client waits
for such an answer without end, so it connects in a thread of its own.
"""

from __future__ import annotations

import importlib
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

from slurmopt.folder.files import read_text, replace_text
from slurmopt.folder.layout import RunFolder
from slurmopt.runtime.ports import free_port
from slurmopt.runtime.ranks import RankFacts

_OTHER_PORTS = 8
_AGAIN = 0.2
_WAIT = 0.25
_RARELY = 5.0
"""Seconds between two looks for rank 0's port in the run folder, in the end: many ranks look, and hardly ever is one
there."""


class Rendezvous:
    """One attempt's; `timeout` is in seconds."""

    def __init__(self, folder: RunFolder, attempt: int, facts: RankFacts, timeout: float) -> None:
        self._facts, self._timeout = facts, timeout
        self._other_port = folder.rendezvous(attempt)
        self._mark = f"attempt {attempt} of {folder.path}"
        self._sought: set[int] = set()
        self._found: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._over = threading.Event()
        self._error: RuntimeError | None = None

    def host(self) -> Any:
        """The store, in rank 0. RuntimeError where it can listen nowhere."""
        store = self._listen()
        store.set(self._mark, "")
        if store.port != self._facts.master_port:
            os.environ["MASTER_PORT"] = str(store.port)
            replace_text(self._other_port, str(store.port))
        return store

    def guest(self, told: Callable[[], bool]) -> Any:
        """The store, in another rank; None once `told` says to wait no longer. RuntimeError where it was not found."""
        deadline, looks = time.monotonic() + self._timeout, _growing(time.monotonic())
        look = next(looks)
        self._seek_beside(self._facts.master_port)
        try:
            while not told() and time.monotonic() < deadline:
                if (store := self._seen(_WAIT)) is not None:
                    os.environ["MASTER_PORT"] = str(store.port)
                    return store
                if time.monotonic() > look:
                    look = next(looks)
                    self._seek_beside(self._told_port())
        finally:
            self._over.set()
        if told():
            return None
        raise self._error or RuntimeError("what listens there is not rank 0 of this attempt")

    def _listen(self) -> Any:
        port = self._facts.master_port
        for _ in range(_OTHER_PORTS):
            try:
                return self._store(port, is_master=True)
            except RuntimeError as error:
                if "EADDRINUSE" not in str(error):
                    raise
            print(f"slurmopt: somebody else listens at port {port} of {self._facts.node}; rank 0 takes another one")
            port = free_port({port})
        return self._store(port, is_master=True)

    def _seen(self, seconds: float) -> Any:
        try:
            return self._found.get(timeout=seconds)
        except queue.Empty:
            return None

    def _told_port(self) -> int | None:
        try:
            return int(read_text(self._other_port))
        except (OSError, ValueError):  # not there, or not to be read just now
            return None

    def _seek_beside(self, port: int | None) -> None:
        if port is None or port in self._sought:
            return
        self._sought.add(port)
        threading.Thread(target=self._seek, args=(port,), name=f"rendezvous at {port}", daemon=True).start()

    def _seek(self, port: int) -> None:
        """Until the store there is this attempt's: another one may end, and rank 0 listen there after all."""
        while not self._over.is_set():
            try:
                store = self._store(port, is_master=False)
                while not store.check([self._mark]):
                    if self._over.wait(_AGAIN):
                        return
                return self._found.put(store)
            except RuntimeError as error:
                self._error = error
                self._over.wait(_AGAIN)

    def _store(self, port: int, is_master: bool) -> Any:
        return importlib.import_module("torch.distributed").TCPStore(
            self._facts.master_addr,
            port,
            is_master=is_master,
            timeout=timedelta(seconds=self._timeout),
            wait_for_workers=False,
        )


def _growing(now: float) -> Iterator[float]:
    """Points in time, ever further apart."""
    pause = _WAIT
    while True:
        now += pause
        yield now
        pause = min(1.5 * pause, _RARELY)
