"""`Checkpointer`: what training code calls."""

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
from slurmopt.checkpoint.snapshot.snapshots import Collected, Snapshots, Word
from slurmopt.checkpoint.tiers import tiers_of
from slurmopt.checkpoint.writer.writer_pool import WriterPool
from slurmopt.config.checkpoint import check_packages, checkpoint_of
from slurmopt.errors import CheckpointError, Requeue
from slurmopt.job.worker.coordinated_stop import CoordinatedStop
from slurmopt.job.worker.current_run import CurrentRun, leave_word, phase
from slurmopt.units import seconds

_LAST_STEP = 10**15
_REMEMBERED = 100


class Checkpointer:
    """Saves a training's state behind its back, and finds the newest state that is whole.

        with Checkpointer(config.checkpoint, slurmopt.current_run()) as checkpointer:
            step = checkpointer.restore(state)
            while step < steps:
                ...
                step += 1
                checkpointer.save(step, state)

    `state` is a dict of anything with `state_dict` and `load_state_dict` (model, optimizer, sampler, `rng_state()`) and
    of plain values and tensors. All ranks call the same methods with the same steps. A save costs the training one copy
    into host memory; a writer process brings it to the tiers. A failed save is told and does not stop the training,
    unless `checkpoint.failures` of them follow each other.

    When the job is about to end, `save` is where the training leaves: at one step that all ranks agree on it saves,
    waits until that is durable, and raises `Requeue`.
    """

    def __init__(self, config: Any, run: CurrentRun) -> None:
        """`config`: the group `checkpoint`, as composed, as a plain dict, or as the dataclass.

        Each tier is tried by a small round trip. Raises ConfigError for a bad value and for a package that a tier needs
        and this Python lacks; CheckpointError where no tier takes a save and none will until somebody mends it, where
        another process saves the same run, or a newer attempt does.
        """
        self._config = checkpoint_of(config)
        check_packages(self._config)
        self._run = run
        self._tiers = tiers_of(self._config, run.folder)
        self._ranks = Collectives(run.rank)
        self._schedule = Schedule(self._tiers, float(seconds(self._config.mtbf)), time.monotonic)
        longest = max((tier.deadline for tier in self._tiers), default=0.0)
        self._snapshots = Snapshots(self._config.buffers, self._ranks, run.rank.local_world_size, 1.5 * longest)
        self._crew = WriterPool(self._config, self._tiers, run, self._ranks, self._snapshots.free, self._durable)
        self._last: tuple[str, list[str]] | None = None
        self._began: dict[int, float] = {}
        self._buffers = self._config.buffers  # of the rank that has fewest, as last heard
        self._restored = self._closed = False
        try:
            self._crew.start()
            # Over the group, not by the run folder: a container of the user's need not show that to each rank.
            key = self._ranks.from_first(secrets.token_bytes(32))
            self._stop = CoordinatedStop(self._ranks.rank, self._ranks.world_size, key)
        except BaseException:  # StorageBroken and an interrupt, too
            self._crew.abandon()  # nobody could close it: the caller gets no Checkpointer
            raise

    def __enter__(self) -> Checkpointer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def restore(self, state: dict[str, Any]) -> int:
        """Loads the newest checkpoint that is complete and whole, wherever it lies; returns its step, 0 for none.

        Plain values are replaced in `state` itself. A damaged checkpoint is set aside, with an event, and the one
        before it is taken. Raises CheckpointError where the state does not fit, or where nothing that was saved is
        whole: nobody wants to start over without knowing.
        """
        with phase("restoring"):
            return self._restore(state)

    def _restore(self, state: dict[str, Any]) -> int:
        recovery = Recovery(self._tiers, self._run, self._ranks)
        try:
            step = recovery.restore(state)
        finally:
            self._crew.set_aside(recovery.damaged)
        self._restored = True
        self._schedule.begin(step)
        if self._tiers:
            self._snapshots.prepare(state)
        if recovery.found is not None:
            if recovery.known_everywhere():
                self._crew.start_from(recovery.found)
            name = checkpoint_name(step, self._ranks.from_first(self._unique()))
            self._crew.bring_home(recovery.found, recovery.lacking(), name)
        return step

    def save(
        self, step: int, state: dict[str, Any], *, metrics: dict[str, float] | None = None, force: bool = False
    ) -> bool:
        """Saves where the config has it due at `step`, or everywhere with `force`; call it after each step.

        Returns when the snapshot is taken: whether one was. `metrics` are for `best` and for people. Raises
        CheckpointError for a state that cannot be saved, and once too many saves in a row have failed; Requeue once the
        job has been told to end and this step is saved.
        """
        step = _step(step)
        if self._closed:
            raise CheckpointError("this Checkpointer is closed; save before the end of its with block")
        if not self._tiers:
            return False
        if self._stop.due(step):
            self._leave(step, state, metrics)
        return (force or not self._schedule.silent(step)) and self._save(step, state, metrics, force)

    def _leave(self, step: int, state: dict[str, Any], metrics: dict[str, float] | None) -> NoReturn:
        """The last save of an attempt. Where it fails the attempt ends all the same: its time is over."""
        with phase("saving"):
            durable = self._save(step, state, metrics, force=True) and self.wait()
        leave_word()
        raise Requeue(f"{'saved' if durable else 'could not save'} step {step} before the job ends")

    def _save(self, step: int, state: dict[str, Any], metrics: dict[str, float] | None, force: bool) -> bool:
        numbers = _numbers(metrics or {})  # only now: a tensor on a GPU is waited for
        self._warn_of_forgotten()
        wait_for_queued_work()  # the training would wait for that without a save, too
        began = time.monotonic()
        room = self._snapshots.room(wait=force)
        # Where it will be due, before all have agreed on it: then one exchange is enough. On all ranks or none, whether
        # this one has room or not: a state_dict may be one that all ranks make together, as FSDP1's.
        collected = self._snapshots.collect(state) if self._schedule.expects(step, force) else None
        decision, told = self._agreed(step, force, room, collected)
        if not decision.due:
            self._schedule.follow(decision)
            return False
        if told is None:
            self._crew.left_out(step, decision.due)
            self._schedule.put_off(decision, step)
            return False
        self._schedule.follow(decision)
        if collected is None or None in told:
            collected = collected or self._snapshots.collect(state)
            told = self._ranks.gather(collected.word)
        taken = self._snapshots.take(state, collected, [word for word in told if word is not None])
        name = checkpoint_name(step, decision.unique)
        self._began = {step: began, **dict(list(self._began.items())[:_REMEMBERED])}
        self._crew.hand_over(step, name, decision.due, taken, numbers)
        self._last = (name, decision.due)
        self._schedule.saved(decision.due, step, time.monotonic() - began if taken.was_planned else math.nan)
        self._tell_rhythm()
        return True

    def _agreed(
        self, step: int, force: bool, room: bool, collected: Collected | None
    ) -> tuple[Decision, list[Word | None] | None]:
        """Rank 0's decision, and each rank's word of its state, if it has one by now; None where one of them has no
        buffer for it. One exchange, for it is blocked time."""
        decision = self._decided(step, force) if self._ranks.rank == 0 else None
        word = None if collected is None else collected.word
        mine = step, decision, self._crew.condition(), self._snapshots.buffers, (room, word)
        told = self._ranks.gather(mine, long=force)  # one of them may wait for its buffer
        steps = [each for each, *_ in told]
        if len(set(steps)) > 1:
            odd = next(rank for rank, each in enumerate(steps) if each != steps[0])
            raise CheckpointError(
                f"rank 0 saves step {steps[0]} and rank {odd} step {steps[odd]}; all ranks must save the same steps"
            )
        self._crew.check([condition for _, _, condition, *_ in told])
        self._buffers = min(buffers for *_, buffers, _ in told)
        states = [state for *_, state in told]
        return told[0][1], [word for _, word in states] if all(there for there, _ in states) else None

    def _decided(self, step: int, force: bool) -> Decision:
        decision = self._schedule.decide(step, force)
        return replace(decision, due=self._crew.route(decision.due, self._buffers), unique=self._unique())

    def wait(self) -> bool:
        """Waits until the last save is durable on the tier of `checkpoint.durable`, or on the slowest that it was due
        on; False where it failed there."""
        if self._last is None:
            return True
        name, due = self._last
        tier = self._config.durable_tier
        return self._crew.wait(name, tier if tier in due else due[-1])

    def close(self) -> None:
        """Brings everything home that was begun, and ends the writer process."""
        self._closed = True
        self._stop.close()
        self._crew.close()
        self._snapshots.close()
        self._ranks.close()

    def _durable(self, tier: str, step: int) -> None:
        """A save has become durable; from the writer, on another thread."""
        began = self._began.get(step)
        if began is not None:
            self._schedule.durable(tier, time.monotonic() - began)

    def _warn_of_forgotten(self) -> None:
        if not self._restored and self._crew.newest:
            self._restored = True  # said once
            if self._ranks.rank == 0:
                line = f"this run has checkpoints up to step {self._crew.newest:,}, and restore() was not called"
                log.warning(line)

    def _tell_rhythm(self) -> None:
        if self._ranks.rank == 0:
            for line in self._schedule.news():
                log.info(f"checkpoints to {line}")

    def _unique(self) -> str:
        return f"a{self._run.attempt:04d}-{secrets.token_hex(4)}"


def _step(step: Any) -> int:
    try:
        number = operator.index(step)
    except TypeError:
        number = -1
    if not 0 <= number <= _LAST_STEP:
        raise CheckpointError(f"save: {step!r} is no step; valid: a whole number from 0 to {_LAST_STEP:,}")
    return number


def _numbers(metrics: Mapping[str, Any]) -> dict[str, float]:
    numbers = {}
    for name, value in metrics.items():
        try:
            numbers[str(name)] = float(value)
        except (TypeError, ValueError, OverflowError, RuntimeError) as error:
            raise CheckpointError(f"save: metrics[{name!r}] is no number but a {type(value).__name__}") from error
    return numbers
