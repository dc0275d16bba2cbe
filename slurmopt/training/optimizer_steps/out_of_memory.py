"""What ranks do when one of them has run out of memory: they agree on that, and split all micro-batches.

They agree between the forward and the backward pass of each micro-batch, over the network of the CPUs. Where they
cannot, because collectives of the GPUs are under way, the attempt ends, and the next one begins with smaller
micro-batches.
"""

from __future__ import annotations

import datetime
import os
from typing import Any

import torch
import torch.distributed as dist

from slurmopt.errors import JobError, one_line
from slurmopt.job.worker import current_run
from slurmopt.log import info, warning
from slurmopt.run_folder.access.files import read_json, replace_json
from slurmopt.training.optimizer_steps.splitting import size_of

_MOST_PARTS = 64
_PATIENCE = datetime.timedelta(minutes=30)
"""That a rank waits for the answer of the others, which may be in their first forward pass."""
_FINE, _SPLIT, _HOPELESS = 0, 1, 2
_TEXTS = ("CUBLAS_STATUS_ALLOC_FAILED",)
"""What a library of CUDA says that could not allocate memory."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether the memory of the GPU was not sufficient. Other errors of a GPU, such as an illegal address, leave it
    unusable for this process."""
    if isinstance(error, getattr(torch, "AcceleratorError", ())):
        return False
    if isinstance(error, torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(text in str(error) for text in _TEXTS)


class Splitting:
    """Into how many parts all ranks split each micro-batch."""

    def __init__(self, is_sharded: bool) -> None:
        """`is_sharded`: whether forward passes have collectives, as those of FSDP2 have: then ranks cannot agree
        between them."""
        self._world = dist.get_world_size() if dist.is_initialized() else 1
        self._group = dist.new_group(backend="gloo", timeout=_PATIENCE) if self._world > 1 and not is_sharded else None
        self._path = current_run.current_run().folder.micro_batches if current_run.FOLDER in os.environ else None
        self.parts = self._remembered()
        """Parts of each micro-batch."""
        self._error, self._can_split = "", True

    def note(self, error: BaseException, batch: Any) -> None:
        """This rank has run out of memory, with this part of a micro-batch."""
        self._error = one_line(str(error)) or type(error).__name__
        try:
            self._can_split = self.parts < _MOST_PARTS and size_of(batch) > 1
        except JobError as cannot:
            self._can_split, self._error = False, f"{self._error}; {cannot}"

    @property
    def has_failed(self) -> bool:
        """Whether this rank has run out of memory since the step was begun."""
        return bool(self._error)

    def fails_anywhere(self) -> bool:
        """Whether any rank has: a collective of all ranks, before each backward pass. JobError, on all of them, if one
        cannot split its micro-batch any more."""
        if self._group is None:
            return self._world == 1 and self._fails()
        own = _FINE if not self.has_failed else _SPLIT if self._can_split else _HOPELESS
        told = torch.tensor(own)
        dist.all_reduce(told, dist.ReduceOp.MAX, group=self._group)
        if int(told) == _HOPELESS:
            raise self._hopeless()
        return int(told) == _SPLIT

    def fails_alone(self) -> bool:
        """Whether this process has, and is alone: nobody else has to learn of it."""
        return self._world == 1 and self._fails()

    def fail_with_others_waiting(self) -> None:
        """Ends the attempt if other ranks wait in a collective of the GPUs; the next one has smaller micro-batches."""
        if self._world == 1:
            return
        if not self._can_split:
            raise self._hopeless()
        self._keep(2 * self.parts)
        why = f"GPU out of memory where other ranks wait for this one{self._said}"
        current_run.leave_at_once(f"{why}; the next attempt has each micro-batch in {2 * self.parts} parts")
        raise JobError(why)  # outside a job

    def double(self) -> None:
        """Twice as many parts from now on; gives memory back that is cached in pieces of the wrong size."""
        self.parts *= 2
        if self._world == 1 or dist.get_rank() == 0:
            self._keep(self.parts)
            where = self._said if self.has_failed else " on another rank"
            warning(f"GPU out of memory{where}; the step is done again, with each micro-batch in {self.parts} parts")
        self._error = ""
        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()

    def _fails(self) -> bool:
        if self.has_failed and not self._can_split:
            raise self._hopeless()
        return self.has_failed

    def _hopeless(self) -> JobError:
        return JobError(f"GPU out of memory, and a micro-batch cannot be split any more{self._said}")

    @property
    def _said(self) -> str:
        return f": {self._error}" if self._error else ""

    def _remembered(self) -> int:
        """The parts of an earlier attempt."""
        told = read_json(self._path) if self._path is not None else None
        parts = told.get("parts") if isinstance(told, dict) else None
        if not isinstance(parts, int) or not 1 < parts <= _MOST_PARTS:
            return 1
        info(f"each micro-batch is split into {parts} parts, as an earlier attempt ran out of memory")
        return parts

    def _keep(self, parts: int) -> None:
        if self._path is None:
            return
        try:
            replace_json(self._path, {"parts": parts})
        except OSError as error:
            warning(f"later attempts will not know that micro-batches are split: {error}")
