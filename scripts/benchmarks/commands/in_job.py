"""In the job: from the start of a rank's process to the first line of the user's command."""

from __future__ import annotations

import shlex
import statistics
from pathlib import Path

from benchmarks.measure import Sample, Samples, more
from benchmarks.report import Report
from benchmarks.workbench import Workbench

RANKS = 2
MORE_THAN_PYTHON = 100.0
BARE, OURS = "python, exec", "slurmopt.job"
EXEC = "import os, sys; os.execvp(sys.argv[1], sys.argv[1:])"

# Started by srun; bash's own start is not counted.
STAMP = """#!/bin/bash
echo "$BENCH_STEP ${SLURM_PROCID:-$RANK} start $EPOCHREALTIME" >>STAMPS
exec "$@"
"""
# The user's command.
COMMAND = """#!/bin/bash
now=$EPOCHREALTIME
while read -r key value _; do [ "$key" != VmHWM: ] || peak=$value; done <"/proc/$PPID/status"
echo "$BENCH_STEP ${SLURM_PROCID:-$RANK} end $now $peak" >>STAMPS
"""
WITH_SLURM = 'srun --ntasks={ranks} --cpus-per-task=1 "$@"'
WITHOUT = 'for rank in $(seq 0 {last}); do RANK=$rank LOCAL_RANK=$rank WORLD_SIZE={ranks} "$@" & done; wait'
JOB = """#!/bin/bash
#SBATCH --ntasks={ranks} --nodes=1 --time=5 --output={folder}/job.log
step() {{ export BENCH_STEP=$1; shift; set -- {folder}/stamp "$@"; {start}; }}
ours=({python} -m slurmopt.job {folder}/run --heartbeat 10 -- {folder}/command)
for number in $(seq 0 {runs}); do
  step bare-$number {python} -c {exec} {folder}/command || exit
  SLURMOPT_ATTEMPT=$number step ours-$number "${{ours[@]}}" || exit
done
"""


def bench(bench: Workbench, report: Report, runs: int) -> None:
    folder = bench.place("in-job")
    runs *= 2  # under srun the single times scatter more than elsewhere
    job = _write(bench, folder, runs)
    bench.run(["sbatch", "--wait", str(job)] if bench.slurm else ["bash", str(job)])
    stamps = (folder / "stamps").read_text()
    # Round 0 fills the caches.
    samples = {name: [_slowest(stamps, f"{step}-{number}") for number in range(1, runs + 1)] for name, step in STEPS}
    where = "under srun" if bench.slurm else "as plain processes"
    _tell(report, samples, where)
    if not bench.slurm:
        report.skip("the job side under srun: no cluster; it was measured as plain processes")


STEPS = ((BARE, "bare"), (OURS, "ours"))


def _tell(report: Report, samples: Samples, where: str) -> None:
    report.table("in the job", samples, {OURS: f"{RANKS} ranks {where}, the slower of each step"})
    extra = more(samples[OURS], samples[BARE]) * 1000
    report.target(f"to the user's command, {where}, more than bare Python", extra, MORE_THAN_PYTHON, "ms")


def _write(bench: Workbench, folder: Path, runs: int) -> Path:
    for name, text in (("stamp", STAMP), ("command", COMMAND)):
        (folder / name).write_text(text.replace("STAMPS", str(folder / "stamps")))
        (folder / name).chmod(0o755)
    (folder / "run").mkdir()
    start = (WITH_SLURM if bench.slurm else WITHOUT).format(ranks=RANKS, last=RANKS - 1)
    text = JOB.format(
        ranks=RANKS, folder=folder, start=start, runs=runs, python=shlex.quote(bench.python), exec=shlex.quote(EXEC)
    )
    (folder / "job").write_text(text)
    return folder / "job"


def _slowest(stamps: str, step: str) -> Sample:
    """Of a step's ranks, which start and end together, the one that took longest."""
    rows = [line.split() for line in stamps.splitlines() if line.startswith(f"{step} ")]
    started = {row[1]: float(row[3]) for row in rows if row[2] == "start"}
    ended = {row[1]: float(row[3]) - started[row[1]] for row in rows if row[2] == "end"}
    peaks = [float(row[4]) / 1024 for row in rows if row[2] == "end"]
    # The bare one has become the command by then: its parent is not it.
    peak = statistics.median(peaks) if step.startswith("ours") else None
    return Sample(max(ended.values()), peak)
