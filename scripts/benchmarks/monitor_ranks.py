"""What the calls of a training cost that measure it: `progress`, and `watch` around its loader, in a rank and in a
command's Python.

    monitor_ranks.py rank|child FOLDER      prints the seconds of one call each, as JSON; also for a slurmopt that has
                                            no `watch` (PYTHONPATH), to compare with
"""

from __future__ import annotations

import itertools
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

STEP = 0.005
"""Seconds of the step that a share is told of."""
AT_MOST = 0.1
"""Per cent of such a step."""
CALLS, ROUNDS = 20_000, 7


def loop_seconds(make: Callable[[], Iterator[Any]]) -> float:
    """Seconds for each item of a loop."""
    began = time.perf_counter()
    for _ in make():
        pass
    return (time.perf_counter() - began) / CALLS


def call_seconds(call: Callable[[int], object]) -> float:
    began = time.perf_counter()
    for step in range(CALLS):
        call(step)
    return (time.perf_counter() - began) / CALLS


def measure() -> dict[str, float]:
    """Name → seconds for each call, the median of some rounds in turns."""
    import slurmopt

    progress, watch = slurmopt.progress, getattr(slurmopt, "watch", None)
    kinds: dict[str, Callable[[], float]] = {
        "progress(step, total)": lambda: call_seconds(lambda step: progress(step, CALLS)),
        "progress(step, total, loss=…)": lambda: call_seconds(lambda step: progress(step, CALLS, loss=0.5)),
    }
    if watch is not None:
        kinds["progress(step, total, loss=…, tokens=…, samples=…)"] = lambda: call_seconds(
            lambda step: progress(step, CALLS, loss=0.5, tokens=4096, samples=2)
        )
        kinds["an item of a loop"] = lambda: loop_seconds(lambda: iter(itertools.repeat(0, CALLS)))
        kinds["an item of a watched loop"] = lambda: loop_seconds(lambda: iter(watch(itertools.repeat(0, CALLS))))
    found: dict[str, list[float]] = {name: [] for name in kinds}
    for _ in range(ROUNDS):
        for name, kind in kinds.items():
            found[name].append(kind())
    return {name: statistics.median(each) for name, each in found.items()}


def main(how: str, folder: Path) -> None:
    from slurmopt.job.facts.rank_facts import facts_from
    from slurmopt.job.heartbeat.heartbeat_writer import HeartbeatWriter
    from slurmopt.job.worker import current_run

    if how == "child":
        rank = HeartbeatWriter(folder / "rank-0.json", facts_from({}), 10.0, lambda: None)
        rank.start()
        words = [sys.executable, __file__, "measure", str(folder)]
        print(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
        return
    if how == "rank":
        live = HeartbeatWriter(folder / "rank-0.json", facts_from({}), 10.0, lambda: None)
        live.start()
        current_run.become(live)
    print(json.dumps(measure()))


def bench(bench: Any, report: Any, runs: int) -> None:
    """Prints the cost of each call, and which share of a step of 5 ms a step with both has."""
    folder = bench.place("monitor-ranks")
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    for how, where in (("rank", "in a function"), ("child", "in a command's Python")):
        words = [sys.executable, __file__, how, str(folder)]
        answer = subprocess.run(words, env=environment, capture_output=True, text=True, check=True).stdout
        found: dict[str, float] = json.loads(answer)
        print(f"\nthe calls of a training, {where}")
        for name, seconds in found.items():
            print(f"  {1e6 * seconds:6.2f} µs  {name}")
        watched = found["an item of a watched loop"] - found["an item of a loop"]
        step = watched + found["progress(step, total, loss=…, tokens=…, samples=…)"]
        report.target(f"progress and watch {where}, of a step of 5 ms", 100 * step / STEP, AT_MOST, "%", binding=False)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
