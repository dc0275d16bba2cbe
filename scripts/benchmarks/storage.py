"""`slurmopt storage bench` beside dd and fio, with the same block size, bytes, O_DIRECT and fsync, turn by turn."""

from __future__ import annotations

import json
import re
import shutil
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.measure import BenchError
from benchmarks.report import Report
from benchmarks.workbench import ROOT, Workbench

MIB = 1 << 20
BYTES = 1024 * MIB
BLOCKS = BYTES // (4 * MIB)
MOST = 1.1
"""How many times faster either may be than the other. dd also reads /dev/zero meanwhile, as fio does not."""
OURS = "slurmopt"
Rates = dict[str, float]
"""write and read, in MiB/s."""

CODE = """
import json, os, sys
sys.path.insert(0, sys.argv[1])
from slurmopt.storage.rates.data_file import DataFile
folder = os.open(sys.argv[2], os.O_RDONLY)
with DataFile(folder) as file:
    write, read = file.write(int(sys.argv[3]), 600, lambda _: None), file.read(600, lambda _: None)
    print(json.dumps({"write": write.per_second, "read": read.per_second, "direct": file.is_direct}))
"""


def bench(bench: Workbench, report: Report, runs: int) -> None:
    programs: dict[str, Callable[[Workbench, Path], Rates]] = {OURS: _ours, "dd": _dd}
    if shutil.which("fio"):
        programs["fio"] = _fio
    else:
        report.skip("storage beside fio: it is not installed here")
    found: dict[str, list[Rates]] = defaultdict(list)
    folder = bench.place("storage")
    for number in range(runs + 1):
        print(f"round {number} of {runs}", file=sys.stderr, flush=True)
        # Each goes first in turn: what a round leaves in the device's cache meets all of them.
        names = list(programs)
        for name in names[number % len(names) :] + names[: number % len(names)]:
            rates = programs[name](bench, folder)
            if number:  # the first round finds out where the disk has room
                found[name].append(rates)
    _tell(report, found)
    shutil.rmtree(folder)


def _tell(report: Report, found: dict[str, list[Rates]]) -> None:
    print(f"\nstorage: {BYTES // MIB} MiB in blocks of 4 MiB, O_DIRECT, fsync at the end; MiB/s, median (min - max)")
    for name, rates in found.items():
        for what in ("write", "read"):
            values = [one[what] for one in rates]
            print(f"  {what:5}  {name:8}  {statistics.median(values):8,.0f} ({min(values):,.0f} - {max(values):,.0f})")
    report.details["storage"] = dict(found)
    for name in found:
        for what in ("write", "read") if name != OURS else ():
            pairs = zip(found[OURS], found[name], strict=True)
            ratio = statistics.median(own[what] / other[what] for own, other in pairs)
            said = f"storage bench: {what} rate, ours is {ratio:.3f} of {name}'s; apart"
            report.target(said, max(ratio, 1 / ratio), MOST, "x", binding=False)


def _ours(bench: Workbench, folder: Path) -> Rates:
    words: dict[str, Any] = json.loads(bench.run([bench.python, "-c", CODE, str(ROOT), str(folder), str(BYTES)]))
    if not words["direct"]:
        raise BenchError(f"{folder} has no direct I/O; set TMPDIR to a folder on a disk")
    return {what: float(words[what]) for what in ("write", "read")}


def _dd(bench: Workbench, folder: Path) -> Rates:
    file = folder / "dd"
    sizes = ["bs=4M", f"count={BLOCKS}"]
    write = _dd_rate(bench, ["dd", "if=/dev/zero", f"of={file}", *sizes, "oflag=direct", "conv=fsync"])
    read = _dd_rate(bench, ["dd", f"if={file}", "of=/dev/null", *sizes, "iflag=direct"])
    file.unlink()
    return {"write": write, "read": read}


def _dd_rate(bench: Workbench, words: list[str]) -> float:
    said = bench.run(["sh", "-c", 'exec "$@" 2>&1', "sh", *words], env={**bench.env, "LC_ALL": "C"})
    match = re.search(r"^(\d+) bytes.* copied, ([\d.e-]+) s", said, re.MULTILINE)
    if match is None or int(match[1]) != BYTES:
        raise BenchError(f"{' '.join(words)} said {said}")
    return BYTES / MIB / float(match[2])


def _fio(bench: Workbench, folder: Path) -> Rates:
    common = ["fio", "--name=x", "--bs=4M", f"--size={BYTES}", "--direct=1", "--ioengine=psync", "--end_fsync=1"]
    common += ["--scramble_buffers=0", "--fallocate=none"]  # it changes each block otherwise, which ours and dd do not
    rates = {}
    for what in ("write", "read"):
        words = [*common, f"--rw={what}", f"--filename={folder / 'fio'}", "--output-format=json"]
        (job,) = json.loads(bench.run(words))["jobs"]
        rates[what] = BYTES / MIB / (job["job_runtime"] / 1000)
    (folder / "fio").unlink()
    return rates
