"""What slurmopt and TraceML each take from a training in torch whose steps of 5 ms keep all cores busy.

    PYTHONPATH=scripts PYTHON -m benchmarks.monitor.beside_traceml [REPEATS]
        PYTHON: one that has slurmopt, torch and traceml-ai

Three trainings take turns as in `throughput`: one without either; one with heartbeats, `progress`, `watch` and
slurmopt's sampler; one under `traceml run` with `traceml.init()` and `traceml.trace_step`.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from benchmarks.monitor.throughput import (
    RANKS,
    TURN,
    TURNS,
    Training,
    measured_calls,
    nothing,
    rounds_of_a_step,
    start_sampler,
    work,
)

KINDS = ("plain", "slurmopt", "traceml")


def rank(how: str, folder: Path, rounds: int) -> None:
    """Makes steps until it is ended, and writes their number to a file after each."""
    number = int(os.environ.get("RANK", "0"))
    if how == "traceml":
        import traceml_ai

        traceml_ai.init()
    import torch

    torch.set_num_threads(1)
    model = torch.nn.Linear(64, 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batch = torch.ones(16, 64)
    loader: Iterator[int] = itertools.repeat(0)
    step_done: Callable[[int], None] = nothing
    traced: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext
    if how == "slurmopt":
        loader, step_done = measured_calls(folder, number)
    elif how == "traceml":
        traced = partial(traceml_ai.trace_step, model)
    with open(folder / f"{how}-{number}", "wb", buffering=0) as counter:
        for step, _ in enumerate(loader, 1):
            with traced():
                optimizer.zero_grad()
                model(batch).square().mean().backward()
                work(rounds)
                optimizer.step()
            step_done(step)
            counter.seek(0)
            counter.write(b"%12d" % step)


class TorchTraining(Training):
    """The processes of one training in torch, and of what measures it."""

    def __init__(self, how: str, folder: Path, rounds: int) -> None:  # started here, not forked
        self._how, self._folder = how, folder
        (folder / "heartbeat" / "attempt-0").mkdir(parents=True, exist_ok=True)
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "OMP_NUM_THREADS": "1"}
        words = [__file__, how, str(folder), str(rounds)]
        if how == "traceml":
            traceml = str(Path(sys.executable).with_name("traceml"))
            options = ["--mode", "summary", "--logs-dir", str(folder / "traceml"), "--run-name", "run"]
            ranks = ["--nproc-per-node", str(RANKS)]
            commands = [[traceml, "run", *options, *ranks, words[0], "--args", *words[1:]]]
        else:
            commands = [[sys.executable, *words]] * RANKS
        self._started = [
            subprocess.Popen(command, env={**environment, "RANK": str(number)}, cwd=folder, stdout=subprocess.DEVNULL)
            for number, command in enumerate(commands)
        ]
        if how == "slurmopt":
            self._started.append(start_sampler(folder, self._started[0].pid))

    def wait_for_steps(self) -> None:
        """Until each rank has made some."""
        until = time.monotonic() + 120
        while self.steps() < 100 * RANKS:
            if time.monotonic() > until or any(process.poll() is not None for process in self._started):
                raise SystemExit(f"the training {self._how} makes no steps")
            time.sleep(0.1)

    def send(self, number: signal.Signals) -> None:
        for pid in _descendants([process.pid for process in self._started]):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def end(self) -> None:
        self.send(signal.SIGKILL)
        for process in self._started:
            process.wait()


def _descendants(pids: list[int]) -> list[int]:
    found = list(pids)
    for pid in found:
        with contextlib.suppress(OSError):
            for task in Path(f"/proc/{pid}/task").iterdir():
                found += [int(child) for child in (task / "children").read_text().split()]
    return found


def losses(folder: Path, rounds: int, order: random.Random) -> dict[str, float]:
    """Kind → per cent of the throughput that it takes: the median over turns."""
    trainings: dict[str, TorchTraining] = {}
    found: dict[str, list[float]] = {how: [] for how in KINDS[1:]}
    try:
        for how in KINDS:
            trainings[how] = TorchTraining(how, folder / how, rounds)
            trainings[how].wait_for_steps()
            trainings[how].send(signal.SIGSTOP)
        for training in trainings.values():
            training.turn(2 * TURN)
        for _ in range(TURNS):
            rates = {how: trainings[how].turn(TURN) for how in order.sample(KINDS, len(KINDS))}
            for how, each in found.items():
                each.append(100 * (1 - rates[how] / rates["plain"]))
    finally:
        for training in trainings.values():
            training.end()
    return {how: statistics.median(each) for how, each in found.items()}


def main(repeats: int) -> None:
    rounds, order = rounds_of_a_step(), random.Random(12)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as base:
        found = [losses(Path(base) / str(number), rounds, order) for number in range(repeats)]
    for how in KINDS[1:]:
        each = [one[how] for one in found]
        error = statistics.stdev(each) / len(each) ** 0.5 if len(each) > 1 else float("nan")
        print(
            f"{how} takes {statistics.mean(each):.2f} % (± {error:.2f}) of the throughput; {repeats} times 3 trainings"
        )


if __name__ == "__main__":
    if len(sys.argv) > 2:
        rank(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 8)
