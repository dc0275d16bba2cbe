"""The group `plan`: what `slurmopt plan` is to know of the training."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field

from slurmopt.config.check import one_line_text, one_of, readable, whole_number
from slurmopt.errors import ConfigError
from slurmopt.planning.layout import (
    ATTENTIONS,
    DDP,
    FLASH,
    LOSSES,
    NO,
    PLAIN,
    RECOMPUTES,
    STRATEGIES,
    Work,
    usual_precision,
)
from slurmopt.planning.states import ADAMW, OPTIMIZERS, PRECISIONS
from slurmopt.units import byte_count, seconds

LEAST_GBITS = 0.1
"""Of a network; slower ones make numbers that no training has."""
MOST = 10**9
"""Of counts that a plan multiplies."""
_MOST_NODES, _MOST_SIZES, _MOST_ASKS = 100_000, 50, 10
DIMENSIONS = ("micro_batch", "strategy", "tensor", "pipeline", "recompute")
"""What a training may let its config choose."""


@dataclass(kw_only=True)
class Rates:
    """What keeping checkpoints costs: names of rates in the file of prices."""

    shared: str | None = None
    """The rate of `checkpoint.shared`, such as `fsx-persistent-250`."""

    s3: str | None = None
    """The rate of `checkpoint.s3`, such as `s3-standard`."""

    def __post_init__(self) -> None:
        for tier, name in self.named.items():
            one_line_text(name, f"plan.storage.{tier}")

    @property
    def named(self) -> dict[str, str]:
        """Tier → rate, of those that have one."""
        return {tier: name for tier, name in asdict(self).items() if name is not None}


@dataclass(kw_only=True)
class Plan:
    """What [`slurmopt plan`](planning.md) is to know of the training. The job itself takes nothing from here."""

    model: str | None = None
    """A public model such as `llama-8b`, the path of a `config.json` of transformers, or a count such as `7B`."""

    gpu: str | None = None
    """The GPU, such as `h100`. Default: `resources.gpu_type`."""

    network: float | None = None
    """The network of a node in Gbit/s, such as 3200. Needed for several nodes."""

    nodes: list[int] = field(default_factory=list)
    """The numbers of nodes to compare. Default: `resources.nodes`, and 1, 2, 4, … up to four times as many."""

    partitions: list[str] = field(default_factory=list)
    """The partitions to compare by when the run would finish. Default: `resources.partition`."""

    times: list[str] = field(default_factory=list)
    """The time limits to compare, such as `[4h, 1d]`: a short one may start earlier, and waits again for each of its
    attempts. Default: `resources.time`."""

    sequence: int | None = None
    """Tokens of a sample."""

    global_batch: int | None = None
    """Samples of a step over all ranks. Default: a micro-batch of each rank of the experiment."""

    tokens: float | None = None
    """Tokens of the whole training, such as 2e9."""

    boot: str | None = None
    """How long a cloud bills a node before the job starts and after it ends (boot, health check, SuspendTime), such as
    `12min`."""

    storage: Rates = field(default_factory=Rates)
    """What keeping checkpoints costs."""

    transfers: str | None = None
    """What the run moves in or out at the file's `transfer` rate, such as `2T`, in powers of 1024."""

    precision: str | None = None
    """`fp32`, `autocast` (torch.autocast over fp32 weights), `policy` (FSDP2's MixedPrecisionPolicy), `mixed` (16-bit
    weights, and an fp32 copy in the optimizer) or `bf16`. Default: `policy` with fsdp and hsdp, else `autocast`."""

    optimizer: str = ADAMW
    """`adamw`, `adamw-8bit`, `momentum`, `sgd`, `lion` or `adafactor`."""

    fp32_gradients: bool = False
    """Whether 16-bit weights have gradients in fp32."""

    attention: str = FLASH
    """`flash`; `eager`: the matrix of scores stands in memory."""

    loss: str = PLAIN
    """`plain`; `chunked`: the logits never stand in memory at once."""

    dropout: bool = False
    """Whether the model drops activations in training."""

    strategy: str = DDP
    """`ddp`, `zero1`, `zero2`, `fsdp`, or `hsdp`: sharded inside of each node, copied over nodes."""

    tensor: int = 1
    """Ranks of tensor parallelism, with the sequence split too."""

    pipeline: int = 1
    """Stages of a pipeline."""

    micro_batch: int = 1
    """Samples of a rank at a time."""

    recompute: str = NO
    """Activation checkpointing: `no`, `selective` (the scores of attention) or `full` (of each layer)."""

    keys: dict[str, str] = field(default_factory=dict)
    """The config's own keys of what the training can vary: `{micro_batch: train.batch_size, strategy: train.strategy}`.
    Of `micro_batch`, `strategy`, `tensor`, `pipeline` and `recompute` those that have no key stay as they are."""

    def __post_init__(self) -> None:
        for name in ("sequence", "global_batch", "tensor", "pipeline", "micro_batch"):
            if (value := getattr(self, name)) is not None:
                whole_number(value, 1, f"plan.{name}", MOST)
        for name, least, most in (("tokens", 1.0, 1e18), ("network", LEAST_GBITS, 1e6)):
            if (value := getattr(self, name)) is not None and not least <= value <= most:
                raise ConfigError(f"{value:g} is not valid; valid: {least:g} to {most:g}", f"plan.{name}")
        for at, nodes in enumerate(self.nodes):
            whole_number(nodes, 1, f"plan.nodes[{at}]", _MOST_NODES)
        if len(self.nodes) > _MOST_SIZES:
            raise ConfigError(f"has {len(self.nodes):,} numbers; valid: up to {_MOST_SIZES}", "plan.nodes")
        self._check_words()
        self._check_asks()
        self._check_costs()
        for dimension, key in self.keys.items():
            one_of(dimension, DIMENSIONS, "plan.keys")
            if not key:
                raise ConfigError("needs a key of the config", f"plan.keys.{dimension}")
        for name in ("model", "gpu"):
            one_line_text(getattr(self, name), f"plan.{name}")

    def _check_words(self) -> None:
        words = {
            "strategy": STRATEGIES,
            "recompute": RECOMPUTES,
            "precision": PRECISIONS,
            "optimizer": OPTIMIZERS,
            "attention": ATTENTIONS,
            "loss": LOSSES,
        }
        for name, valid in words.items():
            if (value := getattr(self, name)) is not None:
                one_of(value, valid, f"plan.{name}")

    def _check_asks(self) -> None:
        self.partitions, self.times = list(map(str, self.partitions)), list(map(str, self.times))
        for at, name in enumerate(self.partitions):
            one_line_text(name, f"plan.partitions[{at}]")
            if not name:
                raise ConfigError("is empty; valid: the name of a partition", f"plan.partitions[{at}]")
        for at, time in enumerate(self.times):
            readable(time, seconds, f"plan.times[{at}]")
        for name in ("partitions", "times"):
            if (count := len(getattr(self, name))) > _MOST_ASKS:
                raise ConfigError(f"has {count:,}; valid: up to {_MOST_ASKS}", f"plan.{name}")

    def _check_costs(self) -> None:
        if self.boot is not None:
            self.boot = str(self.boot)
            readable(self.boot, seconds, "plan.boot")
        if self.transfers is not None:
            self.transfers = str(self.transfers)
            readable(self.transfers, byte_count, "plan.transfers")

    def work(self, global_batch: int) -> Work:
        """One step of the training, with this global batch unless the config has one."""
        return Work(
            sequence=self.sequence or 1,
            global_batch=self.global_batch or global_batch,
            precision=self.precision or usual_precision(self.strategy),
            optimizer=self.optimizer,
            fp32_gradients=self.fp32_gradients,
            attention=self.attention,
            loss=self.loss,
            dropout=self.dropout,
        )
