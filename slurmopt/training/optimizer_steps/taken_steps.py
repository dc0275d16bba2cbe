"""Takes each step of an optimizer unless its gradients are bad, on all ranks alike, and counts both."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from slurmopt.errors import JobError
from slurmopt.training.optimizer_steps.bad_steps import BadSteps, Found
from slurmopt.training.optimizer_steps.precision import Precision
from slurmopt.training.optimizer_steps.rollback import Rollback
from slurmopt.training.optimizer_steps.spikes import Spikes, bad
from slurmopt.training.schedules import ScheduledRate


class TakenSteps:
    """The steps of an optimizer and its schedule, which moves with each that is taken.

    A fused optimizer skips a bad step on the device. Whether it did is looked up at the next step, so that nothing
    waits for the device; the schedule then hears of it one step late.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        schedule: Any,
        precision: Precision,
        bad_steps: BadSteps,
        spikes: Spikes,
        skips_late: bool,
    ) -> None:
        """`skips_late`: the optimizer can skip a step on the device."""
        self._optimizer, self._schedule, self._precision = optimizer, schedule, precision
        self._bad, self._spikes, self._skips_late = bad_steps, spikes, skips_late
        self._pending: Found | None = None
        self._behind = self._taken = 0
        self.count = 0
        """The steps that have ended, taken or skipped."""
        self.rollback: Rollback | None = None
        """What is done after too many bad steps in a row; None: JobError."""

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

    def take(self, norm: torch.Tensor, loss: torch.Tensor, indices: Sequence[Callable[[], list[int]]]) -> None:
        """Takes a step whose gradients have this norm before clipping, unless that is bad. `loss` and the `indices` of
        its samples are for the log. JobError after too many bad steps."""
        limit = self._spikes.limit()
        self._spikes.add(norm, limit)
        self._settle()
        self.count += 1
        found = Found(self.count, norm, limit, loss, indices)
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

    def _take_unless(self, is_bad: torch.Tensor) -> None:
        """On the device: a fused optimizer leaves all as it is where `found_inf` is 1."""
        self._optimizer.found_inf = is_bad.float()
        self._optimizer.step()
        del self._optimizer.found_inf
        self._was_taken()

    def _was_taken(self) -> None:
        self._taken += 1
        if self._schedule is not None and not self._behind:
            self._schedule.step()
        self._behind = 0

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
        if self.rollback is None:
            raise JobError(evidence)
        self.rollback.back(step.number - self._bad.in_a_row + 1, evidence)
        self._bad.good()

    def state_dict(self) -> dict[str, Any]:
        """Counts, schedule and scale of the loss."""
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

    def load_state_dict(self, state: Mapping[str, Any], like: torch.Tensor) -> None:
        """Goes on from `state`, with norms of the type and device of `like`."""
        self.count, self._taken, self._behind = (int(state[name]) for name in ("count", "taken", "behind"))
        self._bad.load_state_dict(state["bad"])
        self._spikes.load_state_dict(state["norms"], like.device, like.dtype)
        self._precision.load_state_dict(state["scale"])
        if isinstance(self._schedule, ScheduledRate):  # also where the run had no schedule, or one of torch's
            self._schedule.load_state_dict({"count": self._taken + self._behind})
        elif self._schedule is not None and state["schedule"]:
            self._schedule.load_state_dict(state["schedule"])
