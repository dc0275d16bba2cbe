"""What slurmopt takes from a training on 2 ranks with steps of 5 ms: its calls, and all that runs beside them.

Two pairs of ranks make the same steps: one launched by slurmopt (on this machine, without Slurm), with heartbeats, the threads for signals and the
agreement on a stop, its checkpoint writers and the lookout; and one of plain torch. They run in turns: one pair works
for some seconds while all processes of the other are stopped by SIGSTOP. Within slurmopt's pair blocks of steps with
its calls (`progress`, and a `save` in which nothing is due) and without take turns too.
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
from benchmarks.restart_processes import below, cpu_seconds, peak_mib, wait_until
from benchmarks.workbench import Workbench
from slurmopt.folder import events, heartbeat
from slurmopt.folder.layout import RunFolder

TRAINING = Path(__file__).with_name("restart_training.py")
RANKS, BLOCK = 2, 20
WINDOW, SETTLE = 3.0, 0.3
"""Seconds that a pair works at a time, and of these what does not count."""
AT_MOST = 1.0
DECIDED = 0.5
"""Per cent: with a larger standard error nothing is known."""
NAMES = PLAIN, QUIET, CALLED = "plain torch", "slurmopt, no calls", "slurmopt"
Turns = list[tuple[float, float]]


@dataclass
class Pair:
    """Two ranks, and all processes that came with them."""

    folder: Path
    turns: Turns = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    """Seconds of all its processes, in each turn."""

    def pids(self) -> list[int]:
        raise NotImplementedError

    def work(self, seconds: float) -> None:
        """Lets it run for so long, stopped before and after."""
        pids = self.pids()
        before, began = cpu_seconds(pids), time.perf_counter()
        self.send(signal.SIGCONT, pids)
        time.sleep(seconds)
        self.turns.append((began, time.perf_counter()))
        self.send(signal.SIGSTOP, pids)
        self.cpu.append(cpu_seconds(pids) - before)

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

    def steps(self) -> list[dict[bool, list[float]]]:
        """How long the steps of each turn took, those in blocks with calls apart from the others."""
        found = json.loads((self.folder / "steps.json").read_text())
        ends: list[float] = found["ends"]
        turns = []
        for began, ended in self.turns:
            first, last = bisect(ends, began + SETTLE), bisect(ends, ended)
            turn: dict[bool, list[float]] = {True: [], False: []}
            for number in range(first + 1, last):
                turn[found["calls"][number // BLOCK]].append(ends[number] - ends[number - 1])
            turns.append(turn)
        return turns

    def microseconds_of_calls(self) -> float:
        """Those of one step: the median."""
        told: list[float] = json.loads((self.folder / "steps.json").read_text())["told"]
        return statistics.median(told) * 1e6


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
        shutil.copy(TRAINING, self.folder)
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

    def rank_pids(self) -> list[int]:
        assert self.run is not None
        beats = [heartbeat.read(self.run.heartbeat(0, rank)) for rank in range(RANKS)]
        return [beat.pid for beat in beats if beat is not None]


def launch(bench: Workbench, project: Path, function: str, *words: str) -> dict[str, Any]:
    """A run of the training, from `project`, in which it lies; what launch.json says."""
    target = f"task._target_=restart_training.{function}"
    fixed = ("launch.json=true", "launch.wait=false", "checkpoint.shared.every=1000000000", "health.shared=null")
    argv = [bench.python, "-m", "slurmopt", "launch", target, *fixed, *words]
    answer: dict[str, Any] = json.loads(bench.run(argv, project))
    return answer


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def bench(bench: Workbench, report: Report, runs: int) -> None:
    folder = bench.place("restart-steps")
    repeats = int(bench.run([bench.python, str(TRAINING), "calibrate"]))
    plain, launched = PlainPair(folder / "plain"), LaunchedPair(folder / "launched")
    with _at_work(bench, plain, launched, {"repeats": repeats}):
        for number in range(2 * runs):
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
    without = [turn[True] + turn[False] for turn in plain.steps()]
    ours = launched.steps()
    laps = {PLAIN: without, QUIET: [turn[False] for turn in ours], CALLED: [turn[True] for turn in ours]}
    means = {name: [statistics.fmean(turn) for turn in turns] for name, turns in laps.items()}
    highest = {PLAIN: max(peaks[PLAIN]), QUIET: None, CALLED: max(peaks[CALLED])}
    beside = f"beside the ranks: {len(peaks['beside'])} processes, {sum(peaks['beside']):.0f} MiB"
    report.table(
        "steps of 5 ms",
        {f"{name}, 1000 steps": [Sample(1000 * mean, highest[name]) for mean in means[name]] for name in NAMES},
        {f"{CALLED}, 1000 steps": beside},
    )
    per_step = [
        [cpu / sum(map(len, turn.values())) for cpu, turn in zip(pair.cpu, pair.steps(), strict=True)]
        for pair in (plain, launched)
    ]
    microseconds = launched.microseconds_of_calls()
    share = microseconds / statistics.median(means[PLAIN]) / 1e4
    print(f"  the calls themselves take {microseconds:.1f} µs of a step: {share:.2f} %", flush=True)
    _target(report, "the calls, more of a step", means[CALLED], means[QUIET])
    _target(report, "everything, more of a step", means[CALLED], means[PLAIN])
    _target(report, "everything, more processor time", per_step[1], per_step[0], shown_only=True)
    report.details["steps of 5 ms"] = {"calls_microseconds": microseconds, "cpu_per_step": per_step, "peaks": peaks}


def _target(report: Report, what: str, ours: list[float], base: list[float], shown_only: bool = False) -> None:
    """The median, over the turns, of what is more in per cent. Decided only where the machine was quiet enough."""
    more = [100 * (one / other - 1) for one, other in zip(ours, base, strict=True)]
    error = 1.2533 * statistics.stdev(more) / math.sqrt(len(more)) if len(more) > 1 else math.inf
    said = f"{what} (standard error {error:.2g} %)"
    report.target(said, statistics.median(more), AT_MOST, "%", binding=not shown_only and error <= DECIDED)
    if not shown_only and error > DECIDED:
        report.skip(f"{what}: not decided, for the turns differ too much from each other; measure on a quiet machine")
