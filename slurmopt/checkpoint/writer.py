"""The writer process of one rank: takes snapshots from shared memory to the tiers, behind the training's back.

Started by the Checkpointer as `python -m slurmopt.checkpoint.writer FD`, without torch or CUDA, at low CPU and I/O
priority. It ends when its rank does, after what it has begun.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import queue
import signal
import socket
import sys
import threading
import time
from dataclasses import dataclass, field
from multiprocessing import AuthenticationError
from pathlib import Path
from typing import Any

from slurmopt.checkpoint.arena import MappedArena
from slurmopt.checkpoint.channel import Channel
from slurmopt.checkpoint.coordinator import Coordinator, Terms
from slurmopt.checkpoint.ledger import Fenced, checkpoint_name
from slurmopt.checkpoint.member import Member
from slurmopt.checkpoint.part import Part, Place
from slurmopt.checkpoint.sealer import Sealer
from slurmopt.checkpoint.target import Target
from slurmopt.checkpoint.tiers import Tier
from slurmopt.errors import CheckpointError, SlurmoptError
from slurmopt.folder import events

_NICE = 10
_BACKLOG = 2
"""Checkpoints that may wait for a slower tier, besides the one that is on its way."""
_IOPRIO_SET = {"x86_64": 251, "aarch64": 30}
_BEST_EFFORT_LAST = (2 << 13) | 7


@dataclass
class Save:
    """One snapshot on its way. `tiers` are those it is due on, fastest first."""

    step: int
    name: str
    tiers: list[str]
    buffer: int
    places: list[Place]
    part: Part | None = None
    lies_on: str = ""
    tried: list[str] = field(default_factory=list)


class Writer:
    """Receives snapshots from the rank and works them off: one thread empties the arena, one serves slower tiers."""

    def __init__(self, channel: Channel, setup: dict[str, Any]) -> None:
        self._channel = channel
        self._rank, self._journal = setup["rank"], Path(setup["journal"])
        self._attempt, self._first = setup["attempt"], setup["first"]
        tiers = [Tier(**tier) for tier in setup["tiers"]]
        rank, world_size = setup["rank"], setup["world_size"]
        self._sealers = {
            tier.name: Sealer(tier, self._attempt, world_size) for tier in tiers if rank in setup["sealers"][tier.name]
        }
        self._targets = {tier.name: Target(tier, rank, world_size, setup["incremental"]) for tier in tiers}
        terms = {tier.name: Terms(setup["sealers"][tier.name], tier.deadline) for tier in tiers}
        self._coordinator = (
            Coordinator(setup["world_size"], terms, self._report, setup["host"]) if self._rank == 0 else None
        )
        self._member: Member | None = None
        self._arena: MappedArena | None = None
        self._layout: list[Place] = []
        self._fresh: queue.Queue[Save | None] = queue.Queue()
        self._slow: queue.Queue[Save | None] = queue.Queue()
        self._workers = [
            threading.Thread(target=self._work, args=(self._fresh, self._empty_arena), name="slurmopt-write"),
            threading.Thread(target=self._work, args=(self._slow, self._next_tier), name="slurmopt-move"),
        ]

    def run(self) -> None:
        """Until the rank says so, or is gone."""
        self._open()
        for worker in self._workers:
            worker.start()
        while (received := self._channel.receive()) is not None:
            message, descriptor = received
            getattr(self, f"_do_{message['do']}")(message, descriptor)
        self._fresh.put(None)
        self._workers[0].join()
        self._slow.put(None)
        self._workers[1].join()
        for target in self._targets.values():
            target.wait_settled()
        if self._coordinator is not None:
            self._coordinator.wait_settled()

    def _open(self) -> None:
        """Shuts older attempts out before anybody looks for a checkpoint to restore."""
        problems: dict[str, tuple[bool, str]] = {}
        for name, sealer in self._sealers.items():
            try:
                sealer.open(first=self._first)
            except SlurmoptError as error:
                problems[name] = (isinstance(error, CheckpointError), str(error))
        meeting = [self._coordinator.port, self._coordinator.key] if self._coordinator else None
        self._tell({"is": "ready", "problems": problems, "meeting": meeting})

    def _do_meet(self, message: dict[str, Any], _: int | None) -> None:
        if self._member is None or not self._member.meets(message["host"], message["port"]):
            key = bytes.fromhex(message["key"])
            try:
                self._member = Member(
                    self._rank, message["host"], message["port"], key, self._seal, self._tidy, self._settled
                )
            except (OSError, EOFError, AuthenticationError) as error:  # saves fail, and say so, until it can be met
                print(f"slurmopt: rank 0's checkpoint writer cannot be reached: {error}", file=sys.stderr, flush=True)
        self._tell({"is": "met"})

    def _do_arena(self, message: dict[str, Any], descriptor: int | None) -> None:
        assert descriptor is not None
        self._arena = MappedArena(descriptor, message["size"], message["buffers"])

    def _do_layout(self, message: dict[str, Any], _: int | None) -> None:
        self._layout = [_place(values) for values in message["places"]]

    def _do_base(self, message: dict[str, Any], _: int | None) -> None:
        try:
            self._targets[message["tier"]].start_from(message["commit"])
        except (SlurmoptError, OSError) as error:  # then the next save writes everything
            print(f"slurmopt: the next checkpoint refers to nothing earlier: {error}", file=sys.stderr, flush=True)

    def _do_set_aside(self, message: dict[str, Any], _: int | None) -> None:
        try:
            self._sealers[message["tier"]].set_aside(message["checkpoint"])
        except (SlurmoptError, OSError) as error:  # it will be found damaged again
            self._note("checkpoint-failed", tier=message["tier"], reason=f"{message['checkpoint']}: {error}")

    def _do_save(self, message: dict[str, Any], _: int | None) -> None:
        places = self._layout + [_place(values) for values in message["objects"]]
        save = Save(message["step"], message["name"], message["tiers"], message["buffer"], places)
        if self._coordinator is not None:
            self._coordinator.announce(save.name, save.step, save.tiers, message["manifest"])
        self._fresh.put(save)

    def _do_upload(self, message: dict[str, Any], _: int | None) -> None:
        """A checkpoint of an earlier attempt that slower tiers lack: it goes there under a name of this attempt."""
        lies_on, tiers = message["lies_on"], message["tiers"]
        save = Save(message["step"], message["name"], [lies_on, *tiers], -1, [], lies_on=lies_on, tried=[lies_on])
        if self._coordinator is not None:
            source = checkpoint_name(save.step, message["commit"]["unique"])
            needs = [source, *message["commit"]["references"]]
            self._coordinator.announce(save.name, save.step, tiers, message["manifest"], needs)
        try:
            save.part = self._targets[lies_on].part_of(message["commit"])
        except (SlurmoptError, OSError) as error:
            self._give_up(save, str(error))
        else:
            self._queue_slow(save)

    def _queue_slow(self, save: Save) -> None:
        """Checkpoints that wait for a slower tier are kept on the faster one, so only so many may wait."""
        self._slow.put(save)
        while self._slow.qsize() > _BACKLOG:
            with contextlib.suppress(queue.Empty):  # the worker has just taken it
                oldest = self._slow.get_nowait()
                if oldest is not None:
                    self._give_up(oldest, "left out: newer checkpoints wait for this tier")

    def _give_up(self, save: Save, reason: str) -> None:
        for name in save.tiers[len(save.tried) :]:
            self._send({"failed": reason}, save, name)

    def _work(self, saves: queue.Queue[Save | None], step: Any) -> None:
        while (save := saves.get()) is not None:
            step(save)

    def _empty_arena(self, save: Save) -> None:
        """Writes the snapshot to the first tier that takes it, and gives the buffer back."""
        assert self._arena is not None
        for name in save.tiers:
            save.tried.append(name)
            part = self._attempt_write(save, name, self._targets[name].from_arena, self._arena.buffer(save.buffer))
            if part is not None:
                save.part, save.lies_on = part, name
                break
        self._tell({"is": "released", "buffer": save.buffer})
        if save.part is not None and len(save.tried) < len(save.tiers):
            self._queue_slow(save)

    def _next_tier(self, save: Save) -> None:
        for name in save.tiers[len(save.tried) :]:
            save.tried.append(name)
            source = self._targets[save.lies_on]
            self._attempt_write(save, name, self._targets[name].from_store, source.store, save.part)

    def _attempt_write(self, save: Save, name: str, write: Any, *source: Any) -> Part | None:
        target = self._targets[name]
        target.wait_settled()
        began = time.monotonic()
        try:
            part: Part = write(save.name, save.places, *source)
        except (SlurmoptError, OSError) as error:
            self._send({"failed": str(error)}, save, name)
            return None
        target.under_way(save.name, part)
        self._send({"part": part.as_json(), "seconds": time.monotonic() - began}, save, name)
        return part

    def _send(self, message: dict[str, Any], save: Save, tier: str) -> None:
        message.update(name=save.name, tier=tier, step=save.step)
        if self._member is None or not self._member.send(message):
            self._settled({"is": "failed", "reason": "rank 0's writer is gone", **message, "part": None})

    def _seal(self, message: dict[str, Any]) -> dict[str, Any]:
        """The coordinator's word that all parts are durable; the answer for it."""
        try:
            self._sealers[message["tier"]].seal(message["manifest"], message["commit"])
        except (SlurmoptError, OSError) as error:
            return {"failed": str(error), "fenced": isinstance(error, Fenced)}
        return {"sealed": True}

    def _tidy(self, message: dict[str, Any]) -> None:
        """After a commit was answered for: what is not kept can go without anybody waiting for it."""
        tier = message["tier"]
        try:
            pruned = self._sealers[tier].tidy([*message["protected"], message["seal"]])
        except (SlurmoptError, OSError) as error:
            print(f"slurmopt: old checkpoints on {tier} could not be removed: {error}", file=sys.stderr, flush=True)
            return
        if pruned and self._rank == 0:
            self._note("checkpoint-pruned", tier=tier, checkpoints=pruned)

    def _settled(self, verdict: dict[str, Any]) -> None:
        """The coordinator's verdict on a save to one tier."""
        if verdict["is"] == "failed" and verdict["tier"] in self._sealers:
            self._sealers[verdict["tier"]].failed(verdict["name"])
        self._targets[verdict["tier"]].settle(verdict["name"], committed=verdict["is"] == "committed")
        self._tell(verdict)

    def _report(self, verdict: dict[str, Any]) -> None:
        words = {"step": verdict["step"], "tier": verdict["tier"], "checkpoint": verdict["name"]}
        if verdict["is"] == "committed":
            self._note("checkpoint", **words, bytes=verdict["bytes"], seconds=verdict["seconds"])
        else:
            self._note("checkpoint-failed", **words, reason=verdict["reason"])

    def _note(self, event: str, **fields: Any) -> None:
        try:
            events.append(self._journal, event, attempt=self._attempt, **fields)
        except OSError as error:  # the journal's disk may be the one that is full
            print(f"slurmopt: {event} {fields} cannot be noted: {error}", file=sys.stderr, flush=True)

    def _tell(self, message: dict[str, Any]) -> None:
        try:
            self._channel.send(message)
        except ConnectionError:
            return  # the rank is gone; what it has handed over is still brought home


def _place(values: list[Any]) -> Place:
    name, offsets, sizes, start, length = values
    return Place(
        name, None if offsets is None else tuple(offsets), None if sizes is None else tuple(sizes), start, length
    )


def _step_back() -> None:
    """The training goes first, on the CPU and on the disk; what ends the training's ranks is not meant for us."""
    os.nice(_NICE)
    number = _IOPRIO_SET.get(os.uname().machine)
    if number is not None:  # best effort: without it the disk is shared evenly
        ctypes.CDLL(None).syscall(number, 1, 0, _BEST_EFFORT_LAST)
    for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(each, signal.SIG_IGN)


def main(argv: list[str]) -> int:
    _step_back()
    channel = Channel(socket.socket(fileno=int(argv[0])))
    received = channel.receive()
    if received is not None:
        Writer(channel, received[0]).run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
