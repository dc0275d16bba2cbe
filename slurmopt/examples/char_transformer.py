"""A character-level transformer that learns to write Python: the quickstart's task, and a tour of slurmopt's API.

slurmopt calls `train` once in every rank, with torch.distributed initialised, the GPU bound where there is one, and the
whole config as argument. All but five names is plain PyTorch:

    rank_facts()       which rank this is, of how many
    current_run()      the run folder, with `checkpoints/` for the training's own files
    progress()         what `slurmopt status` shows: the step, the speed, the losses
    stop_requested()   the job's time is nearly up, or it is being preempted: save now
    Requeue            raised once the state is saved: the next attempt goes on from there

The text is the source of Python's standard library, which every machine has.
"""

from __future__ import annotations

import math
import os
import sysconfig
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from slurmopt import Requeue, current_run, progress, rank_facts, stop_requested

VOCABULARY = 256  # one token a byte
TEXT_BYTES = 4_000_000
VALIDATION_WINDOWS = 128
REPORT_EVERY = 20  # steps
AGREE_EVERY = 5  # steps
WARM_UP = 20  # steps


def train(config: Any) -> dict[str, float]:
    """Trains to the end, or up to a stop request. What it returns is kept in the run's result.json."""
    torch.set_num_threads(config.resources.cpus_per_task or 1)
    training = Training(config)
    training.resume()
    while training.step < config.train.steps:
        loss = training.update()
        progress(training.step, total=config.train.steps)
        if training.step % REPORT_EVERY == 0:
            training.report(loss)
        if training.step % config.train.save_every == 0:
            training.save()
        if training.step % AGREE_EVERY == 0 and training.any_rank(stop_requested()):
            training.save()
            raise Requeue(f"saved at step {training.step}")
    training.say(f"\nThe model writes:\n{training.sample('    def __init__(self', 300)}")
    return {"val_loss": training.validation_loss(), "first_val_loss": training.first_val_loss}


class Training:
    """One rank's share of the training: its copy of the model, its part of each batch."""

    def __init__(self, config: Any) -> None:
        self.config = config
        self.ranks = rank_facts()
        self.device = torch.device("cuda" if dist.get_backend() == "nccl" else "cpu")
        self.checkpoint = current_run().folder.checkpoints / "training.pt"
        self.text, self.held_out = read_text()
        torch.manual_seed(config.train.seed)
        self.model = Transformer(**config.model).to(self.device)
        self.parallel = DistributedDataParallel(self.model)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=config.train.lr)
        self.step = 0
        self.first_val_loss = math.nan

    def resume(self) -> None:
        """Goes on from the checkpoint of an earlier attempt, or starts anew."""
        if self.checkpoint.exists():
            state = torch.load(self.checkpoint, map_location=self.device, weights_only=True)
            self.model.load_state_dict(state["model"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.step, self.first_val_loss = state["step"], state["first_val_loss"]
            self.say(f"resumed at step {self.step}")
        else:
            self.first_val_loss = self.validation_loss()
            self.say(f"{sum(p.numel() for p in self.model.parameters()):,} parameters on {self.ranks.world_size} ranks")
            self.say(f"before training: val {self.first_val_loss:.2f}")
        self.started, self.first_step = time.monotonic(), self.step

    def save(self) -> None:
        """Written beside the old checkpoint and renamed over it: a job that is killed here still has the old one."""
        if self.ranks.rank != 0:
            return
        state = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}
        partial = self.checkpoint.with_suffix(".partial")
        with partial.open("wb") as file:
            torch.save({**state, "step": self.step, "first_val_loss": self.first_val_loss}, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, self.checkpoint)

    def update(self) -> Tensor:
        """One step of the optimizer; the loss of this rank's part of the batch."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.config.train.lr * schedule(self.step, self.config.train.steps)
        loss = next_token_loss(self.parallel, self.batch())
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.step += 1
        return loss.detach()

    def batch(self) -> Tensor:
        """Random windows that follow from seed, step and rank alone: there is no generator to save or to restore."""
        train, ranks = self.config.train, self.ranks
        number = (train.seed * 1_000_003 + self.step) * ranks.world_size + ranks.rank
        last = len(self.text) - self.model.context
        starts = torch.randint(last, (train.batch,), generator=torch.Generator().manual_seed(number))
        return self.windows(self.text, starts)

    def windows(self, text: Tensor, starts: Tensor) -> Tensor:
        return text[starts[:, None] + torch.arange(self.model.context + 1)].to(self.device).long()

    @torch.no_grad()
    def validation_loss(self) -> float:
        """The loss on evenly spaced windows of the held-out files, which the ranks share between them."""
        last = len(self.held_out) - self.model.context - 1
        starts = torch.linspace(0, last, VALIDATION_WINDOWS).long()[self.ranks.rank :: self.ranks.world_size]
        total = next_token_loss(self.model, self.windows(self.held_out, starts), "sum")
        return self.sum_over_ranks(total) / (VALIDATION_WINDOWS * self.model.context)

    def report(self, loss: Tensor) -> None:
        """Computed by all ranks together, printed by the first."""
        train_loss = self.sum_over_ranks(loss) / self.ranks.world_size
        val_loss, steps = self.validation_loss(), self.config.train.steps
        progress(self.step, total=steps, train_loss=train_loss, val_loss=val_loss)
        speed = (self.step - self.first_step) / (time.monotonic() - self.started)
        minutes, seconds = divmod(round((steps - self.step) / speed), 60)
        losses = f"train {train_loss:.2f}  val {val_loss:.2f}"
        self.say(f"step {self.step:4}/{steps}  {losses}  {speed:.1f} steps/s  left {minutes}:{seconds:02}")

    def sum_over_ranks(self, value: Tensor) -> float:
        dist.all_reduce(value)
        return value.item()

    def any_rank(self, flag: bool) -> bool:
        """A stop request reaches the ranks at different steps; leaving alone would keep the others waiting."""
        return self.sum_over_ranks(torch.tensor(float(flag), device=self.device)) > 0

    @torch.no_grad()
    def sample(self, prompt: str, length: int) -> str:
        tokens = torch.tensor([list(prompt.encode())], device=self.device)
        for _ in range(length):
            logits = self.model(tokens[:, -self.model.context :])[:, -1]
            tokens = torch.cat([tokens, torch.multinomial((logits / 0.8).softmax(-1), 1)], dim=1)
        return bytes(tokens[0].tolist()).decode(errors="replace")

    def say(self, text: str) -> None:
        if self.ranks.rank == 0:
            print(text, flush=True)


class Transformer(nn.Module):
    """Decoder only: bytes in, for each position the logits of the next byte out."""

    def __init__(self, layers: int, width: int, heads: int, context: int) -> None:
        super().__init__()
        if width % (2 * heads):
            raise ValueError(f"model.width={width} is not a multiple of twice model.heads={heads}")
        self.context = context
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        nn.init.normal_(self.tokens.weight, std=0.1)

    def forward(self, tokens: Tensor) -> Tensor:
        hidden: Tensor = self.norm(self.blocks(self.tokens(tokens)))
        return hidden @ self.tokens.weight.T


class Block(nn.Module):
    """Attention to what came before, then a small network for each position."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width)
        self.queries_keys_values = nn.Linear(width, 3 * width)
        self.mix = nn.Linear(width, width)
        wide = 4 * width
        self.think = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, wide), nn.GELU(), nn.Linear(wide, width))

    def forward(self, hidden: Tensor) -> Tensor:
        heads = self.queries_keys_values(self.norm(hidden)).unflatten(-1, (3, self.heads, -1))
        queries, keys, values = heads.permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(rotate(queries), rotate(keys), values, is_causal=True)
        mixed: Tensor = hidden + self.mix(attended.transpose(1, 2).flatten(2))
        thought: Tensor = self.think(mixed)
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
