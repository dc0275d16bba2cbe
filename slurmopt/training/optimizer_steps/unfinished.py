"""What there is of a step whose micro-batches are not all there yet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from slurmopt.training.accumulation import MicroBatch


@dataclass
class UnfinishedStep:
    """The sums over the backward passes of a step on this rank."""

    passes: int = 0
    tokens: int = 0
    """Those that count."""
    by_tokens: bool = False
    """Whether losses are sums over tokens."""
    weights: float = 0.0
    loss: torch.Tensor | None = None
    """The sum of the weighted losses, on the device."""
    indices: list[Callable[[], list[int]]] = field(default_factory=list)
    """Compute the indices of the samples of each micro-batch."""

    def add(self, loss: torch.Tensor, weight: float, tokens: int | None, micro: MicroBatch[Any] | None) -> None:
        """A backward pass. `loss`: times its `weight`."""
        self.passes += 1
        self.weights += weight
        if micro is not None:
            self.indices.append(micro.indices)
        self.by_tokens = tokens is not None
        self.tokens += 0 if tokens is None or is_placeholder(micro) else tokens
        self.loss = loss.detach() if self.loss is None else self.loss + loss.detach()

    @property
    def mean_loss(self) -> torch.Tensor:
        """The mean over this rank's samples, or tokens."""
        assert self.loss is not None
        return self.loss / ((self.tokens if self.by_tokens else self.weights) or 1)


def is_placeholder(micro: MicroBatch[Any] | None) -> bool:
    """Whether its samples are those of another rank, and do not count here."""
    return micro is not None and not micro.samples
