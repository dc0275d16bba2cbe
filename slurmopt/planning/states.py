"""What stands in memory from step to step: weights, gradients and the optimizer's states, in bytes per parameter."""

from __future__ import annotations

from dataclasses import dataclass

FP32, AUTOCAST, POLICY, MIXED, BF16 = "fp32", "autocast", "policy", "mixed", "bf16"
ADAMW, ADAMW_8BIT, MOMENTUM, SGD, LION, ADAFACTOR = "adamw", "adamw-8bit", "momentum", "sgd", "lion", "adafactor"


@dataclass(frozen=True, kw_only=True)
class Precision:
    """Bytes per element."""

    weight: int
    """A weight as it stands, and its gradient."""
    master: int
    """The optimizer's own copy of a weight."""
    compute: int
    """A weight and an activation in a matrix product."""
    state: int
    """Each state of the optimizer."""
    residual: int
    """An activation between layers."""
    casts: int = 0
    """The copy of a weight that a matrix product takes, where autograd keeps it until backward."""


PRECISIONS = {
    FP32: Precision(weight=4, master=0, compute=4, state=4, residual=4),
    AUTOCAST: Precision(weight=4, master=0, compute=2, state=4, residual=4, casts=2),
    POLICY: Precision(weight=4, master=0, compute=2, state=4, residual=2),
    MIXED: Precision(weight=2, master=4, compute=2, state=4, residual=2),
    BF16: Precision(weight=2, master=0, compute=2, state=2, residual=2),
}
"""`fp32`; `autocast`: torch.autocast over fp32 weights, which leaves the sums between layers in fp32; `policy`: FSDP2's
MixedPrecisionPolicy, fp32 shards and everything else in bf16; `mixed`: 16-bit weights with an fp32 copy in the
optimizer, as DeepSpeed and Megatron have them; `bf16`: all of it."""
OPTIMIZERS = {ADAMW: 2.0, MOMENTUM: 1.0, SGD: 0.0, LION: 1.0, ADAFACTOR: 0.0, ADAMW_8BIT: 2.0}
"""States of each parameter. Adafactor's rows and columns are left out: they are a thousandth."""


@dataclass(frozen=True, kw_only=True)
class States:
    """Bytes per parameter on one rank, before they are sharded."""

    weights: float
    gradients: float
    optimizer: float
    """The master weights and the states."""

    @property
    def total(self) -> float:
        return self.weights + self.gradients + self.optimizer


def states(precision: str, optimizer: str, fp32_gradients: bool = False) -> States:
    """Bytes per parameter. Mixed with AdamW: 2 + 2 + 12, the 16 of the ZeRO paper (1910.02054, section 3.1)."""
    kind = PRECISIONS[precision]
    each = 1 if optimizer == ADAMW_8BIT else kind.state
    gradient = 4 if fp32_gradients else kind.weight
    return States(weights=kind.weight, gradients=gradient, optimizer=kind.master + each * OPTIMIZERS[optimizer])


def checkpoint_bytes(parameters: float, precision: str, optimizer: str) -> float:
    """Bytes of a checkpoint: weights, their copy in the optimizer and its states, no gradients. 12 per parameter with
    fp32 weights and AdamW, 14 with 16-bit weights and an fp32 copy."""
    each = states(precision, optimizer)
    return parameters * (each.weights + each.optimizer)


@dataclass(frozen=True, kw_only=True)
class Sharded:
    """Over how many ranks each part is sharded: ZeRO's stages, and FSDP's, which is the third."""

    weights: int = 1
    gradients: int = 1
    optimizer: int = 1


def sharded(stage: int, ranks: int) -> Sharded:
    """Stage 0 is DDP; 1 shards the optimizer, 2 the gradients too, 3 the weights too."""
    return Sharded(
        weights=ranks if stage >= 3 else 1, gradients=ranks if stage >= 2 else 1, optimizer=ranks if stage >= 1 else 1
    )
