"""How long the workers of a search wait: 64 trials of uneven length on 8 workers, which sleep instead of computing.

Beside it the Optuna sweeper of Hydra over hydra-submitit, which submits 8 trials at a time and waits for all of them.
"""

from __future__ import annotations

import json
import random
import subprocess
from pathlib import Path

from benchmarks.measure import Sample, Samples
from benchmarks.report import Report
from benchmarks.sweeps.project import SUBMITIT, await_end, launched, patient, project, wait_for
from benchmarks.workbench import Workbench
from slurmopt.run_folder.sweep_layout import SweepFolder

TRIALS, WORKERS = 64, 8
MEAN, SPREAD = 3.0, 0.6
"""Seconds of a trial, and the sigma of their logarithm: half are shorter than 2.5 s, one in ten is longer than 5.4."""
AT_MOST = 0.05
OURS, THEIRS = "slurmopt, sweep.search=tpe", "hydra-optuna-sweeper, hydra-submitit"
SWEEPER = "hydra_plugins.hydra_optuna_sweeper.optuna_sweeper, hydra_plugins.hydra_submitit_launcher.submitit_launcher"

Trial = tuple[str, float, float]
"""Its worker, when it began, when it ended."""


def bench(bench: Workbench, report: Report, sweeper: str | None) -> None:
    cwd = project(bench, "sweeps-search")
    (cwd / "seconds.json").write_text(json.dumps(lengths()))
    found = {OURS: of_slurmopt(bench, cwd)}
    python = sweeper or bench.python
    if subprocess.run([python, "-c", f"import {SWEEPER}"], capture_output=True, env=dict(bench.env)).returncode:
        report.skip("hydra-optuna-sweeper: in no Python that was named; see --sweeper")
    else:
        found[THEIRS] = _theirs(bench, cwd, python)
    samples: Samples = {name: [Sample(_span(trials))] for name, trials in found.items()}
    notes = {name: f"{idle(trials):.1%} of the workers' time idle" for name, trials in found.items()}
    report.table(
        f"{TRIALS} trials on {WORKERS} workers, from the first one's begin to the last one's end", samples, notes
    )
    report.details["trials"] = found
    report.target(f"idle share of {WORKERS} workers, {TRIALS} trials", idle(found[OURS]) * 100, AT_MOST * 100, "%")


def lengths() -> list[float]:
    """Seconds of each trial, the same each time, and MEAN on average."""
    dice = random.Random(1)
    drawn = [dice.lognormvariate(0, SPREAD) for _ in range(TRIALS)]
    return [round(one * MEAN * TRIALS / sum(drawn), 3) for one in drawn]


def idle(trials: list[Trial]) -> float:
    """The part of the workers' time in which none of their trials runs.

    A worker's time is from the begin of its first trial to the end of its last one: then nothing is left to be asked
    for, and it gives its place back.
    """
    begins: dict[str, float] = {}
    ends: dict[str, float] = {}
    for worker, begin, end in trials:
        begins[worker] = min(begin, begins.get(worker, begin))
        ends[worker] = max(end, ends.get(worker, end))
    held = sum(ends[worker] - begin for worker, begin in begins.items())
    return 1 - sum(end - begin for _, begin, end in trials) / held


def _span(trials: list[Trial]) -> float:
    return max(end for _, _, end in trials) - min(begin for _, begin, _ in trials)


def of_slurmopt(bench: Workbench, cwd: Path) -> list[Trial]:
    """The trials of `sweep.search`; the worker of each is its array task."""
    sweep = launched(
        bench, cwd, "task._target_=hunt.main", "x=interval(0,10)", "sweep.search=tpe", f"sweep.trials={TRIALS}",
        f"sweep.workers={WORKERS}", "sweep.metric=loss", "sweep.seed=1",
    )  # fmt: skip
    return _trials(bench, cwd, sweep)


def _trials(bench: Workbench, cwd: Path, sweep: SweepFolder | None = None) -> list[Trial]:
    await_end(bench)
    told = cwd / "trials"
    where = f"{TRIALS} trials of {sweep.path if sweep else cwd}"
    wait_for(lambda: told.exists() and len(told.read_text().splitlines()) >= TRIALS, where)
    lines = [line.split() for line in told.read_text().splitlines()]
    told.unlink()
    return [(worker, float(begin), float(end)) for worker, begin, end in lines]


def _theirs(bench: Workbench, cwd: Path, python: str) -> list[Trial]:
    """The worker of a trial is its place in the batch."""
    words = [
        "hydra/sweeper=optuna", f"hydra.sweeper.n_trials={TRIALS}", f"hydra.sweeper.n_jobs={WORKERS}",
        "hydra.sweeper.sampler.seed=1", "hydra.sweeper.direction=minimize", f"+workers={WORKERS}", "x=interval(0,10)",
    ]  # fmt: skip
    patient([python, "hunt_with_hydra.py", *SUBMITIT, *words], cwd, bench.env)
    return _trials(bench, cwd)
