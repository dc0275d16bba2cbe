"""WriterPool: starts the writers of all ranks, gives them snapshots, tracks the results, replaces dead writers."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Any

from slurmopt import log
from slurmopt.checkpoint.collectives import Collectives
from slurmopt.checkpoint.format.index import fold_parts
from slurmopt.checkpoint.journal_events import note
from slurmopt.checkpoint.restore.recovery import Candidate
from slurmopt.checkpoint.snapshot.arena import Arena
from slurmopt.checkpoint.snapshot.snapshot_plan import SnapshotPlan
from slurmopt.checkpoint.snapshot.snapshots import Snapshot
from slurmopt.checkpoint.tiers import Tier
from slurmopt.checkpoint.writer.outcomes import Outcomes
from slurmopt.checkpoint.writer.writer_process import WriterProcess
from slurmopt.checkpoint.writer.writer_start import refuse_unusable_tiers, unshared_folder
from slurmopt.config.checkpoint import Checkpoint
from slurmopt.errors import CheckpointError
from slurmopt.job import signals
from slurmopt.job.rendezvous.addresses import meeting_address
from slurmopt.job.worker.current_run import CurrentRun
from slurmopt.run_folder.access.open_folders import handed_on
from slurmopt.slow_notice import slow_notice
from slurmopt.units import human_seconds

_LAST_SECONDS = 5.0
"""At a stop, slower tiers get these seconds plus twice their usual duration."""


class WriterPool:
    """This rank's writer and the outcomes of its saves. `start` and `check` are collective calls of all ranks."""

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
        self._outcomes = Outcomes([tier.name for tier in tiers], self._log, durable)
        self._fenced, self._reason = False, ""
        self._last, self._lost = "", "the writer process is gone"
        self._busy_buffers: set[int] = set()
        self._is_disconnected = self._is_started = False
        self._first = True
        self._generation = 0
        self._postponed_since: float | None = None
        self.newest = 0
        leaders = [rank for rank, first in enumerate(ranks.gather(run.rank.local_rank == 0)) if first]
        self._committers = {tier.name: leaders if tier.node_local else [0] for tier in tiers}
        self._host = self._ranks.broadcast_from_first(meeting_address(run.rank, os.environ))

    def start(self) -> None:
        """Starts or replaces this rank's writer, and connects all writers. A collective call."""
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
            self._report_writer(rank, alive, problems)
        if not self._is_started:
            refuse_unusable_tiers([problems for _, problems, *_ in states], self._tiers, self._ranks.rank)
        if states[0][2]:
            port, key = states[0][2]
            self._is_disconnected = False
            self._writer.connect(self._host, port, key)
        # All ranks gather here: a save that begins before all writers have connected could wait for ever.
        problem = self._shared_folder_problem({tier for _, problems, *_ in states for tier in problems})
        if problem := next(filter(None, self._ranks.gather(problem)), None):
            raise CheckpointError(problem)
        self._is_started = True

    def _report_writer(self, rank: int, alive: bool, problems: dict[str, tuple[str, str]]) -> None:
        if not alive:
            self._log(f"the checkpoint writer of rank {rank} ended as soon as it had begun")
        for tier, (kind, problem) in problems.items():
            if kind == "fatal":
                raise CheckpointError(problem)
            self._log(f"{tier}: {problem}; saves there are tried anyway")

    def _shared_folder_problem(self, failing: set[str]) -> str | None:
        is_checked = self._is_started or self._run.rank.node_rank == 0 or self._run.rank.local_rank != 0
        return None if is_checked else unshared_folder(self._tiers, failing, self._run)

    def _replace_writer(self) -> None:
        """Kills the old writer, settles its saves as failed, and ignores its later messages."""
        if self._writer is not None:
            self._writer.kill()
            self._settle_lost_saves()
        self._generation += 1
        on_message = partial(self._on_message, self._generation)
        self._writer, self._arena, self._plan = WriterProcess(self._setup(), on_message), None, None
        self._first = False

    def _settle_lost_saves(self) -> None:
        for name, tier in self._outcomes.under_way():
            step = self._outcomes.settle(name, tier, self._lost)
            if self._ranks.rank == 0 and step is not None:  # the coordinator was in this writer
                self._note("checkpoint-failed", step=step, tier=tier, checkpoint=name, reason=self._lost)
        for buffer in list(self._busy_buffers):
            self._busy_buffers.discard(buffer)
            self._freed(buffer)

    def condition(self) -> tuple[bool, bool, int, str]:
        """This rank's argument for `check`: whether its writer lives and is connected to rank 0's, whether it is
        fenced, the number of failures in a row, and their reason."""
        whole = self._writer is not None and self._writer.alive and not self._is_disconnected
        longest = 1.5 * max((tier.deadline for tier in self._tiers), default=0.0)
        if self._postponed_since is not None and time.monotonic() - self._postponed_since > longest:
            return whole, False, self._config.failures, f"no snapshot could be written for {longest:.0f} s"
        return whole, self._fenced, self._outcomes.failures, self._reason or self._outcomes.reason

    def check(self, conditions: list[tuple[bool, bool, int, str]]) -> None:
        """Replaces dead writers, and raises CheckpointError where saves cannot succeed any more. A collective call."""
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
        """The tiers for a save that is due on `due`; only rank 0 decides."""
        return self._outcomes.route(due, buffers, self._config.failures)

    def set_aside(self, damaged: list[Candidate]) -> None:
        """Marks checkpoints as damaged, so that they are neither restored nor referenced again."""
        for tier, commit, _ in damaged:
            if self._writer is not None and self._ranks.rank in self._committers[tier]:
                self._writer.send({"do": "set_aside", "tier": tier, "checkpoint": commit.name})

    def use_as_base(self, restored: Candidate) -> None:
        """Allows the next save to reference this checkpoint, which has been read and verified."""
        if self._writer is not None:
            self._writer.send({"do": "base", "tier": restored.tier, "commit": asdict(restored.commit)})

    def upload_missing(self, restored: Candidate, lacking: list[str], name: str) -> None:
        """Copies the restored checkpoint to slower tiers, which lack it because the attempt that saved it died."""
        if self._writer is None or not lacking:
            return
        commit = restored.commit
        source = restored.manifest
        assert source is not None, "it was restored"
        manifest = self._manifest(commit.step, name, commit.metrics)
        if manifest is not None:  # it remains the same checkpoint, in another place
            manifest |= {"world_size": commit.world_size, "attempt": commit.attempt, "time": commit.time}
            manifest |= {
                "tensors": source.tensors,
                "spread": source.spread and fold_parts(source.spread, self._ranks.world_size),
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

    def save_snapshot(
        self, step: int, name: str, due: list[str], snapshot: Snapshot, metrics: dict[str, float]
    ) -> None:
        """Passes a snapshot to the writer."""
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
        self._postponed_since = None
        manifest = self._manifest(step, name, metrics)
        self._outcomes.begin(name, due, step)
        self._busy_buffers.add(snapshot.buffer)
        self._last = name
        sent = self._writer.send(
            {"do": "save", "step": step, "name": name, "tiers": due, "buffer": snapshot.buffer}
            | {"objects": snapshot.objects, "manifest": manifest}
        )
        if not sent:
            self._settle_lost_saves()

    def postponed(self, step: int, due: list[str]) -> None:
        """Records that a save is postponed because all buffers are in use; once, not at each step."""
        if self._ranks.rank == 0 and self._postponed_since is None:
            reason = "put off: the save before it is still being written"
            for tier in due:
                self._note("checkpoint-failed", step=step, tier=tier, reason=reason)
        self._postponed_since = self._postponed_since or time.monotonic()

    def _note(self, event: str, **fields: Any) -> None:
        note(self._run.folder.events, event, attempt=self._run.attempt, **fields)

    def wait(self, name: str, tier: str) -> bool:
        """Waits until a save is settled on `tier`, and returns whether it is durable there. When the job is about to be
        killed, any tier is sufficient."""
        outcomes = self._outcomes
        with slow_notice(f"waiting until {name} is durable on {tier}"):
            outcomes.wait(lambda: self._is_settled(name, tier), lambda: outcomes.durable_anywhere(name))
        return outcomes.durable_on(name, tier) or (signals.pressed() and outcomes.durable_anywhere(name))

    def _is_settled(self, name: str, tier: str) -> bool:
        return (name, tier) not in self._outcomes.under_way()

    def close(self) -> None:
        """Waits for the saves in progress, and ends the writer. At a stop it waits for slower tiers no longer than they
        usually take, since they may be unreachable and time is short."""
        if self._writer is None:
            return
        longest = sum(tier.deadline for tier in self._tiers)
        deadline = time.monotonic() + longest
        with slow_notice(f"waiting for the last saves to become durable, for {human_seconds(longest)} at most"):
            if signals.requested():
                self._outcomes.wait(self._is_last_durable, lambda: self._outcomes.durable_anywhere(self._last), longest)
                deadline = min(deadline, time.monotonic() + _LAST_SECONDS + 2 * self._outcomes.usual_seconds())
            self._outcomes.wait(lambda: not self._outcomes.under_way(), lambda: True, deadline - time.monotonic())
        self._stop_writer(deadline - time.monotonic())

    def abandon(self) -> None:
        """Kills the writer; saves that are not durable are lost."""
        if self._writer is not None:
            self._writer.kill()

    def _is_last_durable(self) -> bool:
        """Whether the last save is settled on the tier that `wait` waits for."""
        tiers = [tier for name, tier in self._outcomes.under_way() if name == self._last]
        durable = self._outcomes.durable_anywhere(self._last)
        return not tiers or (durable and self._config.durable_tier not in tiers)

    def _stop_writer(self, seconds: float) -> None:
        """Gives the writer time to clean up where all saves are settled, else only the remaining time."""
        assert self._writer is not None
        late = bool(self._outcomes.under_way())
        self._lost = "not there in time; the next attempt brings the newest one there"
        self._writer.close(min(_LAST_SECONDS, seconds) if late else max(_LAST_SECONDS, seconds))
        self._writer = None
        self._generation += 1
        self._settle_lost_saves()

    def _setup(self) -> dict[str, Any]:
        return {
            "rank": self._ranks.rank,
            "world_size": self._ranks.world_size,
            "attempt": self._run.attempt,
            "first": self._first,
            "journal": str(self._run.folder.events),
            "held": handed_on(),
            "tiers": [asdict(tier) for tier in self._tiers],
            "committers": self._committers,
            "host": self._host,
            "incremental": self._config.incremental,
        }

    def _manifest(self, step: int, name: str, metrics: dict[str, float]) -> dict[str, Any] | None:
        """The fields of the manifest besides its tensors, for the coordinator; None on all ranks but 0."""
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

    def _on_message(self, generation: int, message: dict[str, Any]) -> None:
        """Handles a message of the writer, on the listening thread."""
        if generation != self._generation:
            return
        if message["is"] == "released":
            self._busy_buffers.discard(message["buffer"])
            self._freed(message["buffer"])
        elif message["is"] == "cut":
            self._is_disconnected = True
        elif message["is"] == "committed":
            self._outcomes.settle(message["name"], message["tier"], None, message["seconds"])
        elif message["is"] == "failed":
            if message.get("fenced", False):
                self._fenced, self._reason = True, message["reason"]
            self._outcomes.settle(message["name"], message["tier"], message["reason"])
        elif message["is"] == "gone":
            self._settle_lost_saves()

    def _log(self, text: str) -> None:
        if self._ranks.rank == 0:
            log.warning(text)
