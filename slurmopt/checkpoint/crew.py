"""The writers of all ranks, as the Checkpointer sees them: started, fed, listened to, and replaced when they die."""

from __future__ import annotations

import math
import sys
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from statistics import median
from typing import Any

from slurmopt.checkpoint.agreement import Agreement
from slurmopt.checkpoint.arena import Arena
from slurmopt.checkpoint.background import Background
from slurmopt.checkpoint.journal import note
from slurmopt.checkpoint.part import Place
from slurmopt.checkpoint.recovery import Candidate
from slurmopt.checkpoint.route import route
from slurmopt.checkpoint.snapshots import Snapshot
from slurmopt.checkpoint.tiers import Tier
from slurmopt.config.checkpoint import Checkpoint
from slurmopt.errors import CheckpointError
from slurmopt.patience import patience
from slurmopt.runtime import signals
from slurmopt.runtime.run import CurrentRun
from slurmopt.units import human_seconds

_REMEMBERED = 100
_LOOK_EVERY = 0.5
_LAST_SECONDS = 10.0
"""At a stop, what is still on its way to a slower tier gets these seconds, and twice as long as it usually takes: what it
then lacks the next attempt brings there."""


class Crew:
    """This rank's writer, and what became of the saves that it was given."""

    def __init__(
        self,
        config: Checkpoint,
        tiers: list[Tier],
        run: CurrentRun,
        ranks: Agreement,
        freed: Callable[[int], None],
        durable: Callable[[str, int], None],
    ) -> None:
        self._config, self._tiers, self._run, self._ranks = config, tiers, run, ranks
        self._freed, self._durable = freed, durable
        self._writer: Background | None = None
        self._arena: Arena | None = None
        self._places: list[Place] | None = None
        self._settled = threading.Condition()
        self._open: dict[tuple[str, str], int] = {}
        self._outcomes: dict[tuple[str, str], bool] = {}
        self._failures, self._fenced, self._reason = 0, False, ""
        self._failing: set[str] = set()
        self._seconds: dict[str, deque[float]] = defaultdict(lambda: deque(maxlen=5))
        self._detour: list[str] = []
        self._taken: set[int] = set()
        self._is_cut = False
        self._first = True
        self._generation = 0
        self._put_off_since: float | None = None
        self.newest = 0
        leaders = [rank for rank, first in enumerate(ranks.gather(run.rank.local_rank == 0)) if first]
        self._sealers = {tier.name: leaders if tier.node_local else [0] for tier in tiers}
        self._host = self._ranks.from_first(run.rank.master_addr if run.rank.nodes > 1 else "127.0.0.1")

    def start(self) -> None:
        """Starts this rank's writer, or another in its place, and lets all writers meet. All ranks together."""
        if not self._tiers:
            return
        if self._writer is None or not self._writer.alive:
            self._replace_writer()
        assert self._writer is not None
        with patience("opening the places of the checkpoints"):
            self._writer.ready()
        states = self._ranks.gather(
            (self._writer.alive, self._writer.problems, self._writer.meeting, self._writer.newest)
        )
        self.newest = max(newest for *_, newest in states)
        for rank, (alive, problems, *_) in enumerate(states):
            if not alive:
                self._say(f"the checkpoint writer of rank {rank} ended as soon as it had begun")
            for tier, (refused, problem) in problems.items():
                if refused:
                    raise CheckpointError(problem)
                self._say(f"{tier}: {problem}; saves there are tried all the same")
        if states[0][2]:
            port, key = states[0][2]
            self._is_cut = False
            self._writer.meet(self._host, port, key)
            self._ranks.gather(None)  # a save that begins before all have met could wait in vain

    def _replace_writer(self) -> None:
        """What the old one had is lost, once it is gone for sure; nothing that it still says counts."""
        if self._writer is not None:
            self._writer.kill()
            self._forget_writer()
        self._generation += 1
        hear = partial(self._hear, self._generation)
        self._writer, self._arena, self._places = Background(self._setup(), hear), None, None
        self._first = False

    def _forget_writer(self) -> None:
        for name, tier in list(self._open):
            self._settle(name, tier, "the writer process is gone")
        for buffer in list(self._taken):
            self._taken.discard(buffer)
            self._freed(buffer)

    def condition(self) -> tuple[bool, bool, int, str]:
        """This rank's word for `check`: whether its writer lives and can reach rank 0's, whether it is
        fenced, failures in a row and why."""
        whole = self._writer is not None and self._writer.alive and not self._is_cut
        longest = 1.5 * max((tier.deadline for tier in self._tiers), default=0.0)
        if self._put_off_since is not None and time.monotonic() - self._put_off_since > longest:
            return whole, False, self._config.failures, f"no snapshot could be written for {longest:.0f} s"
        return whole, self._fenced, self._failures, self._reason

    def check(self, conditions: list[tuple[bool, bool, int, str]]) -> None:
        """Replaces writers that died, and ends the run where saving makes no sense any more. All ranks together."""
        for _, fenced, failures, reason in conditions:
            if fenced:
                raise CheckpointError(reason)
            if failures >= self._config.failures:
                raise CheckpointError(
                    f"{failures} saves in a row have failed (checkpoint.failures): {reason}; "
                    "mend that and launch the run again"
                )
        if not all(alive for alive, *_ in conditions):
            self.start()

    def route(self, due: list[str], buffers: int) -> list[str]:
        """The tiers that a save goes to which is due on `due`: rank 0's word, told where it changes."""
        names = [tier.name for tier in self._tiers]
        with self._settled:
            busy, failing = {tier for _, tier in self._open}, set(self._failing)
            at_risk = 2 * self._failures >= self._config.failures
        found = names if due and at_risk else route(due, names, busy, failing, buffers)
        more = [tier for tier in found if tier not in due]
        if more and more != self._detour:
            self._say(f"saves for {' and '.join(due)} go to {' and '.join(more)} too, until all is well there")
        self._detour = more if due else self._detour
        return found

    def set_aside(self, damaged: list[Candidate]) -> None:
        """Nobody may restore these again, nor refer to them."""
        for tier, commit, _ in damaged:
            if self._writer is not None and self._ranks.rank in self._sealers[tier]:
                self._writer.send({"do": "set_aside", "tier": tier, "checkpoint": commit.name})

    def start_from(self, restored: Candidate) -> None:
        """This checkpoint has been read and verified: the next may refer to it."""
        if self._writer is not None:
            self._writer.send({"do": "base", "tier": restored.tier, "commit": asdict(restored.commit)})

    def bring_home(self, restored: Candidate, lacking: list[str], name: str) -> None:
        """Slower tiers lack what was restored, because the attempt that saved it died: it goes there now."""
        if self._writer is None or not lacking:
            return
        commit = restored.commit
        manifest = self._manifest(commit.step, name, restored.tensors, commit.metrics)
        if manifest is not None:  # it is that very checkpoint, only elsewhere
            manifest |= {"world_size": commit.world_size, "attempt": commit.attempt, "time": commit.time}
        with self._settled:
            self._open.update({(name, tier): commit.step for tier in lacking})
        sent = self._writer.send(
            {"do": "upload", "step": commit.step, "name": name, "tiers": lacking}
            | {"lies_on": restored.tier, "commit": asdict(commit), "manifest": manifest}
        )
        if not sent:
            for tier in lacking:
                self._settle(name, tier, "the writer process is gone")

    def hand_over(self, step: int, name: str, due: list[str], snapshot: Snapshot, metrics: dict[str, float]) -> None:
        """Gives a snapshot to the writer."""
        assert self._writer is not None
        if snapshot.arena is not self._arena:
            self._arena = snapshot.arena
            self._writer.arena(snapshot.arena)
        if snapshot.places is not self._places:
            self._places = snapshot.places
            self._writer.send({"do": "layout", "places": snapshot.places})
        self._put_off_since = None
        manifest = self._manifest(step, name, snapshot.tensors, metrics)
        with self._settled:
            self._open.update({(name, tier): step for tier in due})
            self._taken.add(snapshot.buffer)
        sent = self._writer.send(
            {"do": "save", "step": step, "name": name, "tiers": due, "buffer": snapshot.buffer}
            | {"objects": snapshot.objects, "manifest": manifest}
        )
        if not sent:
            self._forget_writer()

    def left_out(self, step: int, due: list[str]) -> None:
        """All buffers are still being written; told once, not at each step until one is free."""
        if self._ranks.rank == 0 and self._put_off_since is None:
            reason = "put off: the save before it is still being written"
            for tier in due:
                self._note("checkpoint-failed", step=step, tier=tier, reason=reason)
        self._put_off_since = self._put_off_since or time.monotonic()

    def _note(self, event: str, **fields: Any) -> None:
        note(self._run.folder.events, event, attempt=self._run.attempt, **fields)

    def wait(self, name: str, tier: str) -> bool:
        """Waits until a save is settled on `tier`; whether it is durable there. Once there is no time left, any tier
        will do."""
        with self._settled, patience(f"waiting until {name} is durable on {tier}"):
            self._wait_for(lambda: (name, tier) not in self._open, lambda: self._durable_anywhere(name))
            return self._outcomes.get((name, tier), False) or (signals.pressed() and self._durable_anywhere(name))

    def _durable_anywhere(self, name: str) -> bool:
        return any(self._outcomes.get((name, tier.name)) for tier in self._tiers)

    def close(self) -> None:
        if self._writer is not None:
            longest = sum(tier.deadline for tier in self._tiers)
            with self._settled, patience(f"bringing the last checkpoints home, for {human_seconds(longest)} at most"):
                self._wait_for(lambda: not self._open, lambda: True, longest)
            self._writer.close(longest)
            self._writer = None

    def _wait_for(self, settled: Callable[[], bool], enough: Callable[[], bool], longest: float = math.inf) -> None:
        """Until `settled`. Another signal after the first means that Slurm ends the job soon: then until `enough`."""
        deadline = time.monotonic() + longest
        while not self._settled.wait_for(settled, timeout=_LOOK_EVERY):
            if (signals.pressed() and enough()) or time.monotonic() >= deadline:
                return

    def _setup(self) -> dict[str, Any]:
        return {
            "rank": self._ranks.rank,
            "world_size": self._ranks.world_size,
            "attempt": self._run.attempt,
            "first": self._first,
            "journal": str(self._run.folder.events),
            "tiers": [asdict(tier) for tier in self._tiers],
            "sealers": self._sealers,
            "host": "127.0.0.1" if self._host == "127.0.0.1" else "0.0.0.0",  # noqa: S104 - other nodes must reach it; a key is asked for
            "incremental": self._config.incremental,
        }

    def _manifest(
        self, step: int, name: str, tensors: dict[str, Any], metrics: dict[str, float]
    ) -> dict[str, Any] | None:
        """What the coordinator needs to know of a save besides what lies where; it sits with rank 0."""
        if self._ranks.rank != 0:
            return None
        return {
            "step": step,
            "attempt": self._run.attempt,
            "unique": name.rpartition("/")[2],
            "time": round(time.time(), 3),
            "world_size": self._ranks.world_size,
            "tensors": tensors,
            "metrics": metrics,
        }

    def _hear(self, generation: int, message: dict[str, Any]) -> None:
        """From the writer, on its thread."""
        if generation != self._generation:
            return
        if message["is"] == "released":
            self._taken.discard(message["buffer"])
            self._freed(message["buffer"])
        elif message["is"] == "cut":
            self._is_cut = True
        elif message["is"] == "committed":
            self._settle(message["name"], message["tier"], None)
        elif message["is"] == "failed":
            self._fenced |= message.get("fenced", False)
            self._settle(message["name"], message["tier"], message["reason"])
        elif message["is"] == "gone":
            self._forget_writer()

    def _settle(self, name: str, tier: str, problem: str | None) -> None:
        """`problem`: why it is not durable there."""
        with self._settled:
            step = self._open.pop((name, tier), None)
            if step is None:
                return
            self._outcomes[name, tier] = problem is None
            while len(self._outcomes) > _REMEMBERED:
                del self._outcomes[next(iter(self._outcomes))]
            self._count(name, problem)
            if problem is None:
                self._durable(tier, step)
            else:
                self._say(f"{name} was not saved to {tier}: {problem}")
            self._settled.notify_all()

    def _count(self, name: str, problem: str | None) -> None:
        """A save has failed where it is durable on no tier."""
        if problem is None:
            self._failures = 0
            return
        self._reason = problem
        durable = any(durable for (each, _), durable in self._outcomes.items() if each == name)
        if not durable and not any(each == name for each, _ in self._open):
            self._failures += 1

    def _say(self, text: str) -> None:
        if self._ranks.rank == 0:
            print(f"slurmopt: {text}", file=sys.stderr, flush=True)
