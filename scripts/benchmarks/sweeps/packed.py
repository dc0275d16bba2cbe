"""A packed sweep of many trivial points, really run to its end: time, what it leaves, and memory of who carries it."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.measure import BenchError, Case, once
from benchmarks.report import Report
from benchmarks.sweeps.project import project
from benchmarks.sweeps.sweeps import cluster
from benchmarks.workbench import Workbench
from slurmopt.run_folder.sweep_layout import SweepFolder

PER_TASK = 500
CPUS, SIDE_BY_SIDE = 8, 2
"""Of an array task: eight of them take all CPUs of the cluster."""
FILES_A_TASK = 10
STATUS_SECONDS, STATUS_MIB = 5.0, 300.0
_PATIENCE = 4 * 3600.0
_EVERY = 2.0


def bench(bench: Workbench, report: Report, points: int) -> None:
    if not bench.slurm:
        report.skip("a packed sweep: no cluster")
        return
    with cluster(bench) as alone:
        _run(alone, report, points)


def _run(bench: Workbench, report: Report, points: int) -> None:
    cwd = project(bench, "sweeps-large")
    words = [f"seed=range({points})", f"sweep.per_task={PER_TASK}", f"sweep.side_by_side={SIDE_BY_SIDE}"]
    words += [f"resources.cpus_per_task={CPUS}", "resources.time=4h", "launch.id=large", "launch.name=large"]
    argv = [bench.python, "-m", "slurmopt.launch", "-m", "+experiment=short", *words]
    since = time.monotonic()
    launch = once(Case("the launch", argv, cwd, bench.env))
    sweep = SweepFolder(cwd / "runs" / "large" / "large")
    parent, slurmctld = _until_over(bench, sweep, since + _PATIENCE)
    seconds = time.monotonic() - since
    looks = {word: once(_look(bench, cwd, word, sweep)) for word in ("status", "results")}
    states = json.loads(bench.run([bench.python, "-m", "slurmopt", "status", str(sweep.path), "--json"], cwd))["data"]
    if states[0]["states"] != {"finished": points}:
        raise BenchError(f"{points} points: {states[0]['states']}")
    files, size = _left(sweep.path)
    tasks = max(sum(path.is_file() for path in task.rglob("*")) for task in sweep.tasks.iterdir())
    told = {
        "seconds, from the command to the last array task's end": round(seconds, 1),
        "ms a point": round(seconds / points * 1000, 2),
        "files": files,
        "folders of points": sum(1 for _ in sweep.points.iterdir()),
        "MB": round(size / 1e6, 1),
        "the launch, s": round(launch.seconds, 2),
        "the launch, MiB": round(launch.peak_mib or 0),
        "parent of a pack, MiB": round(parent),
        "slurmctld, MiB": round(slurmctld),
        **{f"{word}, s": round(sample.seconds, 2) for word, sample in looks.items()},
        **{f"{word}, MiB": round(sample.peak_mib or 0) for word, sample in looks.items()},
    }
    report.details["packed"] = told
    for what, number in told.items():
        print(f"bench: {points:,} packed points: {what}: {number}", file=sys.stderr, flush=True)
    report.target("files of an array task", tasks, FILES_A_TASK, "")
    for word, sample in looks.items():
        report.target(f"{word} of {points:,} packed points", sample.seconds, STATUS_SECONDS, "s")
        report.target(f"{word} of {points:,} packed points, peak", sample.peak_mib or 0.0, STATUS_MIB, "MiB")


def _until_over(bench: Workbench, sweep: SweepFolder, deadline: float) -> tuple[float, float]:
    """Waits for the last array task; the peaks of a parent and of slurmctld until then, in MiB."""
    controller = int((Path(bench.env["SLURM_CONF"]).parents[1] / "state" / "slurmctld.pid").read_text())
    parent = slurmctld = 0.0
    while bench.run(["squeue", "--noheader"]).strip():
        parent = max([parent, *_peaks(str(sweep.path))])
        slurmctld = max(slurmctld, _peak(controller))
        if time.monotonic() > deadline:
            raise BenchError(f"the sweep is not over within {_PATIENCE:g} s")
        time.sleep(_EVERY)
    return parent, slurmctld


def _look(bench: Workbench, cwd: Path, word: str, sweep: SweepFolder) -> Case:
    return Case(word, [bench.python, "-m", "slurmopt", word, str(sweep.path)], cwd, bench.env, patience=600.0)


def _peaks(word: str) -> Iterator[float]:
    """Of the processes whose command line has `word` and that run packs: their peaks in MiB."""
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{name}/cmdline").read_bytes().decode(errors="replace").split("\0")
                if word in words and "slurmopt.job.pack" in words:
                    yield _peak(int(name))


def _peak(pid: int) -> float:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    return 0.0


def _left(folder: Path) -> tuple[int, int]:
    """Files, and bytes on the disk."""
    found = [os.lstat(os.path.join(place, name)) for place, _, names in os.walk(folder) for name in names]
    return len(found), sum(facts.st_blocks * 512 for facts in found)
