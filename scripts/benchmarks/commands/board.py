"""slurmopt top over many runs: its first screen beside `slurmopt list`, and what it costs while nobody touches it."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread

from benchmarks.commands.terminal import Terminal
from benchmarks.measure import Sample, Samples, median
from benchmarks.report import Report
from benchmarks.runs import ALIVE_EVERY, make_runs
from benchmarks.workbench import ROOT, Workbench

sys.path.insert(0, str(ROOT))

from slurmopt.run_folder.heartbeat import Heartbeat
from slurmopt.run_folder.layout import RunFolder

MANY = 1000
FIRST_LIMIT, IDLE_LIMIT = 0.3, 1.0
IDLE_SECONDS, SETTLED = 60.0, 8.0
_ROW = b"experiment-19"
_LISTENS = b"\x1b[?2004h"
"""Textual sends it when it takes keys."""
_ALL = f"{MANY - MANY // ALIVE_EVERY}".encode()
"""How many have ended, which the first line says once all were read."""
_BEAT = 10.0


def bench(bench: Workbench, report: Report, runs: int) -> None:
    cwd = bench.place("board")
    make_runs(cwd / "runs", MANY)
    with _beating(cwd / "runs"):
        _first_screen(bench, report, cwd, runs)
        _idle(bench, report, cwd)


def _first_screen(bench: Workbench, report: Report, cwd: Path, runs: int) -> None:
    slurmopt = [bench.python, "-m", "slurmopt"]
    imports = "import textual.app; print('experiment-19')"
    cases = {
        "python -c pass": ([bench.python, "-c", "print('experiment-19')"], (_ROW,)),
        "the same with `import textual.app`": ([bench.python, "-c", imports], (_ROW,)),
        f"slurmopt list, {MANY} runs, its first row": ([*slurmopt, "list"], (_ROW,)),
        f"slurmopt top, {MANY} runs, its first screen": ([*slurmopt, "top"], (_ROW,)),
        "the same, until it takes keys": ([*slurmopt, "top"], (_ROW, _LISTENS)),
        "the same, until all runs were read": ([*slurmopt, "top"], (_ROW, _ALL)),
    }
    samples: Samples = {name: [] for name in cases}
    for at in range(runs + 1):
        for name, (argv, wanted) in cases.items():
            seconds = _until(bench, argv, cwd, wanted)
            if at:  # the first one fills the caches
                samples[name].append(Sample(seconds))
    report.table("the board", samples)
    first = f"slurmopt top, {MANY} runs, its first screen"
    report.target(first, median(samples[first]), FIRST_LIMIT, "s")


def _until(bench: Workbench, argv: list[str], cwd: Path, wanted: tuple[bytes, ...]) -> float:
    terminal = Terminal(argv, cwd, bench.env)
    try:
        return terminal.until(*wanted)
    finally:
        terminal.close()


def _idle(bench: Workbench, report: Report, cwd: Path) -> None:
    terminal = Terminal([bench.python, "-m", "slurmopt", "top"], cwd, bench.env)
    try:
        terminal.until(_ALL)
        terminal.rest(SETTLED)
        before, began = terminal.cpu(), time.monotonic()
        drawn = terminal.rest(IDLE_SECONDS)
        percent = 100 * (terminal.cpu() - before) / (time.monotonic() - began)
    finally:
        terminal.close()
    alive = MANY // ALIVE_EVERY
    what = f"slurmopt top, {MANY} runs of which {alive} run, {IDLE_SECONDS:.0f} s untouched, {drawn:,} bytes drawn"
    report.target(what, percent, IDLE_LIMIT, "% of a core")


@contextlib.contextmanager
def _beating(base: Path) -> Iterator[None]:
    """The ranks of the runs under way write heartbeats, each with a new step."""
    over = Event()
    alive = [RunFolder(path) for path in sorted(base.glob("*/*")) if int(path.name.split("-")[1]) % ALIVE_EVERY == 0]
    started = time.time()

    def beat() -> None:
        while not over.is_set():
            for run in alive:
                step = int(time.time() - started) * 10 + 10
                Heartbeat(
                    0, 2, "node1", 1, _BEAT, started, phase="running", step=step, step_time=time.time(),
                    total_steps=100_000, first_step=0, first_step_time=started, metrics={"loss": 100 / step},
                ).write(run.heartbeat(0, 0))  # fmt: skip
                if over.wait(_BEAT / len(alive)):
                    return

    thread = Thread(target=beat)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
