"""Runs the micro-batches of a step, and does the step again in smaller ones where a rank runs out of memory."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch

from slurmopt.training.accumulation import MicroBatch
from slurmopt.training.optimizer_steps.out_of_memory import Splitting, is_out_of_memory
from slurmopt.training.optimizer_steps.splitting import parts_of


class Recovery:
    """The micro-batches of the step that goes on, kept until it has ended."""

    def __init__(
        self,
        forward: Callable[[MicroBatch[Any]], AbstractContextManager[None]],
        backward: Callable[[Any, MicroBatch[Any], int | None], None],
        end: Callable[[], None],
        drop: Callable[[], None],
        splitting: Splitting,
    ) -> None:
        """`forward`: the context of a forward pass. `backward`: adds the gradients of a loss, with its tokens. `end`:
        takes the step. `drop`: forgets what there is of the step."""
        self._forward, self._backward, self._end, self._drop = forward, backward, end, drop
        self._splitting = splitting
        self._step: list[MicroBatch[Any]] = []
        self._generators: list[Any] = []

    def run(self, loss_of: Callable[[Any], Any], micro: MicroBatch[Any]) -> bool:
        """Forward and backward pass of a micro-batch. Returns whether it was the last one of its step."""
        if not self._step:
            self._generators = _generators()
        self._step.append(micro)
        todo = [micro]
        while todo:
            if self._in_parts(loss_of, todo[0]):
                todo.pop(0)
            else:
                self._drop()
                self._splitting.double()
                _restore(self._generators)
                todo = list(self._step)
        if micro.last:
            self._step = []
            self._end()
        return micro.last

    def _in_parts(self, loss_of: Callable[[Any], Any], micro: MicroBatch[Any]) -> bool:
        """Forward and backward passes of the parts of a micro-batch. False if a rank has run out of memory."""
        for part in parts_of(micro, self._splitting.parts):
            loss = None if self._splitting.has_failed else self._loss(loss_of, part)
            if self._splitting.fails_anywhere():
                return False
            self._passed_back(loss, part)
            del loss  # with its graph, before the next one is made
        return not self._splitting.fails_alone()

    def _loss(self, loss_of: Callable[[Any], Any], part: MicroBatch[Any]) -> Any:
        """None if this rank has run out of memory. What is done about that is done outside of `except`, for the error
        holds the frames of the model, and these hold the activations."""
        try:
            with self._forward(part):
                return loss_of(part.batch)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            self._splitting.note(error, part.batch)
        return None

    def _passed_back(self, loss: Any, part: MicroBatch[Any]) -> None:
        """The backward pass. If this rank runs out of memory in it, the others learn of that before their next one, and
        in the last one of a step, where they wait for its gradients, the attempt ends."""
        loss, tokens = loss if isinstance(loss, tuple) else (loss, None)
        try:
            self._backward(loss, part, tokens)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            self._splitting.note(error, part.batch)
        if self._splitting.has_failed and part.last:
            self._splitting.fail_with_others_waiting()


def _generators() -> list[Any]:
    """The states of torch's random generators."""
    return [torch.get_rng_state(), torch.cuda.get_rng_state() if torch.cuda.is_initialized() else None]


def _restore(states: list[Any]) -> None:
    cpu, cuda = states
    torch.set_rng_state(cpu)
    if cuda is not None:
        torch.cuda.set_rng_state(cuda)
