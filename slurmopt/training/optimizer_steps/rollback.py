"""Rollback: an earlier state of a training that has met too many bad steps, without the data that led there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

import torch.distributed as dist

from slurmopt.errors import JobError
from slurmopt.log import warning
from slurmopt.training.sampling.sampler import ResumableSampler

if TYPE_CHECKING:
    from slurmopt.checkpoint import Checkpointer


class Counting(Protocol):
    """What counts the steps of a training: `Steps`."""

    @property
    def count(self) -> int: ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


class Rollback:
    """Brings back checkpoints of `state`, in which `steps` is."""

    def __init__(self, checkpointer: Checkpointer, state: dict[str, Any], steps: Counting) -> None:
        """JobError if the state lacks the steps."""
        if not any(value is steps for value in state.values()):
            raise JobError("roll_back_with: the state lacks these Steps; give the state that is saved")
        self._checkpointer, self._state, self._steps = checkpointer, state, steps
        self._before: int | None = None
        self._until = 0

    def back(self, first_bad: int, evidence: str) -> None:
        """Restores the newest checkpoint from before the step `first_bad`, or an older one than the last time if all
        steps since then were bad. A collective of all ranks. JobError, with the evidence, if there is none."""
        if self._before is None or first_bad > self._until + 1:
            self._before = first_bad
        self._checkpointer.wait()
        state = {name: self._restorable(value) for name, value in self._state.items()}
        wanted = {name: value for name, value in state.items() if value is not None}
        step = self._checkpointer.restore(wanted, before=self._before)
        if not step:
            raise JobError(f"{evidence}; there is no checkpoint of an earlier step to roll back to")
        self._before, self._until = step, self._steps.count
        if not dist.is_initialized() or dist.get_rank() == 0:
            warning(f"{evidence}; rolled back to the weights of step {step:,}, and the data go on after the bad steps")

    def _restorable(self, value: Any) -> Any:
        """None for what stays: the position in the data."""
        if isinstance(value, ResumableSampler):
            return None
        return _Earlier(self._steps) if value is self._steps else value


class _Earlier:
    """Steps that go on counting from where they are, with schedule and norms as they were."""

    per_rank = False

    def __init__(self, steps: Counting) -> None:
        self._steps = steps

    def state_dict(self) -> dict[str, Any]:
        return self._steps.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        taken = int(state["taken"])
        skipped = {**state["bad"], "total": self._steps.count - taken, "in_a_row": 0}
        self._steps.load_state_dict({**state, "count": self._steps.count, "bad": skipped})
