"""Steps: what a training loop does between the loss and the next batch, in the right order on any number of ranks."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from slurmopt.errors import JobError
from slurmopt.training.accumulation import MicroBatch, forget_passes, synchronised
from slurmopt.training.noise_scale import NoiseScale
from slurmopt.training.optimizer_steps import gradients
from slurmopt.training.optimizer_steps.allocator import AllocatorWatch
from slurmopt.training.optimizer_steps.arguments import (
    every,
    group_of,
    largest_norm,
    measuring,
    optimizer_of,
    passes,
    piece,
    range_of_steps,
    scalar,
    schedule_of,
    skips_on_device,
    whole_tokens,
)
from slurmopt.training.optimizer_steps.bad_steps import BadSteps
from slurmopt.training.optimizer_steps.exchange import is_sharded, refuse_unfit
from slurmopt.training.optimizer_steps.out_of_memory import Splitting
from slurmopt.training.optimizer_steps.precision import FP32, Precision
from slurmopt.training.optimizer_steps.recovery import Recovery
from slurmopt.training.optimizer_steps.rollback import Rollback
from slurmopt.training.optimizer_steps.spikes import Spikes
from slurmopt.training.optimizer_steps.taken_steps import TakenSteps
from slurmopt.training.optimizer_steps.unfinished import UnfinishedStep, is_placeholder
from slurmopt.training.replicas import check_replicas as compare_replicas

if TYPE_CHECKING:
    from slurmopt.checkpoint import Checkpointer


class Steps:
    """The optimizer steps of a model: precision, accumulation, clipping, bad steps, schedule.

        steps = Steps(model, optimizer, schedule=schedule, precision="bf16", clip=1.0)
        state = {"model": model, "optimizer": optimizer, "sampler": sampler, "steps": steps, "rng": rng_state()}
        for micro in sampler.accumulate(loader):
            with steps.forward(micro):
                loss = loss_of(model, micro.batch)
            if steps.backward(loss, micro):
                progress(steps.count, total, loss=loss)
                checkpointer.save(steps.count, state)

    `model` is a module, a DistributedDataParallel, or sharded by FSDP2's `fully_shard`, also inside `torch.compile`.
    Gradients are those of the mean over the global batch, whatever its division over ranks and micro-batches.

    A step whose gradients are not finite is skipped on all ranks: parameters, moments and schedule stay as they are.
    That is decided by the norm of the reduced gradients. A fused optimizer skips it on the device, and whether it did
    is looked up one step later: nothing waits for the device. The schedule then hears of a bad step one step late.
    With another optimizer, with fp16, and with one of torch's schedulers each step waits for the norm.
    """

    per_rank = False
    """All ranks hold the same state."""

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        schedule: Any = None,
        precision: str = FP32,
        clip: float | None = None,
        accumulate: int = 1,
        bad_steps: int | None = 10,
        spikes: float | None = None,
        out_of_memory: str | None = None,
        noise: NoiseScale | None = None,
        check_replicas: int | None = None,
        anomalies: range = range(0),
        stages: dist.ProcessGroup | None = None,
    ) -> None:
        """`schedule`: a function of the steps that were taken (`slurmopt.training.schedules`), or one of torch's
        schedulers, which then moves with each step that is taken.
        `precision`: bf16, fp16, fp32 or tf32. `clip`: the largest norm of the gradients. `accumulate`: the calls of
        `backward` that make a step, where these get no micro-batch of a sampler. `bad_steps`: so many in a row end the
        attempt, or `roll_back_with`. `spikes`: a step whose norm is so many deviations above the median of the last 128
        is bad too. `out_of_memory`: `split` makes `run` split micro-batches that are too large for the GPU. `noise`
        measures the gradient noise scale. `check_replicas`: after each so many steps the weights of all ranks are
        compared. `anomalies`: steps in which torch looks for the operation whose gradient is NaN, and ends the attempt
        there. `stages`: the process group of a pipeline of which `model` is the stage of this rank: the gradients of
        all stages count in the norm, and `take` takes the steps. Raises JobError where model and optimizer do not fit
        each other, or the ranks would not exchange
        gradients."""
        self._model, self._optimizer = model, optimizer
        self._parameters = gradients.parameters_of(optimizer_of(optimizer))
        refuse_unfit(model, self._parameters, 1 if stages is None else group_of(stages).size())
        self._stages = stages
        schedule = schedule_of(optimizer, schedule)
        self._precision = Precision(precision, self._parameters[0].device.type)
        self._clip, self._accumulate = largest_norm(clip), passes(accumulate)
        late = skips_on_device(optimizer, precision, schedule)
        self._steps = TakenSteps(optimizer, schedule, self._precision, BadSteps(bad_steps), Spikes(spikes), late)
        self._unfinished = UnfinishedStep()
        self._recovery = _recovery(self, is_sharded(model), out_of_memory)
        self._allocator = AllocatorWatch() if self._parameters[0].is_cuda else None
        self._noise = measuring(noise, self._parameters, precision)
        self._check_every = every(check_replicas)
        self._anomalies = range_of_steps(anomalies)
        self._calls = 0
        self.norm: torch.Tensor | None = None
        """The norm of the gradients in the last step, before clipping; None before the first."""
        self.loss: torch.Tensor | None = None
        """The mean loss of this rank's samples, or tokens, in the last step, on the device; None before the first."""

    @property
    def count(self) -> int:
        """The steps that have ended, taken or skipped."""
        return self._steps.count

    @property
    def taken(self) -> int:
        """The steps that changed the parameters. Waits for the device."""
        return self._steps.taken

    @property
    def skipped(self) -> int:
        """The bad steps. Waits for the device."""
        return self._steps.skipped

    def roll_back_with(self, checkpointer: Checkpointer, state: dict[str, Any]) -> None:
        """Instead of the end of the attempt, too many bad steps in a row bring back the newest checkpoint from before
        them, of all of `state` but samplers: the data go on after the bad steps, and so does `count`.

        The steps since that checkpoint then count as skipped. Call it after `restore`. If the steps after that are bad
        too, an older checkpoint is taken; without one the attempt ends."""
        self._steps.rollback = Rollback(checkpointer, state, self)

    def run(self, loss_of: Callable[[Any], Any], batch: Any) -> bool:
        """Forward and backward pass of a micro-batch: `forward` and `backward` in one. Returns whether a step ended.

        `loss_of`: called with the batch, returns its loss as for `backward`, or the loss and its tokens. `batch`: a
        MicroBatch, or, without a sampler's, any batch. With `out_of_memory="split"` a step that runs out of memory is
        done again in smaller micro-batches, with the same samples, gradients of the same mean, and random numbers as
        before; and so are all later ones, also in later attempts. `loss_of` must then have no effects that may not
        happen twice. Raises JobError where a single sample does not fit.
        """
        micro = batch if isinstance(batch, MicroBatch) else self._micro(batch)
        if self._recovery is not None:
            return self._recovery.run(loss_of, micro)
        with self.forward(micro):
            loss = loss_of(micro.batch)
        loss, tokens = loss if isinstance(loss, tuple) else (loss, None)
        return self.backward(loss, micro, tokens=tokens)

    @contextlib.contextmanager
    def forward(self, micro: MicroBatch[Any] | None = None) -> Iterator[None]:
        """The context of a forward pass and its loss: autocast; DDP exchanges no gradients before the last pass."""
        with synchronised(self._model, self._is_last(micro)), self._precision.autocast(), self._anomaly_mode():
            yield

    def backward(self, loss: torch.Tensor, micro: MicroBatch[Any] | None = None, *, tokens: int | None = None) -> bool:
        """Adds the gradients of `loss`, and with the last micro-batch takes the step. Returns whether a step ended.

        `loss`: a scalar, the mean over the samples of the micro-batch; with `tokens`, the sum over so many tokens that
        count: the gradients are then those of the mean over all tokens of the global batch, which ranks and
        micro-batches may have in different numbers. Raises JobError for another loss, and after too many bad steps.
        """
        last = self._is_last(micro)
        self._add(loss, micro, tokens)
        if not last:
            return False
        self._end()
        return True

    def take(self, loss: torch.Tensor | None = None) -> None:
        """Takes a step with the gradients that are there, as after `schedule.step(…)` of torch's pipelines.

        `loss`: the mean loss on the last stage, for the log of bad steps. All ranks call it. With fp16 the losses of
        the schedule are not scaled, which it needs: JobError."""
        if self._unfinished.passes or not self._precision.is_unscaled:
            why = (
                "a step is not finished" if self._unfinished.passes else "fp16 scales the loss in backward; valid: bf16"
            )
            raise JobError(f"take: {why}")
        self._unfinished.add(
            torch.zeros((), device=self._parameters[0].device) if loss is None else loss, 1.0, None, None
        )
        self._end()

    def _anomaly_mode(self) -> contextlib.AbstractContextManager[Any]:
        if self.count not in self._anomalies:
            return contextlib.nullcontext()
        return torch.autograd.set_detect_anomaly(True)

    def _micro(self, batch: Any) -> MicroBatch[Any]:
        """A batch without a sampler's weight: one of `accumulate` that count equally."""
        self._calls += 1
        return MicroBatch(batch, 1, 1 / self._accumulate, self._calls % self._accumulate == 0)

    def _add(self, loss: torch.Tensor, micro: MicroBatch[Any] | None, tokens: int | None) -> None:
        """Adds the gradients of the loss of a micro-batch."""
        tokens = whole_tokens(tokens)
        weight = self._weight(micro, tokens)
        weighted = scalar(loss) * weight
        if self._noise is not None:
            self._noise.begin(self.count)
        with synchronised(self._model, self._is_last(micro)), self._anomaly_mode():
            self._precision.scaled(weighted).backward()
        if self._noise is not None:
            self._noise.passed(*piece(micro, weight, tokens))
        self._unfinished.add(weighted, weight, tokens, micro)

    def _drop(self) -> None:
        """Forgets what there is of the step."""
        self._unfinished = UnfinishedStep()
        self._optimizer.zero_grad()
        if self._noise is not None:
            self._noise.dropped()
        forget_passes(self._model)

    def state_dict(self) -> dict[str, Any]:
        """Counts, schedule and scale of the loss. JobError within a step: save where `backward` returns True."""
        if self._unfinished.passes:
            raise JobError("a step is not finished; save where steps.backward returns True")
        return self._steps.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on from `state`."""
        self._steps.load_state_dict(state, self._parameters[0])

    def _is_last(self, micro: MicroBatch[Any] | None) -> bool:
        return micro.last if micro is not None else self._unfinished.passes == self._accumulate - 1

    def _weight(self, micro: MicroBatch[Any] | None, tokens: int | None) -> float:
        if tokens is not None:
            return 0.0 if is_placeholder(micro) else 1.0
        return micro.weight if micro is not None else 1 / self._accumulate

    def _end(self) -> None:
        ended, self._unfinished = self._unfinished, UnfinishedStep()
        self.loss = loss = ended.mean_loss
        self._precision.unscale(self._optimizer)
        if ended.by_tokens:
            gradients.scale(self._parameters, self._ranks / self._all_tokens(ended.tokens, loss.device))
        self.norm = norm = gradients.total_norm(self._parameters, self._stages)
        if self._noise is not None:
            self._noise.ended(norm)
        if self._clip is not None:
            gradients.clip(self._parameters, self._clip, norm)
        self._steps.take(norm, loss, ended.indices)
        self._optimizer.zero_grad()
        if self._allocator is not None:
            self._allocator.stepped()
        if self._check_every is not None and self.count % self._check_every == 0:
            compare_replicas(self._model)

    @property
    def _ranks(self) -> int:
        return dist.get_world_size() if dist.is_initialized() else 1

    def _all_tokens(self, own: int, device: torch.device) -> torch.Tensor:
        """The tokens of all ranks in a step; at least one."""
        tokens = torch.tensor(own, device=device)
        if self._ranks > 1:
            dist.all_reduce(tokens)
        return tokens.clamp(min=1).double()


def _recovery(steps: Steps, is_sharded: bool, out_of_memory: str | None) -> Recovery | None:
    if out_of_memory not in (None, "split"):
        raise JobError(f"out_of_memory is {out_of_memory!r}; valid: split, or None")
    if out_of_memory is None:
        return None
    return Recovery(steps.forward, steps._add, steps._end, steps._drop, Splitting(is_sharded))
