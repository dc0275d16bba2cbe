"""Steps: what a training loop does between the loss and the next batch, in the right order on any number of ranks."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from slurmopt.errors import JobError
from slurmopt.training import gradients
from slurmopt.training.accumulation import MicroBatch, forget_passes, synchronised
from slurmopt.training.allocator import AllocatorWatch
from slurmopt.training.bad_steps import BadSteps, Found
from slurmopt.training.exchange import is_sharded, refuse_unfit
from slurmopt.training.noise_scale import NoiseScale
from slurmopt.training.out_of_memory import Splitting
from slurmopt.training.precision import FP32, Precision
from slurmopt.training.recovery import Recovery
from slurmopt.training.replicas import check_replicas as compare_replicas
from slurmopt.training.rollback import Rollback
from slurmopt.training.schedules import ScheduledRate
from slurmopt.training.spikes import Spikes, bad
from slurmopt.training.step_arguments import (
    every,
    largest_norm,
    measuring,
    passes,
    piece,
    range_of_steps,
    scalar,
    schedule_of,
    skips_on_device,
)

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
    ) -> None:
        """`schedule`: a function of the steps that were taken (`slurmopt.training.schedules`), or one of torch's
        schedulers, which then moves with each step that is taken.
        `precision`: bf16, fp16, fp32 or tf32. `clip`: the largest norm of the gradients. `accumulate`: the calls of
        `backward` that make a step, where these get no micro-batch of a sampler. `bad_steps`: so many in a row end the
        attempt, or `roll_back_with`. `spikes`: a step whose norm is so many deviations above the median of the last 128
        is bad too. `out_of_memory`: `split` makes `run` split micro-batches that are too large for the GPU. `noise`
        measures the gradient noise scale. `check_replicas`: after each so many steps the weights of all ranks are
        compared. `anomalies`: steps in which torch looks for the operation whose gradient is NaN, and ends the attempt
        there. Raises JobError where model and optimizer do not fit each other, or the ranks would not exchange
        gradients."""
        self._model, self._optimizer = model, optimizer
        self._parameters = gradients.parameters_of(optimizer)
        refuse_unfit(model, self._parameters)
        self._schedule = schedule_of(optimizer, schedule)
        self._precision = Precision(precision, self._parameters[0].device.type)
        self._clip, self._accumulate = largest_norm(clip), passes(accumulate)
        self._bad = BadSteps(bad_steps)
        self._skips_late = skips_on_device(optimizer, precision, self._schedule)
        self._spikes = Spikes(spikes)
        self._pending: Found | None = None
        self._behind = 0
        self._passes = self._tokens = 0
        self._weights, self._by_tokens = 0.0, False
        self._loss: torch.Tensor | None = None
        self._indices: list[Callable[[], list[int]]] = []
        self._recovery = _recovery(self, is_sharded(model), out_of_memory)
        self._rollback: Rollback | None = None
        self._allocator = AllocatorWatch() if self._parameters[0].is_cuda else None
        self._noise = measuring(noise, self._parameters, precision)
        self._check_every = every(check_replicas)
        self._anomalies = range_of_steps(anomalies)
        self._calls = 0
        self.count = 0
        """The steps that have ended, taken or skipped."""
        self.norm: torch.Tensor | None = None
        """The norm of the gradients in the last step, before clipping; None before the first."""
        self.loss: torch.Tensor | None = None
        """The mean loss of this rank's samples, or tokens, in the last step, on the device; None before the first."""
        self._taken = 0

    @property
    def taken(self) -> int:
        """The steps that changed the parameters. Waits for the device."""
        self._settle()
        return self._taken

    @property
    def skipped(self) -> int:
        """The bad steps. Waits for the device."""
        self._settle()
        return self._bad.total

    def roll_back_with(self, checkpointer: Checkpointer, state: dict[str, Any]) -> None:
        """Instead of the end of the attempt, too many bad steps in a row bring back the newest checkpoint from before
        them, of all of `state` but samplers: the data go on after the bad steps, and so does `count`.

        The steps since that checkpoint then count as skipped. Call it after `restore`. If the steps after that are bad
        too, an older checkpoint is taken; without one the attempt ends."""
        self._rollback = Rollback(checkpointer, state, self)

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
        weight = self._weight(micro, tokens)
        weighted = scalar(loss) * weight
        if self._noise is not None:
            self._noise.begin(self.count)
        with synchronised(self._model, self._is_last(micro)), self._anomaly_mode():
            self._precision.scaled(weighted).backward()
        if self._noise is not None:
            self._noise.passed(*piece(micro, weight, tokens))
        self._passes += 1
        self._weights += weight
        if micro is not None:
            self._indices.append(micro.indices)
        self._by_tokens = tokens is not None
        self._tokens += 0 if tokens is None or self._is_placeholder(micro) else tokens
        self._loss = weighted.detach() if self._loss is None else self._loss + weighted.detach()

    def _drop(self) -> None:
        """Forgets what there is of the step."""
        self._passes = self._tokens = 0
        self._weights, self._loss, self._indices = 0.0, None, []
        self._optimizer.zero_grad()
        if self._noise is not None:
            self._noise.dropped()
        forget_passes(self._model)

    def state_dict(self) -> dict[str, Any]:
        """Counts, schedule and scale of the loss. JobError within a step: save where `backward` returns True."""
        if self._passes:
            raise JobError("a step is not finished; save where steps.backward returns True")
        self._settle()
        return {
            "count": self.count,
            "taken": self._taken,
            "behind": self._behind,
            "bad": self._bad.state_dict(),
            "norms": self._spikes.state_dict(),
            "scale": self._precision.state_dict(),
            "schedule": {} if self._schedule is None else self._schedule.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on from `state`."""
        self.count, self._taken, self._behind = (int(state[name]) for name in ("count", "taken", "behind"))
        self._bad.load_state_dict(state["bad"])
        self._spikes.load_state_dict(state["norms"], self._parameters[0].device, self._parameters[0].dtype)
        self._precision.load_state_dict(state["scale"])
        if isinstance(self._schedule, ScheduledRate):  # also where the run had no schedule, or one of torch's
            self._schedule.load_state_dict({"count": self._taken + self._behind})
        elif self._schedule is not None and state["schedule"]:
            self._schedule.load_state_dict(state["schedule"])

    def _is_last(self, micro: MicroBatch[Any] | None) -> bool:
        return micro.last if micro is not None else self._passes == self._accumulate - 1

    def _weight(self, micro: MicroBatch[Any] | None, tokens: int | None) -> float:
        if tokens is not None:
            return 0.0 if self._is_placeholder(micro) else 1.0
        return micro.weight if micro is not None else 1 / self._accumulate

    @staticmethod
    def _is_placeholder(micro: MicroBatch[Any] | None) -> bool:
        """Whether its samples are those of another rank, and do not count here."""
        return micro is not None and not micro.samples

    def _end(self) -> None:
        assert self._loss is not None
        self.loss = loss = self._loss / ((self._tokens if self._by_tokens else self._weights) or 1)
        self._loss, self._weights, self._passes = None, 0.0, 0
        self._precision.unscale(self._optimizer)
        if self._by_tokens:
            gradients.scale(self._parameters, self._ranks / self._all_tokens(loss.device))
        self.norm = norm = gradients.total_norm(self._parameters)
        if self._noise is not None:
            self._noise.ended(norm)
        limit = self._spikes.limit()
        self._spikes.add(norm, limit)
        if self._clip is not None:
            gradients.clip(self._parameters, self._clip, norm)
        self._settle()
        self.count += 1
        found = Found(self.count, norm, limit, loss, self._indices)
        self._indices = []
        if self._skips_late:
            self._take_unless(bad(norm, limit))
            self._pending = found
        elif not found.is_bad:
            self._precision.step(self._optimizer)
            self._was_taken()
            self._bad.good()
        elif found.is_spike or not self._precision.can_back_off:
            self._precision.skip(shrinks=not found.is_spike)
            self._found(found)
        else:
            self._precision.skip()
        self._optimizer.zero_grad()
        if self._allocator is not None:
            self._allocator.stepped()
        if self._check_every is not None and self.count % self._check_every == 0:
            compare_replicas(self._model)

    def _take_unless(self, is_bad: torch.Tensor) -> None:
        """On the device: a fused optimizer leaves all as it is where `found_inf` is 1."""
        self._optimizer.found_inf = is_bad.float()
        self._optimizer.step()
        del self._optimizer.found_inf
        self._was_taken()

    def _settle(self) -> None:
        """Learns whether the last step was bad, and takes back what was counted."""
        pending, self._pending = self._pending, None
        if pending is None:
            return
        if not pending.is_bad:
            self._bad.good()
            return
        self._taken -= 1
        self._behind = 1
        self._found(pending)

    def _found(self, step: Found) -> None:
        """A bad step."""
        evidence = self._bad.found(step)
        if evidence is None:
            return
        if self._rollback is None:
            raise JobError(evidence)
        self._rollback.back(step.number - self._bad.in_a_row + 1, evidence)
        self._bad.good()

    def _was_taken(self) -> None:
        self._taken += 1
        if self._schedule is not None and not self._behind:
            self._schedule.step()
        self._behind = 0

    @property
    def _ranks(self) -> int:
        return dist.get_world_size() if dist.is_initialized() else 1

    def _all_tokens(self, device: torch.device) -> torch.Tensor:
        """The tokens of all ranks in this step; at least one."""
        tokens, self._tokens = torch.tensor(self._tokens, device=device), 0
        if self._ranks > 1:
            dist.all_reduce(tokens)
        return tokens.clamp(min=1).double()


def _recovery(steps: Steps, is_sharded: bool, out_of_memory: str | None) -> Recovery | None:
    if out_of_memory not in (None, "split"):
        raise JobError(f"out_of_memory is {out_of_memory!r}; valid: split, or None")
    if out_of_memory is None:
        return None
    return Recovery(steps.forward, steps._add, steps._end, steps._drop, Splitting(is_sharded))
