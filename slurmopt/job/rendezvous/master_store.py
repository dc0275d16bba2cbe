"""Starts or finds the store of rank 0, through which the ranks meet: at MASTER_PORT, or, if another process listens
there, at a port that rank 0 chooses and appends to the file of the attempt's secret.

Both ends prove that they know the secret before a word is said, so what else listens or connects there is passed by.
"""

from __future__ import annotations

import errno
import os
import socket
import time
from collections.abc import Callable, Iterator
from typing import IO, Any

from slurmopt import log
from slurmopt.job.facts.rank_facts import RankFacts
from slurmopt.job.rendezvous import attempt_secret, store_server
from slurmopt.job.rendezvous.addresses import listen, meeting_address
from slurmopt.job.rendezvous.gate import Unproven
from slurmopt.job.rendezvous.ports import free_port
from slurmopt.job.rendezvous.store_client import StoreClient, connected, torch_store
from slurmopt.run_folder.layout import RunFolder

_OTHER_PORTS = 8
_AGAIN = 0.2
_WAIT = 0.25
_RARELY = 5.0
"""The longest time between two reads of rank 0's address in the run folder, in seconds: many ranks read it, and it is
rarely needed."""
_FIRST_PATIENCE, _LONGEST_PATIENCE = 1.0, 5.0
"""Seconds that the listener has for its proof: rank 0 may be busy, and another process never answers."""


class Rendezvous:
    """The rendezvous of one attempt. `timeout` is in seconds. Errors of the secret are those of `attempt_secret`."""

    def __init__(self, folder: RunFolder, attempt: int, facts: RankFacts, timeout: float) -> None:
        self._folder, self._attempt, self._facts, self._timeout = folder, attempt, facts, timeout
        self._key = attempt_secret.attempt_secret(folder, attempt)
        self._own = meeting_address(facts, os.environ)
        self._server: IO[bytes] | None = None

    def host(self) -> Any:
        """The store in rank 0. OSError if it can listen nowhere."""
        listener = self._listen()
        host, port = listener.getsockname()[:2]
        self._server = store_server.start(listener, self._key)
        if host in ("0.0.0.0", "::"):  # noqa: S104 - compared, not listened at
            host = self._facts.master_addr
        attempt_secret.publish(self._folder, self._attempt, host, port)
        return self._met(connected((host, port), self._key, 0, self._timeout, self._timeout), port)

    def guest(self, told: Callable[[], bool]) -> Any:
        """The store in another rank; None once `told()` says to wait no longer. OSError if it was not found."""
        now = time.monotonic()
        deadline, looks, patience = now + self._timeout, _growing(now), _FIRST_PATIENCE
        why = ""
        place, look = self._expected(), next(looks)
        while not told() and time.monotonic() < deadline:
            began = time.monotonic()
            try:
                client = connected(place, self._key, self._facts.rank, self._timeout, patience)
                return self._met(client, place[1])
            except OSError as error:
                why = _in_words(error)
                patience = min(_LONGEST_PATIENCE, 2 * patience)
            if time.monotonic() > look:
                look = next(looks)
                place = attempt_secret.published(self._folder, self._attempt) or place
            time.sleep(max(0.0, began + _AGAIN - time.monotonic()))
        if told():
            return None
        raise OSError(why)

    def _expected(self) -> tuple[str, int]:
        """The address of rank 0 if its port was free. On its own node MASTER_ADDR may resolve to a loopback address."""
        host = self._own if self._facts.node_rank == 0 else self._facts.master_addr
        return host, self._facts.master_port

    def _met(self, client: StoreClient, port: int) -> Any:
        os.environ["MASTER_PORT"] = str(port)
        return torch_store(client, self._timeout)

    def _listen(self) -> socket.socket:
        port = self._facts.master_port
        for _ in range(_OTHER_PORTS):
            try:
                return listen(self._own, port)
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
            log.warning(f"another process listens on port {port} of {self._facts.node}; rank 0 takes another one")
            port = free_port({port})
        return listen(self._own)


def _in_words(error: OSError) -> str:
    """Why no store was found, in other words than those for a rank that was lost later."""
    if isinstance(error, Unproven):
        return "what answers there is no rank of this attempt"
    if isinstance(error, TimeoutError):
        return "what listens there does not answer"
    return "nobody listens there" if isinstance(error, ConnectionError) else str(error)


def _growing(now: float) -> Iterator[float]:
    """Points in time with growing distances."""
    pause = _WAIT
    while True:
        now += pause
        yield now
        pause = min(1.5 * pause, _RARELY)
