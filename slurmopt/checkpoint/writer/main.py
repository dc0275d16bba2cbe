"""The writer process of one rank: writes snapshots from shared memory to the tiers while the training continues.

The Checkpointer starts it as `python -m slurmopt.checkpoint.writer.main FD`, without torch or CUDA, at low CPU and I/O
priority. When its rank ends it completes the saves that have begun, and exits.
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
from slurmopt.checkpoint.commit.coordinator import Coordinator, TierTerms
from slurmopt.checkpoint.format.ledger import Fenced, checkpoint_name
from slurmopt.checkpoint.format.rank_payload import Place, RankPayload
from slurmopt.checkpoint.journal_events import note
from slurmopt.checkpoint.snapshot.arena import MappedArena
from slurmopt.checkpoint.tiers import Tier
from slurmopt.checkpoint.writer.channel import Channel
from slurmopt.checkpoint.writer.coordinator_client import CoordinatorClient
from slurmopt.checkpoint.writer.tier_probe import probe
from slurmopt.checkpoint.writer.tier_queue import Save, TierQueue
from slurmopt.checkpoint.writer.tier_writer import TierWriter
from slurmopt.errors import CheckpointError, SlurmoptError, StorageBroken, StorageRefused, one_line
from slurmopt.run_folder.access.open_folders import take_over

_NICE = 10
_IOPRIO_SET = {"x86_64": 251, "aarch64": 30}
_BEST_EFFORT_LAST = (2 << 13) | 7


class Writer:
    """Receives snapshots from the rank, and puts each into the queues of the tiers that it is due on."""

    def __init__(self, channel: Channel, setup: dict[str, Any]) -> None:
        self._channel = channel
        self._rank, self._journal = setup["rank"], Path(setup["journal"])
        take_over(setup["held"])
        self._attempt, self._first = setup["attempt"], setup["first"]
        tiers = [Tier.from_dict(tier) for tier in setup["tiers"]]
        rank, world_size = setup["rank"], setup["world_size"]
        self._committers = {
            tier.name: Committer(tier, self._attempt, world_size)
            for tier in tiers
            if rank in setup["committers"][tier.name]
        }
        self._tier_writers = {tier.name: TierWriter(tier, rank, world_size, setup["incremental"]) for tier in tiers}
        terms = {tier.name: TierTerms(setup["committers"][tier.name], tier.deadline) for tier in tiers}
        self._coordinator = (
            Coordinator(setup["world_size"], terms, self._report, setup["host"]) if self._rank == 0 else None
        )
        self._client: CoordinatorClient | None = None
        self._arena: MappedArena | None = None
        self._layout: list[Place] = []
        self._plan: dict[str, Any] = {}
        self._queues: dict[str, TierQueue] = {}
        self._background: queue.Queue[Callable[[], None] | None] = queue.Queue()

    def run(self) -> None:
        """Handles messages until the rank closes the channel or exits; then completes the saves that have begun."""
        self._open()
        background = threading.Thread(target=self._run_background, name="slurmopt-chores", daemon=True)
        background.start()
        self._queues = {
            name: TierQueue(name, partial(self._take, name), partial(self._drop_save, name))
            for name in self._tier_writers
        }
        while (received := self._channel.receive()) is not None:
            message, descriptor = received
            getattr(self, f"_do_{message['do']}")(message, descriptor)
        self._background.put(None)
        background.join()
        for tier_queue in self._queues.values():
            tier_queue.close()
        for tier_queue in self._queues.values():
            tier_queue.join()
        for target in self._tier_writers.values():
            target.wait_settled()
        if self._coordinator is not None:
            self._coordinator.wait_settled()

    def _open(self) -> None:
        """Opens the tiers, which fences older attempts, before the ranks look for a checkpoint to restore."""
        problems: dict[str, tuple[str, str]] = {}
        for name, committer in self._committers.items():
            try:
                committer.open(first=self._first)
                if self._first:
                    probe(committer.tier, self._attempt)
            except (SlurmoptError, OSError) as error:
                problems[name] = (_problem_kind(error), _reason(error))
        meeting = [self._coordinator.port, self._coordinator.key] if self._coordinator else None
        newest = max((committer.newest for committer in self._committers.values()), default=0)
        self._notify_rank({"is": "ready", "problems": problems, "meeting": meeting, "newest": newest})

    def _do_meet(self, message: dict[str, Any], _: int | None) -> None:
        if self._client is None or not self._client.is_connected_to(message["host"], message["port"]):
            key = bytes.fromhex(message["key"])
            try:
                self._client = CoordinatorClient(
                    self._rank,
                    message["host"],
                    message["port"],
                    key,
                    self._commit,
                    self._clean_up,
                    self._settled,
                    self._disconnected,
                )
            except OSError as error:  # saves fail with a message until it can be reached
                print(f"slurmopt: rank 0's checkpoint writer cannot be reached: {error}", file=sys.stderr, flush=True)
        self._notify_rank({"is": "met"})

    def _disconnected(self) -> None:
        self._notify_rank({"is": "cut"})

    def _do_arena(self, message: dict[str, Any], descriptor: int | None) -> None:
        assert descriptor is not None
        self._arena = MappedArena(descriptor, message["size"], message["buffers"])

    def _do_layout(self, message: dict[str, Any], _: int | None) -> None:
        self._layout, self._plan = [_place(values) for values in message["places"]], message

    def _run_background(self) -> None:
        """Runs tasks that may wait for storage in a thread, so that the rank's messages are handled at once."""
        while (task := self._background.get()) is not None:
            task()

    def _do_base(self, message: dict[str, Any], _: int | None) -> None:
        target = self._tier_writers[message["tier"]]
        target.hold()
        self._background.put(partial(self._base, target, message["commit"]))

    def _base(self, target: TierWriter, commit: dict[str, Any]) -> None:
        try:
            target.start_from(commit)
        except Exception as error:  # noqa: BLE001 - after any failure the next save writes everything
            print(f"slurmopt: the next checkpoint refers to nothing earlier: {error}", file=sys.stderr, flush=True)
        finally:
            target.release()

    def _do_set_aside(self, message: dict[str, Any], _: int | None) -> None:
        self._background.put(partial(self._set_aside, message["tier"], message["checkpoint"]))

    def _set_aside(self, tier: str, name: str) -> None:
        try:
            self._committers[tier].set_aside(name)
        except Exception as error:  # noqa: BLE001 - after any failure it will be found damaged again
            self._note("checkpoint-failed", tier=tier, reason=f"{name} cannot be set aside: {error}")

    def _do_save(self, message: dict[str, Any], _: int | None) -> None:
        places = self._layout + [_place(values) for values in message["objects"]]
        assert self._arena is not None
        memory = self._arena.buffer(message["buffer"])  # looked up now: the next save may use another arena
        released = partial(self._notify_rank, {"is": "released", "buffer": message["buffer"]})
        save = Save(message["step"], message["name"], message["tiers"], memory, places, released)
        save.tensors, save.describe = self._plan["own"], self._plan["describe"]
        if self._coordinator is not None:
            manifest = {**message["manifest"], **self._plan["shared"]}
            self._coordinator.announce(save.name, save.step, save.tiers, manifest)
        for tier in save.tiers:
            self._queues[tier].put(save)

    def _do_upload(self, message: dict[str, Any], _: int | None) -> None:
        """Copies a checkpoint of an earlier attempt to slower tiers that lack it, under a name of this attempt."""
        save = Save(message["step"], message["name"], message["tiers"], None, [], lambda: None)
        save.describe = message["describe"]
        if self._coordinator is not None:
            source = checkpoint_name(save.step, message["commit"]["unique"])
            needs = [source, *message["commit"]["references"]]
            self._coordinator.announce(save.name, save.step, save.tiers, message["manifest"], needs)
        self._background.put(partial(self._upload, save, self._tier_writers[message["lies_on"]], message["commit"]))

    def _upload(self, save: Save, lies_on: TierWriter, commit: dict[str, Any]) -> None:
        try:
            save.stored = lies_on.store, lies_on.payload_of(commit)
        except Exception as error:  # noqa: BLE001 - the other ranks must be told of any failure
            for tier in save.tiers:
                self._send({"failed": _reason(error)}, save, tier)
            return
        for tier in save.tiers:
            self._queues[tier].put(save)

    def _take(self, tier: str, save: Save) -> None:
        """Writes a save to one tier, from a faster tier that has it, else from the arena."""
        target = self._tier_writers[tier]
        target.wait_settled()
        save.wait_turn(tier)
        try:
            part = self._write(target, save)
        except Exception as error:  # noqa: BLE001 - the queue continues, and the other ranks are told
            save.finish(tier, None)
            self._send({"failed": _reason(error)}, save, tier)
            return
        target.add_pending(save.name, part)
        save.finish(tier, (target.store, part))
        self._send({"part": part.summary() if save.describe else part.as_json(), "tensors": save.tensors}, save, tier)

    def _write(self, target: TierWriter, save: Save) -> RankPayload:
        if save.stored is not None:
            return target.from_store(save.name, *save.stored, save.describe)
        assert save.memory is not None
        return target.from_arena(save.name, save.places, save.memory, save.describe)

    def _drop_save(self, tier: str, save: Save) -> None:
        save.finish(tier, None)
        self._send({"failed": "left out: newer checkpoints wait for this tier"}, save, tier)

    def _send(self, message: dict[str, Any], save: Save, tier: str) -> None:
        message.update(name=save.name, tier=tier, step=save.step)
        if self._client is None or not self._client.send(message):
            self._settled({"is": "failed", "reason": "rank 0's writer is gone", **message, "part": None})

    def _commit(self, message: dict[str, Any]) -> dict[str, Any]:
        """Commits a save of which all parts are durable; returns the answer to the coordinator."""
        try:
            self._committers[message["tier"]].commit(message["manifest"], message["commit"])
        except Exception as error:  # noqa: BLE001 - the coordinator must be told of any failure
            return {"failed": _reason(error), "fenced": isinstance(error, Fenced)}
        return {"sealed": True}

    def _clean_up(self, message: dict[str, Any]) -> None:
        """Prunes after a commit was answered, so that nobody waits for it."""
        tier = message["tier"]
        try:
            pruned = self._committers[tier].clean_up([*message["protected"], message["seal"]])
        except Exception as error:  # noqa: BLE001 - no checkpoint is at risk
            print(f"slurmopt: old checkpoints on {tier} could not be removed: {error}", file=sys.stderr, flush=True)
            return
        if pruned and self._rank == 0:
            self._note("checkpoint-pruned", tier=tier, checkpoints=pruned)

    def _settled(self, verdict: dict[str, Any]) -> None:
        """Handles the coordinator's verdict on a save to one tier."""
        if verdict["is"] == "failed" and verdict["tier"] in self._committers:
            self._committers[verdict["tier"]].mark_failed(verdict["name"])
        self._tier_writers[verdict["tier"]].settle(verdict["name"], committed=verdict["is"] == "committed")
        self._notify_rank(verdict)

    def _report(self, verdict: dict[str, Any]) -> None:
        words = {"step": verdict["step"], "tier": verdict["tier"], "checkpoint": verdict["name"]}
        if verdict["is"] == "committed":
            self._note("checkpoint", **words, bytes=verdict["bytes"], seconds=verdict["seconds"])
        else:
            self._note("checkpoint-failed", **words, reason=verdict["reason"])

    def _note(self, event: str, **fields: Any) -> None:
        note(self._journal, event, attempt=self._attempt, **fields)

    def _notify_rank(self, message: dict[str, Any]) -> None:
        try:
            self._channel.send(message)
        except ConnectionError:
            return  # the rank has exited; the saves that have begun are still completed


def _problem_kind(error: Exception) -> str:
    """Classifies a failure to open a tier: `fatal` ends the run, `broken` storage returns other bytes than were
    written, `lasting` remains until somebody fixes it, and `passing` may not affect the next save."""
    if isinstance(error, CheckpointError):
        return "fatal"
    if isinstance(error, StorageBroken):
        return "broken"
    return "lasting" if isinstance(error, StorageRefused) else "passing"


def _reason(error: Exception) -> str:
    """One line; includes the type of an unexpected error."""
    text = one_line(str(error))
    return text if isinstance(error, (SlurmoptError, OSError)) else f"{type(error).__name__}: {text}"


def _place(values: list[Any]) -> Place:
    name, offsets, sizes, start, length = values
    return Place(
        name, None if offsets is None else tuple(offsets), None if sizes is None else tuple(sizes), start, length
    )


def _lower_priority() -> None:
    """Yields CPU and disk to the training, and ignores the signals that end its ranks."""
    os.nice(_NICE)
    number = _IOPRIO_SET.get(os.uname().machine)
    if number is not None:  # best effort: otherwise the disk is shared evenly
        ctypes.CDLL(None).syscall(number, 1, 0, _BEST_EFFORT_LAST)
    for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(each, signal.SIG_IGN)


def main(argv: list[str]) -> int:
    _lower_priority()
    channel = Channel(socket.socket(fileno=int(argv[0])))
    received = channel.receive()
    if received is not None:
        try:
            Writer(channel, received[0]).run()
        except BaseException:  # noqa: BLE001 - a writer that cannot receive messages must exit to be replaced
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
