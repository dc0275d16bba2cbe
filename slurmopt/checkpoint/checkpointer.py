"""Checkpointer: the class that training code calls to save and restore its state."""

from __future__ import annotations

import math
import operator
import secrets
import time
from collections.abc import Mapping
from dataclasses import replace
from types import TracebackType
from typing import Any, NoReturn

from slurmopt import log
from slurmopt.checkpoint.collectives import Collectives
from slurmopt.checkpoint.device import wait_for_queued_work
from slurmopt.checkpoint.format.ledger import checkpoint_name
from slurmopt.checkpoint.restore.recovery import Recovery
from slurmopt.checkpoint.schedule import Decision, Schedule
from slurmopt.checkpoint.snapshot.snapshots import Collected, Snapshots, StateSummary
from slurmopt.checkpoint.tiers import tiers_of
from slurmopt.checkpoint.writer.writer_pool import WriterPool
from slurmopt.config.checkpoint import check_packages, checkpoint_of
from slurmopt.errors import CheckpointError, Requeue
from slurmopt.job.heartbeat.activity_clock import CHECKPOINT, SAVING
from slurmopt.job.worker.coordinated_stop import CoordinatedStop
from slurmopt.job.worker.current_run import CurrentRun, leave_word, phase
from slurmopt.job.worker.measure import spending

_LAST_STEP = 10**15
_REMEMBERED = 100


class Checkpointer:
    """Saves the state of a training asynchronously, and restores the newest complete checkpoint.

        with Checkpointer(config.checkpoint, slurmopt.current_run()) as checkpointer:
            step = checkpointer.restore(state)
            while step < steps:
                ...
                step += 1
                checkpointer.save(step, state)

    `state` is a dict of objects with `state_dict` and `load_state_dict` (model, optimizer, sampler, `rng_state()`) and
    of plain values and tensors. All ranks call the same methods with the same steps. A save blocks the training for one
    copy into host memory; a writer process writes it to the tiers. A failed save is logged and does not stop the
    training, unless `checkpoint.failures` saves in a row fail.

    When the job is about to end, `save` ends the training: at a step that all ranks agree on, it saves, waits until the
    checkpoint is durable, and raises `Requeue`.
    """

    def __init__(self, config: Any, run: CurrentRun) -> None:
        """`config`: the group `checkpoint`, as composed, as a plain dict, or as the dataclass.

        Tests each tier with a small file. Raises ConfigError for an invalid value and for a missing package that a tier
        needs; CheckpointError where no tier can be written until somebody fixes it, or where another process or a newer
        attempt saves the same run.
        """
        self._config = checkpoint_of(config)
        check_packages(self._config)
        self._run = run
        self._tiers = tiers_of(self._config, run.folder)
        self._ranks = Collectives(run.rank)
        self._schedule = Schedule(self._tiers, self._config.mtbf_seconds, time.monotonic)
        longest = max((tier.deadline for tier in self._tiers), default=0.0)
        self._snapshots = Snapshots(self._config.buffers, self._ranks, run.rank.local_world_size, 1.5 * longest)
        self._writers = WriterPool(self._config, self._tiers, run, self._ranks, self._snapshots.free, self._durable)
        self._last: tuple[str, list[str]] | None = None
        self._began: dict[int, float] = {}
        self._buffers = self._config.buffers  # the smallest number on any rank, as of the last exchange
        self._restored = self._closed = False
        try:
            self._writers.start()
            # Over the group, not through the run folder, which a container need not mount on each rank.
            key = self._ranks.broadcast_from_first(secrets.token_bytes(32))
            self._stop = CoordinatedStop(self._ranks.rank, self._ranks.world_size, key)
        except BaseException:  # also StorageBroken and KeyboardInterrupt
            self._writers.abandon()  # the caller gets no Checkpointer to close
            raise

    def __enter__(self) -> Checkpointer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def restore(self, state: dict[str, Any], *, before: int | None = None) -> int:
        """Loads the newest checkpoint that is complete and undamaged, from any tier; returns its step, 0 for none.

        Plain values are replaced in `state` itself. A damaged checkpoint is set aside, with a journal event, and the
        one before it is loaded. `before`: only those of earlier steps than this one. Raises CheckpointError where the
        state does not fit, or where checkpoints exist but none can be loaded: a training must not start over unnoticed.
        """
        with phase("restoring"):
            return self._restore(state, before)

    def _restore(self, state: dict[str, Any], before: int | None) -> int:
        recovery = Recovery(self._tiers, self._run, self._ranks, before)
        try:
            step = recovery.restore(state)
        finally:
            self._writers.set_aside(recovery.damaged)
        self._restored = True
        self._schedule.begin(step)
        if self._tiers:
            self._snapshots.prepare(state)
        if recovery.restored is not None:
            if recovery.known_everywhere():
                self._writers.use_as_base(recovery.restored)
            name = checkpoint_name(step, self._ranks.broadcast_from_first(self._unique()))
            self._writers.upload_missing(recovery.restored, recovery.lacking(), name)
        return step

    def save(
        self, step: int, state: dict[str, Any], *, metrics: dict[str, float] | None = None, force: bool = False
    ) -> bool:
        """Saves to the tiers that are due at `step`, or to all of them with `force`. Call it after each step.

        Returns once the snapshot is taken: True, or False where none was due. `metrics` are used for `best` and shown
        by commands. Raises CheckpointError for a state that cannot be saved, and after too many failed saves in a row;
        Requeue once the job is about to end and this step is saved.
        """
        step = _step(step)
        if self._closed:
            raise CheckpointError("this Checkpointer is closed; save before the end of its with block")
        if not self._tiers:
            return False
        if self._stop.due(step):
            self._save_and_requeue(step, state, metrics)
        return (force or not self._schedule.is_before_next_check(step)) and self._save(step, state, metrics, force)

    def _save_and_requeue(self, step: int, state: dict[str, Any], metrics: dict[str, float] | None) -> NoReturn:
        """The last save of an attempt. The attempt ends even if it fails, since its time is over."""
        with phase(SAVING):
            durable = self._save(step, state, metrics, force=True) and self.wait()
        leave_word()
        raise Requeue(f"{'saved' if durable else 'could not save'} step {step} before the job ends")

    def _save(self, step: int, state: dict[str, Any], metrics: dict[str, float] | None, force: bool) -> bool:
        numbers = _numbers(metrics or {})  # not earlier: reading a tensor on a GPU waits for it
        self._warn_if_not_restored()
        wait_for_queued_work()  # the training would wait for that without a save too
        with spending(CHECKPOINT):
            return self._save_now(step, state, numbers, force)

    def _save_now(self, step: int, state: dict[str, Any], numbers: dict[str, float], force: bool) -> bool:
        began = time.monotonic()
        has_free_buffer = self._snapshots.has_free_buffer(wait=force)
        # Collected before the exchange where the save is expected, so that one exchange is enough. On all ranks or
        # none, with a free buffer or not: a state_dict may be a collective operation, as FSDP1's is.
        collected = self._snapshots.collect(state) if self._schedule.will_save(step, force) else None
        decision, summaries = self._exchange_decision(step, force, has_free_buffer, collected)
        if not decision.due:
            self._schedule.follow(decision)
            return False
        if summaries is None:
            self._writers.postponed(step, decision.due)
            self._schedule.postpone(decision, step)
            return False
        self._schedule.follow(decision)
        if collected is None or None in summaries:
            collected = collected or self._snapshots.collect(state)
            summaries = self._ranks.gather(collected.summary)
        taken = self._snapshots.take(state, collected, [summary for summary in summaries if summary is not None])
        name = checkpoint_name(step, decision.unique)
        self._began = {step: began, **dict(list(self._began.items())[:_REMEMBERED])}
        self._writers.save_snapshot(step, name, decision.due, taken, numbers)
        self._last = (name, decision.due)
        self._schedule.saved(decision.due, step, time.monotonic() - began if taken.was_planned else math.nan)
        self._log_intervals()
        return True

    def _exchange_decision(
        self, step: int, force: bool, has_free_buffer: bool, collected: Collected | None
    ) -> tuple[Decision, list[StateSummary | None] | None]:
        """Rank 0's decision, and each rank's summary of its state, if it has collected one; None instead of the list
        where a rank has no free buffer. One exchange, since the training is blocked meanwhile."""
        decision = self._decide(step, force) if self._ranks.rank == 0 else None
        summary = None if collected is None else collected.summary
        own = step, decision, self._writers.condition(), self._snapshots.buffers, (has_free_buffer, summary)
        summaries = self._ranks.gather(own, long=force)  # a rank may wait for its buffer
        steps = [each for each, *_ in summaries]
        if len(set(steps)) > 1:
            odd = next(rank for rank, each in enumerate(steps) if each != steps[0])
            raise CheckpointError(
                f"rank 0 saves step {steps[0]} and rank {odd} step {steps[odd]}; all ranks must save the same steps"
            )
        self._writers.check([condition for _, _, condition, *_ in summaries])
        self._buffers = min(buffers for *_, buffers, _ in summaries)
        states = [state for *_, state in summaries]
        return summaries[0][1], [summary for _, summary in states] if all(there for there, _ in states) else None

    def _decide(self, step: int, force: bool) -> Decision:
        decision = self._schedule.decide(step, force)
        return replace(decision, due=self._writers.route(decision.due, self._buffers), unique=self._unique())

    def wait(self) -> bool:
        """Waits until the last save is durable on the tier of `checkpoint.durable`, or on the slowest tier that it was
        due on. Returns False where it failed there."""
        if self._last is None:
            return True
        name, due = self._last
        tier = self._config.durable_tier
        with spending(CHECKPOINT):
            return self._writers.wait(name, tier if tier in due else due[-1])

    def close(self) -> None:
        """Waits for the saves that have begun, and ends the writer process."""
        self._closed = True
        with spending(SAVING):
            self._stop.close()
            self._writers.close()
            self._snapshots.close()
            self._ranks.close()

    def _durable(self, tier: str, step: int) -> None:
        """Called from the writer's thread when a save has become durable."""
        began = self._began.get(step)
        if began is not None:
            self._schedule.durable(tier, time.monotonic() - began)

    def _warn_if_not_restored(self) -> None:
        if not self._restored and self._writers.newest:
            self._restored = True  # log it once
            if self._ranks.rank == 0:
                line = f"this run has checkpoints up to step {self._writers.newest:,}, and restore() was not called"
                log.warning(line)

    def _log_intervals(self) -> None:
        if self._ranks.rank == 0:
            for line in self._schedule.changed_intervals():
                log.info(f"checkpoints to {line}")

    def _unique(self) -> str:
        return f"a{self._run.attempt:04d}-{secrets.token_hex(4)}"


def _step(step: Any) -> int:
    try:
        number = operator.index(step)
    except TypeError:
        number = -1
    if not 0 <= number <= _LAST_STEP:
        raise CheckpointError(f"save: {step!r} is not a step; valid: a whole number from 0 to {_LAST_STEP:,}")
    return number


def _numbers(metrics: Mapping[str, Any]) -> dict[str, float]:
    numbers = {}
    for name, value in metrics.items():
        try:
            numbers[str(name)] = float(value)
        except (TypeError, ValueError, OverflowError, RuntimeError) as error:
            raise CheckpointError(f"save: metrics[{name!r}] is not a number but a {type(value).__name__}") from error
    return numbers
