"""What slurmopt takes from a training on 2 ranks with steps of 5 ms: its calls, and all that runs beside them.

The calls (`progress`, and a `save` in which nothing is due) are made in every other block of steps, by the same ranks;
compared are the blocks' times, and the processor time of the rank's main thread, which others on the machine disturb
less. What runs beside them is measured by the processor time that it takes: the threads of the ranks (heartbeat,
signals, the agreement on a stop), the lookout, the checkpoint writers, the batch shell; each second of it counts as one
that a rank lost, though a free core may have served it.

A pair of ranks of plain torch makes the same steps, in turns with slurmopt's: one pair works for some seconds while all
processes of the other are stopped by SIGSTOP. That is shown only: two such pairs differ by more than what is sought.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import signal
import socket
import statistics
import subprocess
import time
from bisect import bisect
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.measure import BenchError, Sample
from benchmarks.report import Report
from benchmarks.restart.processes import below, cpu_seconds, cpu_seconds_of_threads, peak_mib, wait_until
from benchmarks.workbench import Workbench
from slurmopt.run_folder import events
from slurmopt.run_folder.layout import RunFolder

TRAINING = Path(__file__).with_name("training.py")
RANKS, BLOCK = 2, 20
WINDOW, SETTLE = 4.0, 0.3
"""Seconds that a pair works at a time, and of these what does not count."""
AT_MOST, AIM = 1.0, 0.5
DECIDED = 0.5
"""Per cent: with a larger standard error nothing is known."""
NAMES = PLAIN, QUIET, CALLED = "plain torch", "slurmopt, no calls", "slurmopt"
Turns = list[tuple[float, float]]


@dataclass
class Pair:
    """Two ranks, and all processes that came with them."""

    folder: Path
    turns: Turns = field(default_factory=list)
    beside: list[float] = field(default_factory=list)
    """Processor time in each turn, in seconds, of what is not the training."""

    def pids(self) -> list[int]:
        raise NotImplementedError

    def work(self, seconds: float) -> None:
        """Lets it run for so long, stopped before and after."""
        pids = self.pids()
        before, began = self.spent_beside(pids), time.perf_counter()
        self.send(signal.SIGCONT, pids)
        time.sleep(seconds)
        self.turns.append((began, time.perf_counter()))
        self.send(signal.SIGSTOP, pids)
        self.beside.append(self.spent_beside(pids) - before)

    def spent_beside(self, pids: list[int]) -> float:
        return 0.0

    def send(self, number: signal.Signals, pids: list[int] | None = None) -> None:
        for pid in self.pids() if pids is None else pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def has_ended(self) -> bool:
        raise NotImplementedError

    def is_at_work(self) -> bool:
        """Whether it makes steps; BenchError where it has ended already."""
        if self.has_ended():
            raise BenchError(f"the training in {self.folder} ended too early")
        return (self.folder / "ready").exists()

    def blocks(self) -> list[dict[int, list[float]]]:
        """Of each turn the whole blocks: their numbers, and how long each of their steps took."""
        ends: list[float] = self.record()["ends"]
        turns = []
        for began, ended in self.turns:
            first, last = bisect(ends, began + SETTLE), bisect(ends, ended)
            numbers = range(first // BLOCK + 1, last // BLOCK)
            laps = {number: range(number * BLOCK, (number + 1) * BLOCK) for number in numbers}
            turns.append({number: [ends[at] - ends[at - 1] for at in steps] for number, steps in laps.items()})
        return turns

    def record(self) -> dict[str, Any]:
        """What rank 0 wrote at the end."""
        found: dict[str, Any] = json.loads((self.folder / "steps.json").read_text())
        return found


@dataclass
class PlainPair(Pair):
    """Started here."""

    ranks: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self, bench: Workbench, given: dict[str, Any]) -> None:
        env = {**bench.env, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(RANKS)}
        argv = [bench.python, str(TRAINING), "plain", json.dumps({**given, "folder": str(self.folder)})]
        self.ranks = [subprocess.Popen(argv, env={**env, "RANK": str(rank)}) for rank in range(RANKS)]

    def pids(self) -> list[int]:
        return [each.pid for each in self.ranks]

    def has_ended(self) -> bool:
        return all([each.poll() is not None for each in self.ranks])  # each is polled


@dataclass
class LaunchedPair(Pair):
    """Launched as a user would."""

    run: RunFolder | None = None
    runner: int = 0

    def start(self, bench: Workbench, given: dict[str, Any]) -> None:
        shutil.copy(TRAINING, self.folder / "restart_training.py")
        bench_words = ",".join(f"{name}:{value}" for name, value in {**given, "folder": f"'{self.folder}'"}.items())
        answer = launch(
            bench, self.folder, "steps", "launch.backend=local", f"+bench={{{bench_words}}}",
            f"resources.tasks_per_node={RANKS}", "resources.cpus_per_task=1",
        )  # fmt: skip
        self.run = RunFolder(Path(answer["run"]))
        (submitted,) = (event for event in events.read(self.run.events) if event["event"] == "submitted")
        self.runner = int(submitted["pid"])

    def pids(self) -> list[int]:
        return below(self.runner)

    def has_ended(self) -> bool:
        assert self.run is not None
        return "end" in [event["event"] for event in events.read(self.run.events)]

    def spent_beside(self, pids: list[int]) -> float:
        """The runner, which stands in for Slurm, does not count."""
        processes = set(pids) - {self.runner, *self.rank_pids()}
        threads = [cpu_seconds_of_threads(each["pid"], each["threads"]) for each in self._ranks()]
        return cpu_seconds(processes) + sum(threads)

    def rank_pids(self) -> list[int]:
        return [each["pid"] for each in self._ranks()]

    def _ranks(self) -> list[dict[str, Any]]:
        return [json.loads((self.folder / f"threads-{rank}.json").read_text()) for rank in range(RANKS)]


def launch(bench: Workbench, project: Path, function: str, *words: str) -> dict[str, Any]:
    """A run of the training, from `project`, in which it lies; what launch.json says."""
    target = f"task._target_=restart_training.{function}"
    fixed = ("launch.json=true", "launch.wait=false", "checkpoint.shared.every=1000000000", "health.shared=null")
    argv = [bench.python, "-m", "slurmopt", "launch", target, *fixed, *words]
    answer: dict[str, Any] = json.loads(bench.run(argv, project))["data"]
    return answer


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def bench(bench: Workbench, report: Report, runs: int) -> None:
    folder = bench.place("restart-steps")
    repeats = int(bench.run([bench.python, str(TRAINING), "calibrate"]))
    plain, launched = PlainPair(folder / "plain"), LaunchedPair(folder / "launched")
    with _at_work(bench, plain, launched, {"repeats": repeats}):
        for number in range(runs):
            for pair in (plain, launched) if number % 2 else (launched, plain):
                pair.work(WINDOW)
        peaks = {
            PLAIN: peak_mib(plain.pids()),
            CALLED: peak_mib(launched.rank_pids()),
            "beside": peak_mib(set(launched.pids()) - set(launched.rank_pids())),
        }
        _end(plain, launched)
    _tell(report, plain, launched, peaks)


@contextlib.contextmanager
def _at_work(bench: Workbench, plain: PlainPair, launched: LaunchedPair, given: dict[str, Any]) -> Iterator[None]:
    """Both make steps, and are stopped; whatever happens, nothing is left of them."""
    try:
        for pair in (plain, launched):
            pair.folder.mkdir()
        plain.start(bench, given)
        launched.start(bench, given)
        for pair in (plain, launched):
            wait_until(pair.is_at_work, 120, f"steps in {pair.folder}")
        time.sleep(1.5)  # the first heartbeat with a step, and whatever starts late
        for pair in (plain, launched):
            pair.send(signal.SIGSTOP)
        yield
    finally:
        for pair in (plain, launched):
            pair.send(signal.SIGKILL)


def _end(plain: PlainPair, launched: LaunchedPair) -> None:
    for pair in (plain, launched):
        (pair.folder / "stop").touch()
        pair.send(signal.SIGCONT)
    for pair in (plain, launched):
        wait_until(pair.has_ended, 60, f"the end of the training in {pair.folder}")


def _tell(report: Report, plain: Pair, launched: Pair, peaks: dict[str, list[float]]) -> None:
    record, turns = launched.record(), launched.blocks()
    called: list[bool] = record["calls"]
    laps = {
        PLAIN: [list(turn.values()) for turn in plain.blocks()],
        QUIET: [[block for number, block in turn.items() if not called[number]] for turn in turns],
        CALLED: [[block for number, block in turn.items() if called[number]] for turn in turns],
    }
    _tell_times(report, laps, peaks)
    beside = _beside(launched)
    whole = [number for turn in turns for number in turn]
    seconds, share, error = _timed(
        record["told"], called, {number: lap for turn in turns for number, lap in turn.items()}
    )
    print(f"  the calls of a step: {1e6 * seconds:.1f} µs; what runs beside:", end=" ")
    print(f"{10 * RANKS * beside:.1f} ms of processor time a second, {beside:.2f} % of the ranks' time", flush=True)
    said = f"more time a step: the calls, timed, {share:.2f} (± {error:.2g}) and what runs beside"
    report.target(said, share + beside, AIM, "%", binding=False)
    times = {number: statistics.median(lap) for turn in turns for number, lap in turn.items()}
    for what, of_block in (
        ("processor time", {number: record["spent"][number] for number in whole}),
        ("time", times),
    ):
        _tell_cost(report, what, _calls(called, of_block), beside)
    report.details["steps of 5 ms"] = {"beside": beside, "peaks": peaks}


def _timed(told: list[float], called: list[bool], laps: dict[int, list[float]]) -> tuple[float, float, float]:
    """What the clock says of the calls themselves, less what it takes to read it: seconds a step, per cent of a step,
    and the standard error of that, over blocks."""
    means = {number: statistics.fmean(told[number * BLOCK : (number + 1) * BLOCK]) for number in laps}
    clock = statistics.fmean(mean for number, mean in means.items() if not called[number])
    calls = [mean - clock for number, mean in means.items() if called[number]]
    step = statistics.median(lap for number, lap in _steps(laps) if not called[number])
    to_per_cent = 100 / step
    error = statistics.stdev(calls) / math.sqrt(len(calls))
    return statistics.fmean(calls), to_per_cent * statistics.fmean(calls), to_per_cent * error


def _steps(laps: dict[int, list[float]]) -> Iterator[tuple[int, float]]:
    return ((number, lap) for number, block in laps.items() for lap in block)


def _tell_cost(report: Report, what: str, calls: tuple[float, float], beside: float) -> None:
    """Decided only where the blocks do not differ by much more than what is sought."""
    more, error = calls
    said = f"more {what} a step: calls {more:.2f} (± {error:.2g}) and what runs beside"
    report.target(said, more + beside, AT_MOST, "%", binding=error <= DECIDED)
    if error > DECIDED:
        report.skip(f"a verdict on the {what} of a step: the blocks differ too much; measure on a quiet machine")


def _tell_times(report: Report, laps: dict[str, list[list[list[float]]]], peaks: dict[str, list[float]]) -> None:
    highest = {PLAIN: max(peaks[PLAIN]), QUIET: None, CALLED: max(peaks[CALLED])}
    beside = f"beside the ranks: {len(peaks['beside'])} processes, {sum(peaks['beside']):.0f} MiB"
    samples = {
        f"{name}, 1000 steps": [Sample(1000 * _typical(turn), highest[name]) for turn in laps[name] if turn]
        for name in NAMES
    }
    report.table("steps of 5 ms", samples, {f"{CALLED}, 1000 steps": beside})


def _typical(blocks: list[list[float]]) -> float:
    return statistics.median(lap for block in blocks for lap in block)


def _beside(launched: Pair) -> float:
    """The processor time of what runs beside the training, in per cent of the ranks' time: the median turn's."""
    spans = [end - begin for begin, end in launched.turns]
    return 100 * statistics.median(one / (RANKS * span) for one, span in zip(launched.beside, spans, strict=True))


def _calls(called: list[bool], of_block: dict[int, float]) -> tuple[float, float]:
    """How much more, in per cent, a block with the calls has than its neighbour without: the median, and its standard
    error."""
    more = []
    for number in range(0, len(called), 2):
        if number in of_block and number + 1 in of_block:
            without, with_calls = sorted((number, number + 1), key=lambda each: called[each])
            more.append(100 * (of_block[with_calls] / of_block[without] - 1))
    if len(more) < 2:
        raise BenchError("too few steps were made to compare any")
    middle = statistics.median(more)
    deviation = 1.4826 * statistics.median(abs(each - middle) for each in more)
    return middle, 1.2533 * deviation / math.sqrt(len(more))
