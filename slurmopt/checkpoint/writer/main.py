"""The writer process of one rank: takes snapshots from shared memory to the tiers, behind the training's back.

Started by the Checkpointer as `python -m slurmopt.checkpoint.writer.main FD`, without torch or CUDA, at low CPU and I/O
priority. It ends when its rank does, after what it has begun.
"""

from __future__ import annotations

import ctypes
import os
import queue
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from slurmopt.checkpoint.commit.committer import Committer
from slurmopt.checkpoint.commit.coordinator import Coordinator, Terms
from slurmopt.checkpoint.format.ledger import Fenced, checkpoint_name
from slurmopt.checkpoint.format.rank_payload import Place, RankPayload
from slurmopt.checkpoint.journal_events import note
from slurmopt.checkpoint.snapshot.arena import MappedArena
from slurmopt.checkpoint.tiers import Tier
from slurmopt.checkpoint.writer.channel import Channel
from slurmopt.checkpoint.writer.coordinator_client import CoordinatorClient
from slurmopt.checkpoint.writer.probe import probe
from slurmopt.checkpoint.writer.target import Target
from slurmopt.checkpoint.writer.tier_queue import Save, TierQueue
from slurmopt.errors import CheckpointError, SlurmoptError, StorageBroken, StorageRefused, one_line
from slurmopt.run_folder.open_folders import take_over

_NICE = 10
_IOPRIO_SET = {"x86_64": 251, "aarch64": 30}
_BEST_EFFORT_LAST = (2 << 13) | 7


class Writer:
    """Receives snapshots from the rank, and takes each down the lanes of the tiers that it is due on."""

    def __init__(self, channel: Channel, setup: dict[str, Any]) -> None:
        self._channel = channel
        self._rank, self._journal = setup["rank"], Path(setup["journal"])
        take_over(setup["held"])
        self._attempt, self._first = setup["attempt"], setup["first"]
        tiers = [Tier.from_dict(tier) for tier in setup["tiers"]]
        rank, world_size = setup["rank"], setup["world_size"]
        self._sealers = {
            tier.name: Committer(tier, self._attempt, world_size)
            for tier in tiers
            if rank in setup["sealers"][tier.name]
        }
        self._targets = {tier.name: Target(tier, rank, world_size, setup["incremental"]) for tier in tiers}
        terms = {tier.name: Terms(setup["sealers"][tier.name], tier.deadline) for tier in tiers}
        self._coordinator = (
            Coordinator(setup["world_size"], terms, self._report, setup["host"]) if self._rank == 0 else None
        )
        self._member: CoordinatorClient | None = None
        self._arena: MappedArena | None = None
        self._layout: list[Place] = []
        self._plan: dict[str, Any] = {}
        self._lanes: dict[str, TierQueue] = {}
        self._chores: queue.Queue[Callable[[], None] | None] = queue.Queue()

    def run(self) -> None:
        """Until the rank says so, or is gone; then what has begun is brought home."""
        self._open()
        chores = threading.Thread(target=self._do_chores, name="slurmopt-chores", daemon=True)
        chores.start()
        self._lanes = {
            name: TierQueue(name, partial(self._take, name), partial(self._drop, name)) for name in self._targets
        }
        while (received := self._channel.receive()) is not None:
            message, descriptor = received
            getattr(self, f"_do_{message['do']}")(message, descriptor)
        self._chores.put(None)
        chores.join()
        for lane in self._lanes.values():
            lane.close()
        for lane in self._lanes.values():
            lane.join()
        for target in self._targets.values():
            target.wait_settled()
        if self._coordinator is not None:
            self._coordinator.wait_settled()

    def _open(self) -> None:
        """Shuts older attempts out before anybody looks for a checkpoint to restore."""
        problems: dict[str, tuple[str, str]] = {}
        for name, sealer in self._sealers.items():
            try:
                sealer.open(first=self._first)
                if self._first:
                    probe(sealer.tier, self._attempt)
            except (SlurmoptError, OSError) as error:
                problems[name] = (_kind(error), _reason(error))
        meeting = [self._coordinator.port, self._coordinator.key] if self._coordinator else None
        newest = max((sealer.newest for sealer in self._sealers.values()), default=0)
        self._tell({"is": "ready", "problems": problems, "meeting": meeting, "newest": newest})

    def _do_meet(self, message: dict[str, Any], _: int | None) -> None:
        if self._member is None or not self._member.meets(message["host"], message["port"]):
            key = bytes.fromhex(message["key"])
            try:
                self._member = CoordinatorClient(
                    self._rank, message["host"], message["port"], key, self._seal, self._tidy, self._settled, self._cut
                )
            except OSError as error:  # saves fail, and say so, until it can be met
                print(f"slurmopt: rank 0's checkpoint writer cannot be reached: {error}", file=sys.stderr, flush=True)
        self._tell({"is": "met"})

    def _cut(self) -> None:
        self._tell({"is": "cut"})

    def _do_arena(self, message: dict[str, Any], descriptor: int | None) -> None:
        assert descriptor is not None
        self._arena = MappedArena(descriptor, message["size"], message["buffers"])

    def _do_layout(self, message: dict[str, Any], _: int | None) -> None:
        self._layout, self._plan = [_place(values) for values in message["places"]], message

    def _do_chores(self) -> None:
        """What may wait for storage: the rank, which hands its snapshots over, must never wait for that."""
        while (chore := self._chores.get()) is not None:
            chore()

    def _do_base(self, message: dict[str, Any], _: int | None) -> None:
        target = self._targets[message["tier"]]
        target.hold()
        self._chores.put(partial(self._base, target, message["commit"]))

    def _base(self, target: Target, commit: dict[str, Any]) -> None:
        try:
            target.start_from(commit)
        except Exception as error:  # noqa: BLE001 - whatever it is, the next save then writes everything
            print(f"slurmopt: the next checkpoint refers to nothing earlier: {error}", file=sys.stderr, flush=True)
        finally:
            target.let_go()

    def _do_set_aside(self, message: dict[str, Any], _: int | None) -> None:
        self._chores.put(partial(self._set_aside, message["tier"], message["checkpoint"]))

    def _set_aside(self, tier: str, name: str) -> None:
        try:
            self._sealers[tier].set_aside(name)
        except Exception as error:  # noqa: BLE001 - whatever it is, it will be found damaged again
            self._note("checkpoint-failed", tier=tier, reason=f"{name} cannot be set aside: {error}")

    def _do_save(self, message: dict[str, Any], _: int | None) -> None:
        places = self._layout + [_place(values) for values in message["objects"]]
        assert self._arena is not None
        memory = self._arena.buffer(message["buffer"])  # now: the next save may bring another arena
        released = partial(self._tell, {"is": "released", "buffer": message["buffer"]})
        save = Save(message["step"], message["name"], message["tiers"], memory, places, released)
        save.tensors, save.describe = self._plan["own"], self._plan["describe"]
        if self._coordinator is not None:
            manifest = {**message["manifest"], **self._plan["shared"]}
            self._coordinator.announce(save.name, save.step, save.tiers, manifest)
        for tier in save.tiers:
            self._lanes[tier].put(save)

    def _do_upload(self, message: dict[str, Any], _: int | None) -> None:
        """A checkpoint of an earlier attempt that slower tiers lack: it goes there under a name of this attempt."""
        save = Save(message["step"], message["name"], message["tiers"], None, [], lambda: None)
        save.describe = message["describe"]
        if self._coordinator is not None:
            source = checkpoint_name(save.step, message["commit"]["unique"])
            needs = [source, *message["commit"]["references"]]
            self._coordinator.announce(save.name, save.step, save.tiers, message["manifest"], needs)
        self._chores.put(partial(self._upload, save, self._targets[message["lies_on"]], message["commit"]))

    def _upload(self, save: Save, lies_on: Target, commit: dict[str, Any]) -> None:
        try:
            save.stored = lies_on.store, lies_on.part_of(commit)
        except Exception as error:  # noqa: BLE001 - whatever it is, the other ranks must hear of it
            for tier in save.tiers:
                self._send({"failed": _reason(error)}, save, tier)
            return
        for tier in save.tiers:
            self._lanes[tier].put(save)

    def _take(self, tier: str, save: Save) -> None:
        """Writes a save to one tier: from the tier that has it already, else from the arena."""
        target = self._targets[tier]
        target.wait_settled()
        save.wait_turn(tier)
        try:
            part = self._write(target, save)
        except Exception as error:  # noqa: BLE001 - whatever it is, the lane goes on and the other ranks hear of it
            save.finish(tier, None)
            self._send({"failed": _reason(error)}, save, tier)
            return
        target.under_way(save.name, part)
        save.finish(tier, (target.store, part))
        self._send({"part": part.summary() if save.describe else part.as_json(), "tensors": save.tensors}, save, tier)

    def _write(self, target: Target, save: Save) -> RankPayload:
        if save.stored is not None:
            return target.from_store(save.name, *save.stored, save.describe)
        assert save.memory is not None
        return target.from_arena(save.name, save.places, save.memory, save.describe)

    def _drop(self, tier: str, save: Save) -> None:
        save.finish(tier, None)
        self._send({"failed": "left out: newer checkpoints wait for this tier"}, save, tier)

    def _send(self, message: dict[str, Any], save: Save, tier: str) -> None:
        message.update(name=save.name, tier=tier, step=save.step)
        if self._member is None or not self._member.send(message):
            self._settled({"is": "failed", "reason": "rank 0's writer is gone", **message, "part": None})

    def _seal(self, message: dict[str, Any]) -> dict[str, Any]:
        """The coordinator's word that all parts are durable; the answer for it."""
        try:
            self._sealers[message["tier"]].seal(message["manifest"], message["commit"])
        except Exception as error:  # noqa: BLE001 - whatever it is, the coordinator must hear of it
            return {"failed": _reason(error), "fenced": isinstance(error, Fenced)}
        return {"sealed": True}

    def _tidy(self, message: dict[str, Any]) -> None:
        """After a commit was answered for: what is not kept can go without anybody waiting for it."""
        tier = message["tier"]
        try:
            pruned = self._sealers[tier].tidy([*message["protected"], message["seal"]])
        except Exception as error:  # noqa: BLE001 - whatever it is, the checkpoints are safe
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
        note(self._journal, event, attempt=self._attempt, **fields)

    def _tell(self, message: dict[str, Any]) -> None:
        try:
            self._channel.send(message)
        except ConnectionError:
            return  # the rank is gone; what it has handed over is still brought home


def _kind(error: Exception) -> str:
    """Whether the run must end, or the tier says no until somebody mends it or gives back other bytes than it got, or
    the next save may well succeed."""
    if isinstance(error, CheckpointError):
        return "fatal"
    if isinstance(error, StorageBroken):
        return "broken"
    return "lasting" if isinstance(error, StorageRefused) else "passing"


def _reason(error: Exception) -> str:
    """One line; an error that nobody foresaw says its kind too."""
    text = one_line(str(error))
    return text if isinstance(error, (SlurmoptError, OSError)) else f"{type(error).__name__}: {text}"


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
        try:
            Writer(channel, received[0]).run()
        except BaseException:  # noqa: BLE001 - a writer that lives on without its reader would never be replaced
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
