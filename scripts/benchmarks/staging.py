"""Staging beside `cp -r` (and dd, for one large file): seconds and peak memory of what copies, turn by turn.

The source is in memory as far as it fits, the copies go to the folder for temporary files (TMPDIR). Nobody waits for
the disk at the end: cp and dd do not either.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks.measure import BenchError, Case, Sample, Samples, once, ratio
from benchmarks.report import Report
from benchmarks.workbench import ROOT, Workbench

LARGE_BYTES = 1 << 30
SMALL_FILES, SMALL_BYTES = 10_000, 4096
MOST = 1.1
"""How many times as long as cp a large file may take."""
OURS, CHECKED = "stage", "stage, checksum"

CODE = """
import json, resource, sys, time
sys.path.insert(0, sys.argv[1])
from slurmopt.storage.staging.source import open_source
from slurmopt.storage.staging.stage import stage
from slurmopt.storage.staging import copying, folder_source, hashing
start = time.monotonic()
staged = stage(open_source(sys.argv[2]), sys.argv[3], sys.argv[4], False, lambda text: None)
seconds = time.monotonic() - start
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps({"seconds": seconds, "peak": peak / 1024, "files": staged.copied_files}))
"""


def bench(bench: Workbench, report: Report, runs: int) -> None:
    large, small = _sources(bench.place("staging-source"))
    _side_by_side(bench, report, runs, "one file of 1 GiB", large, with_dd=True)
    _side_by_side(bench, report, runs, "10,000 files of 4 KiB", small, with_dd=False)
    for name in ("staging-source", "staging"):
        shutil.rmtree(bench.folder / name, ignore_errors=True)


def _sources(folder: Path) -> tuple[Path, Path]:
    large, small = folder / "large", folder / "small"
    with large.open("wb") as file:
        for _ in range(LARGE_BYTES >> 24):
            file.write(os.urandom(1 << 24))
    small.mkdir()
    for number in range(SMALL_FILES):
        inner = small / f"{number // 1000}"
        inner.mkdir(exist_ok=True)
        (inner / str(number)).write_bytes(os.urandom(SMALL_BYTES))
    return large, small


def _side_by_side(bench: Workbench, report: Report, runs: int, what: str, source: Path, with_dd: bool) -> None:
    programs: dict[str, Callable[[Path], Sample]] = {
        OURS: lambda into: _ours(bench, source, into, "size"),
        CHECKED: lambda into: _ours(bench, source, into, "checksum"),
        "cp -r": lambda into: _other(bench, ["cp", "-r", str(source), str(into / "copy")]),
    }
    if with_dd:
        programs["dd"] = lambda into: _other(bench, ["dd", f"if={source}", f"of={into / 'copy'}", "bs=4M"])
    found: Samples = {name: [] for name in programs}
    names = list(programs)
    for number in range(runs + 1):
        print(f"staging, {what}: round {number} of {runs}", file=sys.stderr, flush=True)
        for name in names[number % len(names) :] + names[: number % len(names)]:
            into = bench.place("staging")
            os.sync()  # what the last one left for the disk is not counted for this one
            sample = programs[name](into)
            if number:  # the first round fills the caches
                found[name].append(sample)
    report.table(f"staging: {what}", found)
    for other in names[2:]:
        binding = with_dd and other == "cp -r"
        said = f"staging {what}: time of {other}'s, median of the rounds"
        report.target(said, ratio(found[OURS], found[other]), MOST, "x", binding=binding)
    peak = statistics.median(sample.peak_mib or 0.0 for sample in found[OURS])
    print(f"  a process that stages has a peak of {peak:.0f} MiB, Python and its modules included")


def _ours(bench: Workbench, source: Path, into: Path, verify: str) -> Sample:
    words = [bench.python, "-c", CODE, str(ROOT), str(source), str(into), verify]
    said = json.loads(bench.run(words))
    if said["files"] not in (1, SMALL_FILES):
        raise BenchError(f"{said['files']} files were staged")
    return Sample(float(said["seconds"]), float(said["peak"]))


def _other(bench: Workbench, argv: list[str]) -> Sample:
    return once(Case(argv[0], argv, bench.folder, bench.env))
