"""What measuring takes from a training whose steps of 5 ms keep all cores busy: sampler and ranks together.

Two trainings with a rank for each core take turns of some seconds in one run: the one whose turn it is not is stopped
(SIGSTOP), its sampler included. One is plain Python; the ranks of the other write heartbeats, call `progress` with
metrics and tokens in each step, and watch their loader; a sampler measures the node beside them. A rank of the one and
that of the other are forks of one process: processes that were started apart differ by some per cent, as their memory
lies elsewhere.

    throughput.py FOLDER RANK ROUNDS     such a pair: prints its process ids; each writes its count of steps to a file
"""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import signal
import statistics
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.report import Report
from benchmarks.workbench import Workbench

STEP = 0.005
TURN = 1.5
TURNS, TRAININGS = 5, 8
"""Turns of each training, after one that is not counted; pairs of trainings."""
AT_MOST = 1.0
"""Per cent of the throughput."""
KINDS = ("plain", "measured")
RANKS = len(os.sched_getaffinity(0))
ROUNDS_OF_WORK = 100
BLOCK = bytes(65536)


def work(rounds: int) -> None:
    """The fixed work of a step. It makes no objects: what that costs depends on where the others of the process lie,
    and differs by some per cent between two trainings."""
    for _ in range(rounds):
        zlib.crc32(BLOCK)


def rounds_of_a_step() -> int:
    """The rounds that take a step's time on one idle core."""
    took = min(_timed(ROUNDS_OF_WORK) for _ in range(20))
    return max(1, round(ROUNDS_OF_WORK * STEP / took))


def _timed(rounds: int) -> float:
    began = time.perf_counter()
    work(rounds)
    return time.perf_counter() - began


def pair(folder: Path, number: int, rounds: int) -> None:
    """Makes a rank of each training, and waits until both are ended."""
    from slurmopt import progress, watch  # before they part  # noqa: F401
    from slurmopt.job.heartbeat.heartbeat_writer import HeartbeatWriter  # noqa: F401

    for _ in range(100):
        work(rounds)
    ranks = []
    for how in KINDS:
        ranks.append(os.fork())
        if not ranks[-1]:
            rank(how, folder, number, rounds)
    print(*ranks, flush=True)
    for process in ranks:
        os.waitpid(process, 0)


def rank(how: str, folder: Path, number: int, rounds: int) -> None:
    """Makes steps until it is ended, and writes their number to a file after each."""
    loader: Iterator[int] = itertools.repeat(0)
    step_done: Callable[[int], None] = nothing
    if how == "measured":
        loader, step_done = measured_calls(folder, number)
    with open(folder / f"{how}-{number}", "wb", buffering=0) as counter:
        for step, _ in enumerate(loader, 1):
            work(rounds)
            step_done(step)
            counter.seek(0)
            counter.write(b"%12d" % step)


def nothing(step: int) -> None:
    """What a plain training reports."""


def measured_calls(folder: Path, number: int) -> tuple[Iterator[int], Callable[[int], None]]:
    from slurmopt import progress, watch
    from slurmopt.job.facts.rank_facts import facts_from
    from slurmopt.job.heartbeat.heartbeat_writer import HeartbeatWriter
    from slurmopt.job.worker import current_run

    words = {"RANK": number, "WORLD_SIZE": RANKS, "LOCAL_RANK": number, "SLURMD_NODENAME": "n"}
    facts = facts_from({name: str(word) for name, word in words.items()})
    live = HeartbeatWriter(folder / "heartbeat" / "attempt-0" / f"rank-{number}.json", facts, 10.0, lambda: None)
    live.start()
    current_run.become(live)
    live.enter("running")

    def step_done(step: int) -> None:
        progress(step, 10**9, loss=0.5, tokens=4096, samples=2)

    return iter(watch(itertools.repeat(0))), step_done


class Training:
    """The processes of one training."""

    def __init__(self, how: str, folder: Path, ranks: list[int]) -> None:
        self._how, self._folder = how, folder
        self._sampler = start_sampler(folder, ranks[0]) if how == "measured" else None
        self._processes = ranks + ([self._sampler.pid] if self._sampler else [])

    def steps(self) -> int:
        """The steps of all ranks so far."""
        files = [self._folder / f"{self._how}-{number}" for number in range(RANKS)]
        return sum(int(file.read_bytes() or 0) for file in files if file.exists())

    def turn(self, seconds: float) -> float:
        """Steps per second of a turn."""
        self.send(signal.SIGCONT)
        before, began = self.steps(), time.perf_counter()
        time.sleep(seconds)
        rate = (self.steps() - before) / (time.perf_counter() - began)
        self.send(signal.SIGSTOP)
        return rate

    def end(self) -> None:
        self.send(signal.SIGKILL)
        if self._sampler:
            self._sampler.wait()

    def send(self, number: signal.Signals) -> None:
        for process in self._processes:
            os.kill(process, number)


@contextlib.contextmanager
def trainings(folder: Path, rounds: int) -> Iterator[list[Training]]:
    """The plain one and the measured one."""
    path = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    words = [sys.executable, "-m", "benchmarks.monitor.throughput", str(folder)]
    parents = [
        subprocess.Popen(
            [*words, str(number), str(rounds)], stdout=subprocess.PIPE, text=True,
            env={**os.environ, "PYTHONPATH": path}, cwd=folder,
        )
        for number in range(RANKS)
    ]  # fmt: skip
    pairs = [[int(pid) for pid in (parent.stdout or io.StringIO()).readline().split()] for parent in parents]
    both = [Training(how, folder, list(ranks)) for how, ranks in zip(KINDS, zip(*pairs, strict=True), strict=True)]
    try:
        yield both
    finally:
        for training in both:
            training.end()
        for parent in parents:
            parent.communicate()


def start_sampler(folder: Path, pid: int) -> subprocess.Popen[bytes]:
    from slurmopt.job.monitor.here import Here
    from slurmopt.run_folder.process import started_at

    here = Here(
        folder=str(folder), attempt=0, node="n", pid=pid, pid_started=started_at(pid), ranks=list(range(RANKS)),
        every=5.0, sources=("gpu", "node", "network", "ranks"),
    )  # fmt: skip
    words = [sys.executable, "-m", "slurmopt.job.monitor", here.to_json_arg()]
    return subprocess.Popen(words, stdin=subprocess.PIPE)


def bench(bench: Workbench, report: Report, runs: int) -> None:
    """Prints how much throughput measuring takes: the mean over pairs of trainings, and its standard error."""
    rounds = rounds_of_a_step()
    losses = [_loss(bench.place(f"monitor-throughput-{number}"), rounds, number) for number in range(TRAININGS)]
    error = statistics.stdev(losses) / len(losses) ** 0.5
    print(f"\nthroughput of steps of {1000 * STEP:g} ms on {RANKS} cores, {TRAININGS} pairs of trainings")
    print(f"  measuring takes {statistics.mean(losses):.2f} % (± {error:.2f}) of it")
    if error > AT_MOST / 2:
        report.skip("a verdict on the throughput: the trainings differ too much; measure on a quiet machine")
        return
    report.target("throughput that measuring takes", statistics.mean(losses), AT_MOST, "%", binding=False)


def _loss(folder: Path, rounds: int, number: int) -> float:
    """Per cent that the measured one of two trainings loses."""
    (folder / "heartbeat" / "attempt-0").mkdir(parents=True)
    losses: list[float] = []
    with trainings(folder, rounds) as (plain, measured):
        for training in (plain, measured):
            training.turn(2 * TURN)
        for turn in range(TURNS):
            order = (plain, measured) if (turn + number) % 2 else (measured, plain)
            rates = {training: training.turn(TURN) for training in order}
            losses.append(100 * (1 - rates[measured] / rates[plain]))
    return statistics.median(losses)


if __name__ == "__main__":
    pair(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
