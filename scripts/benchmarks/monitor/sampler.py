"""The sampler: what it costs beside eight ranks, and how long it takes to read the series of a large job."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.measure import Sample, Samples
from benchmarks.report import Report
from benchmarks.workbench import Workbench

RANKS, WORKERS = 8, 8
SECONDS = 60.0
"""Of the sampler's life, after the first ten, in which it starts."""
START_SECONDS = 10.0
NODES, DAYS, GPUS, COLUMNS = 128, 4, 8, 20
MOST_PERCENT, MOST_MIB, MOST_SECONDS = 0.5, 40.0, 1.2
TICK = os.sysconf("SC_CLK_TCK")
IDLE = """
import subprocess, sys, time
[subprocess.Popen(["sleep", "1000"]) for _ in range(int(sys.argv[1]))]
time.sleep(1000)
"""
READ = """
import sys, time, resource
from pathlib import Path
from slurmopt.run_folder.series import series
from slurmopt.run_folder.layout import RunFolder
run, since = RunFolder(Path(sys.argv[1])), time.process_time()
for node in run.nodes_with_series(0):
    series.read(run.series(0, node), run.recent_series(0, node))
print(time.process_time() - since, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


def bench(bench: Workbench, report: Report, runs: int) -> None:
    folder = bench.place("monitor")
    report.table("the sampler", {"one minute": [sampler(folder / "run")]}, {"one minute": _note()})
    percent, peak = _of(report, "the sampler", "one minute")
    report.target(
        "CPU of the sampler, in percent of one core", percent * 100 / SECONDS, MOST_PERCENT, "%", binding=False
    )
    report.target("memory of the sampler", peak, MOST_MIB, "MiB", binding=False)
    lay_out(folder / "large")
    name = f"{NODES} nodes, {GPUS} GPUs, {DAYS} days"
    samples: Samples = {name: [read(folder / "large") for _ in range(runs)]}
    report.table("reading series", samples, {name: "seconds of CPU"})
    seconds, _ = _of(report, "reading series", name)
    report.target(f"series of {name}", seconds, MOST_SECONDS, "s", binding=False)


def _note() -> str:
    return f"seconds of CPU in {SECONDS:g} s, beside {RANKS} ranks with {WORKERS} workers each"


def _of(report: Report, table: str, name: str) -> tuple[float, float]:
    """The smallest seconds and the largest memory of a table's line."""
    found = report.raw[table][name]
    return min(one["seconds"] or 0.0 for one in found), max(one["peak_mib"] or 0.0 for one in found)


@contextmanager
def ranks() -> Iterator[list[int]]:
    """Processes that stand for ranks and their workers, and their heartbeats."""
    processes = [
        subprocess.Popen([sys.executable, "-c", IDLE, str(WORKERS)], start_new_session=True) for _ in range(RANKS)
    ]
    try:
        yield [process.pid for process in processes]
    finally:
        for process in processes:
            os.killpg(process.pid, 9)
            process.wait()


def beat(run: Path, pids: list[int], step: int) -> None:
    """Writes the heartbeats of all ranks."""
    for rank, pid in enumerate(pids):
        path = run / "heartbeat" / "attempt-0" / f"rank-{rank}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        said = {
            "rank": rank,
            "world_size": RANKS,
            "node": "n",
            "pid": pid,
            "started": 0.0,
            "time": time.time(),
            "step": step,
        }
        said |= {
            "spent": {"running": step * 0.8, "input": step * 0.2},
            "counted": {"steps": step, "tokens": 100.0 * step},
        }
        temporary = path.with_suffix(".new")
        temporary.write_text(json.dumps(said))
        temporary.replace(path)


def sampler(run: Path) -> Sample:
    """CPU seconds of a minute, and peak memory."""
    from slurmopt.job.monitor.here import Here
    from slurmopt.run_folder.process import started_at

    with ranks() as pids:
        here = Here(
            folder=str(run), attempt=0, node="n", pid=pids[0], pid_started=started_at(pids[0]),
            ranks=list(range(RANKS)), every=5.0, sources=("gpu", "node", "network", "ranks"),
        )  # fmt: skip
        words = [sys.executable, "-m", "slurmopt.job.monitor", here.to_json_arg()]
        process = subprocess.Popen(words, stdin=subprocess.PIPE)
        assert process.stdin is not None
        spent, step = 0.0, 0
        for wait in (START_SECONDS, SECONDS):
            deadline, before = time.monotonic() + wait, _cpu(process.pid)
            while time.monotonic() < deadline:
                step += 1
                beat(run, pids, step)
                time.sleep(1)
            spent = _cpu(process.pid) - before
        peak = _peak(process.pid)
        process.stdin.write(b"q")
        process.stdin.close()
        process.wait()
    return Sample(spent, peak)


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def _peak(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def lay_out(run: Path) -> None:
    """The series of a large job: one node is written by the sampler's own writer, the others are copies."""
    from slurmopt.job.monitor.series_writer import SeriesWriter
    from slurmopt.run_folder.layout import RunFolder

    folder = RunFolder(run)
    writer = SeriesWriter(folder, 0, "node0")
    names = [f"gpu{gpu}.column_{number}" for gpu in range(GPUS) for number in range(COLUMNS)]
    for at in range(DAYS * 8640):
        writer.row(
            1.8e9 + 10 * at, 10, {name: (at * 7919 + n * 104729) % 99991 / 3 for n, name in enumerate(names)}, {}, {}
        )
    for node in range(1, NODES):
        for path in (folder.series, folder.recent_series):
            path(0, f"node{node}").write_bytes(path(0, "node0").read_bytes())


def read(run: Path) -> Sample:
    words = [sys.executable, "-c", READ, str(run)]
    seconds, mib = map(float, subprocess.run(words, capture_output=True, text=True, check=True).stdout.split())
    return Sample(seconds, mib)
