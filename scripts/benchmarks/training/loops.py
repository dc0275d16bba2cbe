"""Training steps of some 5 ms on one CPU thread: by `Steps`, and by hand. python loops.py ROUNDS CALLS

Both accumulate two micro-batches, clip, skip a step that is not finite, and move a schedule. Prints the seconds of a
step by Steps and by hand for each round; they take turns within one process.
"""

import json
import sys
import time

import torch
from torch import nn

from slurmopt.training import Steps, schedules

WIDTH, BATCH, PASSES = 384, 64, 2


def made() -> tuple[nn.Module, torch.optim.Optimizer, torch.Tensor]:
    torch.manual_seed(0)
    layers = [layer for _ in range(4) for layer in (nn.Linear(WIDTH, WIDTH), nn.GELU())]
    model = nn.Sequential(*layers, nn.Linear(WIDTH, 1))
    return model, torch.optim.AdamW(model.parameters(), lr=1e-3), torch.randn(BATCH, WIDTH)


class Ours:
    def __init__(self) -> None:
        self.model, optimizer, self.x = made()
        schedule = schedules.cosine(100_000, warmup=100)
        self.steps = Steps(self.model, optimizer, schedule=schedule, clip=1.0, accumulate=PASSES)

    def step(self) -> None:
        for _ in range(PASSES):
            with self.steps.forward():
                loss = self.model(self.x).square().mean()
            self.steps.backward(loss)


class ByHand:
    def __init__(self) -> None:
        self.model, self.optimizer, self.x = made()
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
    return (time.perf_counter() - began) / calls


def main(rounds: int, calls: int) -> None:
    torch.set_num_threads(1)
    loops = (Ours(), ByHand())
    for loop in loops:
        seconds(loop, calls)
    found = []
    for number in range(rounds):
        order = loops if number % 2 else loops[::-1]
        took = {id(loop): seconds(loop, calls) for loop in order}
        found.append([took[id(loop)] for loop in loops])
    print(json.dumps(found))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
