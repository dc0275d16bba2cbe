"""Coordinator: in rank 0's writer, collects what each rank wrote of a save, and has it committed once all is durable.

The writers send it JSON over TCP, after both ends have proved that they know a key which only the ranks of this attempt
have.
"""

from __future__ import annotations

import json
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from slurmopt.checkpoint.commit.assembly import Summary, assemble_manifest, payload_from_message
from slurmopt.checkpoint.format.rank_payload import RankPayload
from slurmopt.errors import CheckpointError
from slurmopt.job.rendezvous.addresses import listen
from slurmopt.job.rendezvous.gate import Gate

PURPOSE = "checkpoint"
_REMEMBERED = 1000


@dataclass
class Pending:
    """One save to one tier that is not settled."""

    step: int
    name: str
    tier: str
    announced: float = field(default_factory=time.monotonic)
    begun: float | None = None
    parts: dict[int, RankPayload | Summary] = field(default_factory=dict)
    tensors: dict[int, dict[str, Any]] = field(default_factory=dict)
    """Type and shape of the tensors that only this rank has, by rank."""
    sealed: set[int] = field(default_factory=set)
    commit: dict[str, Any] = field(default_factory=dict)
    faster: list[str] = field(default_factory=list)

    def waits_for(self, other: Pending) -> bool:
        """Whether `other` comes first: a tier takes one save at a time, and a save goes to the faster tiers first."""
        if other.name == self.name:
            return other.tier in self.faster
        return other.tier == self.tier and other.announced < self.announced


class TierTerms(NamedTuple):
    """Constants of one tier: the ranks that commit there, and the deadline of a save in seconds."""

    committers: list[int]
    deadline: float


class Coordinator:
    """Tracks the saves that are not settled yet. `report` receives each verdict, for the journal. `host` is the address
    that the other writers connect to."""

    def __init__(
        self, world_size: int, terms: dict[str, TierTerms], report: Callable[[dict[str, Any]], None], host: str
    ) -> None:
        self._world_size, self._terms, self._report = world_size, terms, report
        self._key = secrets.token_bytes(32)
        self._gate = Gate(listen(host), self._key, PURPOSE, self._accept)
        self._lock = threading.RLock()
        self._idle = threading.Condition(self._lock)
        self._connections: dict[int, Connection] = {}
        self._saves: dict[str, dict[str, Any]] = {}
        self._needs: dict[str, list[str]] = {}
        self._pending: dict[tuple[str, str], Pending] = {}
        self._settled: dict[tuple[str, str], dict[str, Any]] = {}
        self._gate.start()
        threading.Thread(target=self._watch_deadlines, name="slurmopt-deadlines", daemon=True).start()

    @property
    def port(self) -> int:
        return self._gate.address[1]

    @property
    def key(self) -> str:
        return self._key.hex()

    def announce(
        self, name: str, step: int, tiers: list[str], manifest: dict[str, Any], needs: Iterable[str] = ()
    ) -> None:
        """Begins a save; `manifest` has rank 0's fields, without files and items. Parts may have arrived already.

        `needs`: the checkpoint that it is copied from, and those it references, which must not be pruned meanwhile.
        """
        with self._lock:
            self._saves[name] = manifest
            self._needs[name] = [name, *needs]
            absent = sorted(set(range(self._world_size)) - set(self._connections))
            for tier in tiers:
                if verdict := self._settled.get((name, tier)):
                    self._send(0, {"verdict": verdict})
                    continue
                pending = self._pending_save(name, tier, step)
                pending.faster = tiers[: tiers.index(tier)]
                if absent and absent[0] not in pending.parts:  # all had connected before the training continued
                    self._fail(pending, f"the writer of rank {absent[0]} is gone")
                else:
                    self._commit_if_complete(pending)

    def wait_settled(self) -> None:
        """Waits until every save is settled; each has a deadline."""
        with self._idle:
            self._idle.wait_for(lambda: not self._pending)

    def _pending_save(self, name: str, tier: str, step: int) -> Pending:
        return self._pending.setdefault((name, tier), Pending(step, name, tier))

    def _accept(self, connected: socket.socket, _: int) -> None:
        connection = Connection(connected.detach())
        threading.Thread(target=self._listen, args=(connection,), name="slurmopt-member", daemon=True).start()

    def _listen(self, connection: Connection) -> None:
        rank = -1
        while (message := receive(connection)) is not None:
            if "hello" in message:
                rank = message["hello"]
                with self._lock:
                    self._connections[rank] = connection
                    self._send(rank, {"welcome": rank})
                continue
            with self._lock:
                self._handle(rank, message)
        with self._lock:
            if self._connections.get(rank) is connection:
                del self._connections[rank]
                self._on_disconnect(rank)

    def _handle(self, rank: int, message: dict[str, Any]) -> None:
        if verdict := self._settled.get((message["name"], message["tier"])):
            self._send(rank, {"verdict": verdict})  # the part is late; the rank may have missed the verdict
            return
        pending = self._pending_save(message["name"], message["tier"], message["step"])
        if "failed" in message:
            reason = message["failed"] if self._world_size == 1 else f"rank {rank}: {message['failed']}"
            self._fail(pending, reason, message.get("fenced", False))
        elif "part" in message:
            pending.parts[rank] = payload_from_message(message["part"])
            pending.tensors[rank] = message.get("tensors", {})
            pending.begun = pending.begun or time.monotonic()
            self._commit_if_complete(pending)
        elif "sealed" in message:
            pending.sealed.add(rank)
            if pending.sealed == set(self._terms[pending.tier].committers):
                self._settle(pending, {"is": "committed", "bytes": pending.commit["bytes"]})

    def _commit_if_complete(self, pending: Pending) -> None:
        """Asks the committers of the tier to commit once the files of every rank are durable."""
        if len(pending.parts) < self._world_size or pending.name not in self._saves:
            return
        ranks = range(self._world_size)
        written, own = [pending.parts[rank] for rank in ranks], [pending.tensors[rank] for rank in ranks]
        try:
            manifest, sizes = assemble_manifest(self._saves[pending.name], written, own)
        except CheckpointError as error:
            self._fail(pending, str(error))
            return
        encoded = manifest.encode()
        pending.commit = {**vars(manifest.commit(encoded, sizes))}
        seal = {
            "seal": pending.name,
            "tier": pending.tier,
            "manifest": encoded.decode(),
            "commit": pending.commit,
            # A save in progress may reference it, and a slower tier may still read it from here.
            "protected": sorted({each for name, _ in self._pending for each in self._needs.get(name, [name])}),
        }
        for rank in self._terms[pending.tier].committers:
            self._send(rank, seal)

    def _fail(self, pending: Pending, reason: str, fenced: bool = False) -> None:
        self._settle(pending, {"is": "failed", "reason": reason, "fenced": fenced})

    def _settle(self, pending: Pending, verdict: dict[str, Any]) -> None:
        del self._pending[pending.name, pending.tier]
        if not any(name == pending.name for name, _ in self._pending):
            self._saves.pop(pending.name, None)
            self._needs.pop(pending.name, None)
        seconds = round(time.monotonic() - pending.announced, 3)
        verdict = {**verdict, "name": pending.name, "tier": pending.tier, "step": pending.step, "seconds": seconds}
        self._settled[pending.name, pending.tier] = verdict
        while len(self._settled) > _REMEMBERED:
            del self._settled[next(iter(self._settled))]
        self._report(verdict)
        for rank in list(self._connections):
            self._send(rank, {"verdict": verdict})
        self._idle.notify_all()

    def _send(self, rank: int, message: dict[str, Any]) -> None:
        connection = self._connections.get(rank)
        if connection is not None:
            try:
                connection.send_bytes(json.dumps(message).encode())
            except OSError:  # the reader thread notices too
                self._connections.pop(rank, None)
                self._on_disconnect(rank)

    def _on_disconnect(self, rank: int) -> None:
        for pending in list(self._pending.values()):
            if rank not in pending.parts or rank in set(self._terms[pending.tier].committers) - pending.sealed:
                self._fail(pending, f"the writer of rank {rank} is gone")

    def _watch_deadlines(self) -> None:
        while True:
            time.sleep(0.2)
            with self._lock:
                for pending in list(self._pending.values()):
                    self._check_deadline(pending)

    def _check_deadline(self, pending: Pending) -> None:
        # Longer than the writers' own deadline, so that a slow writer fails first and reports why.
        longest = 1.5 * self._terms[pending.tier].deadline
        if pending.begun is None and not any(pending.waits_for(other) for other in self._pending.values()):
            pending.begun = time.monotonic()
        if pending.begun is not None and time.monotonic() - pending.begun > longest:
            missing = sorted(set(range(self._world_size)) - set(pending.parts))
            who = f"rank {missing[0]} has not written" if missing else "its commit hangs"
            self._fail(pending, f"not durable after {longest:.0f} s: {who}")


def receive(connection: Connection) -> dict[str, Any] | None:
    """The next message; None once the other end is closed. It is JSON, never a pickle."""
    try:
        return json.loads(connection.recv_bytes())
    except (EOFError, OSError):
        return None
