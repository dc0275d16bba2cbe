"""Training steps of some 5 ms on one CPU thread, or a GPU: by `Steps`, and by hand. python loops.py ROUNDS CALLS [cuda]

Both accumulate two micro-batches, clip, skip a step that is not finite, and move a schedule. Prints the seconds of a
step by Steps and by hand for each round; they take turns within one process.
"""

import json
import sys
import time

import torch
from torch import nn

from slurmopt.training import Steps, schedules

PASSES = 2
SIZES = {"cpu": (384, 64), "cuda": (2048, 1024)}
"""Device → the width of the model, and the samples of a micro-batch."""


def made(device: str) -> tuple[nn.Module, torch.optim.Optimizer, torch.Tensor]:
    torch.manual_seed(0)
    width, batch = SIZES[device]
    layers = [layer for _ in range(4) for layer in (nn.Linear(width, width), nn.GELU())]
    model = nn.Sequential(*layers, nn.Linear(width, 1)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=device == "cuda")
    return model, optimizer, torch.randn(batch, width, device=device)


class Ours:
    def __init__(self, device: str) -> None:
        self.model, optimizer, self.x = made(device)
        schedule = schedules.cosine(100_000, warmup=100)
        self.steps = Steps(self.model, optimizer, schedule=schedule, clip=1.0, accumulate=PASSES)

    def step(self) -> None:
        for _ in range(PASSES):
            with self.steps.forward():
                loss = self.model(self.x).square().mean()
            self.steps.backward(loss)


class ByHand:
    def __init__(self, device: str) -> None:
        self.model, self.optimizer, self.x = made(device)
        schedule = schedules.cosine(100_000, warmup=100)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optimizer, schedule)

    def step(self) -> None:
        for _ in range(PASSES):
            (self.model(self.x).square().mean() / PASSES).backward()
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        if torch.isfinite(norm).item():
            self.optimizer.step()
            self.schedule.step()
        self.optimizer.zero_grad()


def seconds(loop: Ours | ByHand, calls: int) -> float:
    began = time.perf_counter()
    for _ in range(calls):
        loop.step()
    if loop.x.is_cuda:
        torch.cuda.synchronize()
    return (time.perf_counter() - began) / calls


def main(rounds: int, calls: int, device: str) -> None:
    torch.set_num_threads(1)
    loops = (Ours(device), ByHand(device))
    for loop in loops:
        seconds(loop, calls)
    found = []
    for number in range(rounds):
        order = loops if number % 2 else loops[::-1]
        took = {id(loop): seconds(loop, calls) for loop in order}
        found.append([took[id(loop)] for loop in loops])
    print(json.dumps(found))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else "cpu")
