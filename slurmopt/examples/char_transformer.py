"""A character-level transformer that learns to write Python: the quickstart's task, and a tour of slurmopt's API.

slurmopt calls `train` once in every rank, with torch.distributed initialised, the GPU bound where there is one, and the
whole config as argument. All but these names is plain PyTorch:

    rank_facts()        which rank this is, of how many
    current_run()       the run folder and the attempt
    progress()          what `slurmopt status` shows: the step, the speed, the losses
    Checkpointer        saves the state behind the training's back, and finds the newest that is whole; when the job's
                        time is nearly up or it is being preempted, `save` is where all ranks leave, to be started again
    rng_state()         the random numbers' place, as a part of the state
    ResumableSampler    each sample once an epoch, however often the run is interrupted

A run that is interrupted at any step, by any kind of end, and launched again ends with the very weights of one that
never was: on a CPU bit for bit.

The text is the source of Python's standard library, which every machine has.
"""

from __future__ import annotations

import math
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

from slurmopt import current_run, progress, rank_facts
from slurmopt.checkpoint import Checkpointer, rng_state
from slurmopt.training import ResumableSampler

VOCABULARY = 256  # one token a byte
TEXT_BYTES = 4_000_000
VALIDATION_WINDOWS = 128
REPORT_EVERY = 20  # steps
WARM_UP = 20  # steps


def train(config: Any) -> dict[str, float]:
    """Trains to the end. What it returns is kept in the run's result.json."""
    torch.set_num_threads(config.resources.cpus_per_task or 1)
    training = Training(config)
    with Checkpointer(config.checkpoint, current_run()) as checkpointer:
        training.begin(checkpointer.restore(training.state))
        for windows in training.batches_left():
            training.update(windows)
            checkpointer.save(training.step, training.state, force=training.step == config.train.steps)
    training.say(f"\nThe model writes:\n{training.sample('    def __init__(self', 300)}")
    return {"val_loss": training.validation_loss(), "first_val_loss": training.state["first_val_loss"]}


class Training:
    """One rank's share of the training: its copy of the model, its part of each batch."""

    def __init__(self, config: Any) -> None:
        self.config = config
        self.ranks = rank_facts()
        self.device = torch.device("cuda" if dist.get_backend() == "nccl" else "cpu")
        text, self.held_out = (Windows(part, config.model.context) for part in read_text())
        torch.manual_seed(config.train.seed)
        self.model = Transformer(**config.model).to(self.device)
        self.parallel = DistributedDataParallel(self.model)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=config.train.lr)
        self.sampler = ResumableSampler(len(text), batch_size=config.train.batch, seed=config.train.seed)
        self.loader = DataLoader(text, batch_sampler=self.sampler)
        self.state = {
            "model": self.model,
            "optimizer": self.optimizer,
            "sampler": self.sampler,
            "rng": rng_state(),
            "first_val_loss": math.nan,
        }
        torch.manual_seed(config.train.seed + 1 + self.ranks.rank)  # from here on each rank drops out others
        self.settle_buckets()

    def settle_buckets(self) -> None:
        """A discarded backward pass, after which DDP puts the gradients into the buckets that it then keeps.

        Otherwise the first step of every attempt would sum in another order than a step of a running one, and beyond
        two ranks the last bits of a sum depend on its order.
        """
        some = next(iter(DataLoader(self.held_out, batch_size=self.config.train.batch)))
        next_token_loss(self.parallel, some.to(self.device)).backward()
        self.optimizer.zero_grad()

    def begin(self, step: int) -> None:
        """`step` is where the checkpoint of an earlier attempt was taken, and 0 without one."""
        self.step = step
        if step:
            self.say(f"resumed at step {step}")
        else:
            self.state["first_val_loss"] = self.validation_loss()
            self.say(f"{sum(p.numel() for p in self.model.parameters()):,} parameters on {self.ranks.world_size} ranks")
            self.say(f"before training: val {self.state['first_val_loss']:.2f}")
        self.started, self.first_step = time.monotonic(), step

    def batches_left(self) -> Iterator[Tensor]:
        """This rank's windows for each step that is left, through as many epochs as that takes."""
        while self.step < self.config.train.steps:
            for windows in self.sampler.track(self.loader):
                yield windows.to(self.device)
                if self.step == self.config.train.steps:
                    return

    def update(self, windows: Tensor) -> None:
        """One step of the optimizer."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.config.train.lr * schedule(self.step, self.config.train.steps)
        loss = next_token_loss(self.parallel, windows)
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.step += 1
        progress(self.step, total=self.config.train.steps)
        if self.step % REPORT_EVERY == 0:
            self.report(loss.detach())

    def report(self, loss: Tensor) -> None:
        """Computed by all ranks together, printed by the first."""
        train_loss = self.sum_over_ranks(loss) / self.ranks.world_size
        val_loss, steps = self.validation_loss(), self.config.train.steps
        progress(self.step, total=steps, train_loss=train_loss, val_loss=val_loss)
        speed = (self.step - self.first_step) / (time.monotonic() - self.started)
        minutes, seconds = divmod(round((steps - self.step) / speed), 60)
        losses = f"train {train_loss:.2f}  val {val_loss:.2f}"
        self.say(f"step {self.step:4}/{steps}  {losses}  {speed:.1f} steps/s  left {minutes}:{seconds:02}")

    @torch.no_grad()
    def validation_loss(self) -> float:
        """The loss on evenly spaced windows of the held-out files, which the ranks share between them."""
        share = torch.linspace(0, len(self.held_out) - 1, VALIDATION_WINDOWS).long()
        mine = share[self.ranks.rank :: self.ranks.world_size].tolist()
        self.model.eval()
        windows = torch.stack([self.held_out[index] for index in mine]).to(self.device)
        total = next_token_loss(self.model, windows, "sum")
        self.model.train()
        return self.sum_over_ranks(total) / (VALIDATION_WINDOWS * self.model.context)

    def sum_over_ranks(self, value: Tensor) -> float:
        dist.all_reduce(value)
        return value.item()

    @torch.no_grad()
    def sample(self, prompt: str, length: int) -> str:
        tokens = torch.tensor([list(prompt.encode())], device=self.device)
        self.model.eval()
        for _ in range(length):
            logits = self.model(tokens[:, -self.model.context :])[:, -1]
            tokens = torch.cat([tokens, torch.multinomial((logits / 0.8).softmax(-1), 1)], dim=1)
        return bytes(tokens[0].tolist()).decode(errors="replace")

    def say(self, text: str) -> None:
        if self.ranks.rank == 0:
            print(text, flush=True)


class Windows(Dataset[Tensor]):
    """A text cut into windows of `context` bytes and the byte that follows: int64, shape [context + 1]."""

    def __init__(self, text: Tensor, context: int) -> None:
        self.text, self.context = text, context

    def __len__(self) -> int:
        return (len(self.text) - 1) // self.context

    def __getitem__(self, index: int) -> Tensor:
        start = index * self.context
        return self.text[start : start + self.context + 1].long()


class Transformer(nn.Module):
    """Decoder only: bytes in, for each position the logits of the next byte out."""

    def __init__(self, layers: int, width: int, heads: int, context: int, dropout: float) -> None:
        super().__init__()
        if width % (2 * heads):
            raise ValueError(f"model.width={width} is not a multiple of twice model.heads={heads}")
        self.context = context
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.blocks = nn.Sequential(*(Block(width, heads, dropout) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        nn.init.normal_(self.tokens.weight, std=0.1)

    def forward(self, tokens: Tensor) -> Tensor:
        hidden: Tensor = self.norm(self.blocks(self.tokens(tokens)))
        return hidden @ self.tokens.weight.T


class Block(nn.Module):
    """Attention to what came before, then a small network for each position."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width)
        self.queries_keys_values = nn.Linear(width, 3 * width)
        self.mix = nn.Linear(width, width)
        wide = 4 * width
        self.think = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, wide), nn.GELU(), nn.Linear(wide, width))
        self.drop = nn.Dropout(dropout)

    def forward(self, hidden: Tensor) -> Tensor:
        heads = self.queries_keys_values(self.norm(hidden)).unflatten(-1, (3, self.heads, -1))
        queries, keys, values = heads.permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(rotate(queries), rotate(keys), values, is_causal=True)
        mixed: Tensor = hidden + self.drop(self.mix(attended.transpose(1, 2).flatten(2)))
        thought: Tensor = self.drop(self.think(mixed))
        return mixed + thought


def rotate(heads: Tensor) -> Tensor:
    """Rotary position embedding: what two positions have for each other depends on the distance between them."""
    length, half = heads.shape[-2], heads.shape[-1] // 2
    speeds = 1000.0 ** -(torch.arange(half, device=heads.device) / half)
    angles = torch.arange(length, device=heads.device)[:, None] * speeds
    real, imaginary = heads.chunk(2, dim=-1)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([real * cos - imaginary * sin, real * sin + imaginary * cos], dim=-1)


def next_token_loss(model: nn.Module, windows: Tensor, reduction: str = "mean") -> Tensor:
    logits = model(windows[:, :-1])
    loss: Tensor = functional.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten(), reduction=reduction)
    return loss


def schedule(step: int, steps: int) -> float:
    """The share of the learning rate: a linear rise, then half a cosine down to a tenth."""
    return min((step + 1) / WARM_UP, 0.55 + 0.45 * math.cos(math.pi * step / steps))


def read_text() -> tuple[Tensor, Tensor]:
    """The modules of the standard library as bytes; each tenth is held out, for validation."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    sources = [path.read_bytes() for path in sorted(folder.glob("*.py"))]
    if len(sources) < 10:
        raise FileNotFoundError(f"{folder} has no Python sources to learn from; use a Python that has them")
    held_out = b"".join(sources[::10])
    del sources[::10]
    return _tensor(b"".join(sources)), _tensor(held_out)


def _tensor(text: bytes) -> Tensor:
    return torch.frombuffer(bytearray(text[:TEXT_BYTES]), dtype=torch.uint8)
