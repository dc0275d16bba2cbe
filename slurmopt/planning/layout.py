"""How a training is spread over ranks, and what each micro-batch is."""

from __future__ import annotations

from dataclasses import dataclass

from slurmopt.planning.models.transformer import Transformer
from slurmopt.planning.states import ADAMW, AUTOCAST, POLICY

NO, SELECTIVE, FULL = "no", "selective", "full"
RECOMPUTES = (NO, SELECTIVE, FULL)
ATTENTIONS = FLASH, EAGER = "flash", "eager"
LOSSES = PLAIN, CHUNKED = "plain", "chunked"
DDP, FSDP, HSDP, ZERO1, ZERO2 = "ddp", "fsdp", "hsdp", "zero1", "zero2"
STRATEGIES = {DDP: 0, FSDP: 3, HSDP: 3, ZERO1: 1, ZERO2: 2}
"""The stage of each strategy of data parallelism, the simplest first."""


def usual_precision(strategy: str) -> str:
    """How most trainings with that strategy compute in 16 bits."""
    return POLICY if strategy in (FSDP, HSDP) else AUTOCAST


@dataclass(frozen=True, kw_only=True)
class Work:
    """One step of a training, as the experiment defines it."""

    sequence: int
    """Tokens of a sample."""
    global_batch: int
    """Samples of a step over all ranks."""
    precision: str = AUTOCAST
    optimizer: str = ADAMW
    fp32_gradients: bool = False
    attention: str = FLASH
    """`flash`, or `eager`: the matrix of scores stands in memory."""
    loss: str = PLAIN
    """`plain`, or `chunked`: the logits never stand in memory at once."""
    dropout: bool = False

    @property
    def tokens(self) -> int:
        """Tokens of a step."""
        return self.sequence * self.global_batch


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Where the parts of the model and of a step are."""

    data: int = 1
    """Replicas of the model, sharded or not."""
    tensor: int = 1
    pipeline: int = 1
    stage: int = 0
    """0: DDP; 1 and 2: the optimizer is sharded, the gradients too; 3: FSDP2."""
    shard: int | None = None
    """Ranks over which one copy is sharded (HSDP); all of `data` unless it is said."""
    micro_batch: int = 1
    """Samples of a rank at a time."""
    recompute: str = NO
    interleave: int = 1
    """Virtual stages of each rank of a pipeline."""
    fused: bool | None = None
    """Whether norms, SwiGLU and the optimizer are fused kernels; None where that is not known."""
    optimizer_on_host: bool = False
    """Whether the optimizer's states are in the host's memory, and the update is made there. Gradients stay."""
    activations_on_host: bool = False
    """Whether activations wait for backward in the host's memory (torch.autograd.graph.save_on_cpu)."""

    @property
    def ranks(self) -> int:
        return self.data * self.tensor * self.pipeline

    @property
    def shards(self) -> int:
        """Ranks over which the states are sharded."""
        return self.shard or self.data

    def micro_batches(self, work: Work) -> int:
        """Micro-batches of a rank in each step."""
        return work.global_batch // (self.micro_batch * self.data)


def why_not(layout: Layout, model: Transformer, work: Work, domain: int) -> str | None:
    """The rule that a layout breaks, in words; None if it breaks none. `domain`: GPUs that fast links join."""
    t, p, d = layout.tensor, layout.pipeline, layout.data
    if t > domain:
        return f"tensor parallelism over {t} GPUs leaves the {domain} that fast links join"
    if model.heads % t or model.ffn % t:
        return f"tensor parallelism over {t} does not divide {model.heads} heads and {model.ffn:,} of the MLP"
    if model.kv_heads % t and t % model.kv_heads:
        return f"tensor parallelism over {t} neither divides {model.kv_heads} heads of keys nor copies them"
    if p * layout.interleave > model.layers or model.layers % (p * layout.interleave):
        return f"{p * layout.interleave} stages do not divide {model.layers} layers"
    if layout.shard is not None and d % layout.shard:
        return f"{layout.shard} shards do not divide {d} ranks"
    if work.global_batch % (layout.micro_batch * d):
        return f"{d} ranks with {layout.micro_batch} each do not divide the global batch of {work.global_batch:,}"
    if p > 1 and layout.micro_batches(work) < 4 * p:
        return f"{layout.micro_batches(work)} micro-batches leave a pipeline of {p} idle; {4 * p} or more do not"
    return None
