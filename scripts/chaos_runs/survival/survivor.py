"""The training that `scripts/chaos survival` disturbs: DDP over gloo, and of slurmopt the checkpointer and progress.

A copy of this file is launched as a user's would be. Each rank appends what it does to a record outside of the run
folder, one JSON object a line and one write each, so that it can be judged afterwards whoever was killed.
"""

from __future__ import annotations

import sys
import time

BEGAN = time.time()
HAD_TORCH = "torch" in sys.modules

import hashlib  # noqa: E402
import json  # noqa: E402
import os  # noqa: E402
from collections.abc import Iterator  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import torch  # noqa: E402
import torch._dynamo  # noqa: E402 - a third of torch's import: it comes with the first optimizer otherwise
from torch import nn  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402

from slurmopt import current_run, progress  # noqa: E402
from slurmopt.checkpoint import Checkpointer, rng_state  # noqa: E402
from slurmopt.training import ResumableSampler  # noqa: E402

IMPORTED = time.time()
BATCH, SAMPLES, WIDTH = 4, 403, 32
"""The last global batch of an epoch is not full: an epoch of four ranks has 26 steps."""


def train(config: Any) -> dict[str, Any]:
    """Up to the step that `chaos.last` or the file `last` names; returns that step and what the weights hash to."""
    torch.set_num_threads(1)
    training = Training(config)
    with Checkpointer(config.checkpoint, current_run()) as checkpointer:
        began = time.time()
        training.begin(checkpointer.restore(training.state), time.time() - began)
        for samples in training.samples_left():
            training.update(samples)
            checkpointer.save(training.step, training.state, force=training.is_last())
    return {"step": training.step, "weights": training.digest()}


class Training:
    """One rank's share."""

    def __init__(self, config: Any) -> None:
        run = current_run()
        self.pace, self.folder = config.chaos.pace, Path(config.chaos.folder)
        self.last = config.chaos.last
        self.rank, self.attempt = run.rank.rank, run.attempt
        torch.manual_seed(config.chaos.seed)
        self.model = nn.Sequential(nn.Linear(WIDTH, 64), nn.Dropout(0.2), nn.ReLU(), nn.Linear(64, 1))
        self.parallel = DistributedDataParallel(self.model)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.sampler = ResumableSampler(SAMPLES, batch_size=BATCH, seed=config.chaos.seed)
        self.loader = DataLoader(torch.arange(SAMPLES), batch_sampler=self.sampler)
        self.state = {"model": self.model, "optimizer": self.optimizer, "sampler": self.sampler, "rng": rng_state()}
        torch.manual_seed(config.chaos.seed + 1 + self.rank)  # from here on each rank drops out others
        self.settle_buckets()
        self.record = self.open_record(run.folder.path.name)

    def open_record(self, run: str) -> int:
        path = self.folder / "record" / run / f"attempt-{self.attempt}" / f"rank-{self.rank}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def say(self, **fields: Any) -> None:
        os.write(self.record, (json.dumps({"time": time.time(), **fields}) + "\n").encode())

    def settle_buckets(self) -> None:
        """A discarded backward pass, after which DDP sums the gradients of all steps in the same order."""
        self.parallel(torch.zeros(1, WIDTH)).sum().backward()
        self.optimizer.zero_grad()

    def begin(self, step: int, restoring: float) -> None:
        self.step = step
        importing = 0.0 if HAD_TORCH else IMPORTED - BEGAN
        self.say(said="restored", step=step, restoring=restoring, importing=importing, pid=os.getpid())

    def samples_left(self) -> Iterator[Any]:
        while not self.is_last():
            for samples in self.sampler.track(self.loader):
                yield samples
                if self.is_last():
                    return

    def is_last(self) -> bool:
        """The file is written long before its step, so all ranks have read it by then."""
        if self.last is None and (self.folder / "last").exists():
            self.last = int((self.folder / "last").read_text())
        return self.last is not None and self.step >= self.last

    def update(self, samples: Any) -> None:
        values = torch.sin(samples[:, None] * torch.arange(1, WIDTH + 1) / 7)
        loss = (self.parallel(values) - torch.cos(samples[:, None] / 5)).square().sum()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.step += 1
        self.say(step=self.step, epoch=self.sampler.epoch, samples=samples.tolist())
        progress(self.step)
        self.eat()
        time.sleep(self.pace)

    def eat(self) -> None:
        """Takes memory without end, once the file `eat` asks this rank of this attempt to."""
        if (self.folder / "eat").exists() and (self.folder / "eat").read_text() == f"{self.attempt} {self.rank}":
            eaten = []
            while True:
                eaten.append(b"\1" * (64 << 20))

    def digest(self) -> str:
        weights = self.model.state_dict()
        return hashlib.sha256(b"".join(weights[name].numpy().tobytes() for name in sorted(weights))).hexdigest()
