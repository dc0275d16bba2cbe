"""The writers of all ranks, as the Checkpointer sees them: started, fed, listened to, and replaced when they die."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Any

from slurmopt import log
from slurmopt.checkpoint.collectives import Collectives
from slurmopt.checkpoint.format.index import folded
from slurmopt.checkpoint.journal_events import note
from slurmopt.checkpoint.restore.recovery import Candidate
from slurmopt.checkpoint.snapshot.arena import Arena
from slurmopt.checkpoint.snapshot.layout import SnapshotPlan
from slurmopt.checkpoint.snapshot.snapshots import Snapshot
from slurmopt.checkpoint.tiers import Tier
from slurmopt.checkpoint.writer.outcomes import Outcomes
from slurmopt.checkpoint.writer.start_checks import refuse_unusable_tiers, unshared_folder
from slurmopt.checkpoint.writer.writer_process import WriterProcess
from slurmopt.config.checkpoint import Checkpoint
from slurmopt.errors import CheckpointError
from slurmopt.job import signals
from slurmopt.job.rendezvous.addresses import meeting_address
from slurmopt.job.worker.current_run import CurrentRun
from slurmopt.run_folder.open_folders import handed_on
from slurmopt.slow_notice import slow_notice
from slurmopt.units import human_seconds

_LAST_SECONDS = 5.0
"""At a stop, slower tiers get this long, and twice what they usually take."""


class WriterPool:
    """This rank's writer, and what became of the saves that it was given."""

    def __init__(
        self,
        config: Checkpoint,
        tiers: list[Tier],
        run: CurrentRun,
        ranks: Collectives,
        freed: Callable[[int], None],
        durable: Callable[[str, int], None],
    ) -> None:
        self._config, self._tiers, self._run, self._ranks = config, tiers, run, ranks
        self._freed = freed
        self._writer: WriterProcess | None = None
        self._arena: Arena | None = None
        self._plan: SnapshotPlan | None = None
        self._outcomes = Outcomes([tier.name for tier in tiers], self._say, durable)
        self._fenced, self._reason = False, ""
        self._last, self._lost = "", "the writer process is gone"
        self._taken: set[int] = set()
        self._is_cut = self._is_started = False
        self._first = True
        self._generation = 0
        self._put_off_since: float | None = None
        self.newest = 0
        leaders = [rank for rank, first in enumerate(ranks.gather(run.rank.local_rank == 0)) if first]
        self._sealers = {tier.name: leaders if tier.node_local else [0] for tier in tiers}
        self._host = self._ranks.from_first(meeting_address(run.rank, os.environ))

    def start(self) -> None:
        """Starts this rank's writer, or another in its place, and lets all writers meet. All ranks together."""
        if not self._tiers:
            return
        if self._writer is None or not self._writer.alive:
            self._replace_writer()
        assert self._writer is not None
        with slow_notice("opening the places of the checkpoints"):
            self._writer.ready()
        states = self._ranks.gather(
            (self._writer.alive, self._writer.problems, self._writer.meeting, self._writer.newest)
        )
        self.newest = max(newest for *_, newest in states)
        for rank, (alive, problems, *_) in enumerate(states):
            if not alive:
                self._say(f"the checkpoint writer of rank {rank} ended as soon as it had begun")
            for tier, (kind, problem) in problems.items():
                if kind == "fatal":
                    raise CheckpointError(problem)
                self._say(f"{tier}: {problem}; saves there are tried all the same")
        if not self._is_started:
            refuse_unusable_tiers([problems for _, problems, *_ in states], self._tiers, self._ranks.rank)
        if states[0][2]:
            port, key = states[0][2]
            self._is_cut = False
            self._writer.meet(self._host, port, key)
        # All ranks gather here: a save that begins before all writers have connected could wait for ever.
        problem = self._shared_folder_problem({tier for _, problems, *_ in states for tier in problems})
        if problem := next(filter(None, self._ranks.gather(problem)), None):
            raise CheckpointError(problem)
        self._is_started = True

    def _shared_folder_problem(self, failing: set[str]) -> str | None:
        is_checked = self._is_started or self._run.rank.node_rank == 0 or self._run.rank.local_rank != 0
        return None if is_checked else unshared_folder(self._tiers, failing, self._run)

    def _replace_writer(self) -> None:
        """What the old one had is lost, once it is gone for sure; nothing that it still says counts."""
        if self._writer is not None:
            self._writer.kill()
            self._forget_writer()
        self._generation += 1
        hear = partial(self._hear, self._generation)
        self._writer, self._arena, self._plan = WriterProcess(self._setup(), hear), None, None
        self._first = False

    def _forget_writer(self) -> None:
        for name, tier in self._outcomes.under_way():
            step = self._outcomes.settle(name, tier, self._lost)
            if self._ranks.rank == 0 and step is not None:  # with its writer, the coordinator has gone too
                self._note("checkpoint-failed", step=step, tier=tier, checkpoint=name, reason=self._lost)
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
        return whole, self._fenced, self._outcomes.failures, self._reason or self._outcomes.reason

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
        """The tiers that a save goes to which is due on `due`; rank 0's word."""
        return self._outcomes.route(due, buffers, self._config.failures)

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
        source = restored.manifest
        assert source is not None, "it was restored"
        manifest = self._manifest(commit.step, name, commit.metrics)
        if manifest is not None:  # it is that very checkpoint, only elsewhere
            manifest |= {"world_size": commit.world_size, "attempt": commit.attempt, "time": commit.time}
            manifest |= {
                "tensors": source.tensors,
                "spread": source.spread and folded(source.spread, self._ranks.world_size),
            }
        self._outcomes.begin(name, lacking, commit.step)
        sent = self._writer.send(
            {"do": "upload", "step": commit.step, "name": name, "tiers": lacking}
            | {"lies_on": restored.tier, "commit": asdict(commit), "manifest": manifest}
            | {"describe": source.spread is not None}
        )
        if not sent:
            for tier in lacking:
                self._outcomes.settle(name, tier, "the writer process is gone")

    def hand_over(self, step: int, name: str, due: list[str], snapshot: Snapshot, metrics: dict[str, float]) -> None:
        """Gives a snapshot to the writer."""
        assert self._writer is not None
        if snapshot.arena is not self._arena:
            self._arena = snapshot.arena
            self._writer.arena(snapshot.arena)
        plan = snapshot.plan
        if plan is not self._plan:
            self._plan = plan
            shared = {"tensors": plan.tensors, "spread": plan.spread} if self._ranks.rank == 0 else None
            self._writer.send(
                {"do": "layout", "places": plan.places, "own": plan.own, "describe": plan.describe, "shared": shared}
            )
        self._put_off_since = None
        manifest = self._manifest(step, name, metrics)
        self._outcomes.begin(name, due, step)
        self._taken.add(snapshot.buffer)
        self._last = name
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
        outcomes = self._outcomes
        with slow_notice(f"waiting until {name} is durable on {tier}"):
            outcomes.wait(lambda: self._is_settled(name, tier), lambda: outcomes.durable_anywhere(name))
        return outcomes.durable_on(name, tier) or (signals.pressed() and outcomes.durable_anywhere(name))

    def _is_settled(self, name: str, tier: str) -> bool:
        return (name, tier) not in self._outcomes.under_way()

    def close(self) -> None:
        """Brings home what is under way. At a stop slower tiers are not waited for longer than usual: they may be away,
        and the time is short."""
        if self._writer is None:
            return
        longest = sum(tier.deadline for tier in self._tiers)
        deadline = time.monotonic() + longest
        with slow_notice(f"bringing the last checkpoints home, for {human_seconds(longest)} at most"):
            if signals.requested():
                self._outcomes.wait(self._last_is_safe, lambda: self._outcomes.durable_anywhere(self._last), longest)
                deadline = min(deadline, time.monotonic() + _LAST_SECONDS + 2 * self._outcomes.usual_seconds())
            self._outcomes.wait(lambda: not self._outcomes.under_way(), lambda: True, deadline - time.monotonic())
        self._end_writer(deadline - time.monotonic())

    def abandon(self) -> None:
        """Ends the writer at once; whatever it has not brought home is lost."""
        if self._writer is not None:
            self._writer.kill()

    def _last_is_safe(self) -> bool:
        """Whether the last save is settled where `wait` waits for it."""
        tiers = [tier for name, tier in self._outcomes.under_way() if name == self._last]
        durable = self._outcomes.durable_anywhere(self._last)
        return not tiers or (durable and self._config.durable_tier not in tiers)

    def _end_writer(self, seconds: float) -> None:
        """Where everything is home it may still clean up; else it has what is left of the time, and no more."""
        assert self._writer is not None
        late = bool(self._outcomes.under_way())
        self._lost = "not there in time; the next attempt brings the newest one there"
        self._writer.close(min(_LAST_SECONDS, seconds) if late else max(_LAST_SECONDS, seconds))
        self._writer = None
        self._generation += 1
        self._forget_writer()

    def _setup(self) -> dict[str, Any]:
        return {
            "rank": self._ranks.rank,
            "world_size": self._ranks.world_size,
            "attempt": self._run.attempt,
            "first": self._first,
            "journal": str(self._run.folder.events),
            "held": handed_on(),
            "tiers": [asdict(tier) for tier in self._tiers],
            "sealers": self._sealers,
            "host": self._host,
            "incremental": self._config.incremental,
        }

    def _manifest(self, step: int, name: str, metrics: dict[str, float]) -> dict[str, Any] | None:
        """What the coordinator needs to know of a save besides its tensors; it sits with rank 0."""
        if self._ranks.rank != 0:
            return None
        return {
            "step": step,
            "attempt": self._run.attempt,
            "unique": name.rpartition("/")[2],
            "time": round(time.time(), 3),
            "world_size": self._ranks.world_size,
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
            self._outcomes.settle(message["name"], message["tier"], None, message["seconds"])
        elif message["is"] == "failed":
            if message.get("fenced", False):
                self._fenced, self._reason = True, message["reason"]
            self._outcomes.settle(message["name"], message["tier"], message["reason"])
        elif message["is"] == "gone":
            self._forget_writer()

    def _say(self, text: str) -> None:
        if self._ranks.rank == 0:
            log.warning(text)
