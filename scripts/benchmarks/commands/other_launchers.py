"""One job, `/bin/true`, submitted to one cluster by several launchers.

All nodes are taken meanwhile, so that no started job disturbs the next measurement; each job is cancelled afterwards.
hydra-submitit-launcher returns when its job has ended: it is measured to the submission like all others, and, on the
then free cluster, to its return.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

from benchmarks.measure import BenchError, Case, Samples, once, side_by_side
from benchmarks.report import Report
from benchmarks.workbench import Calls, Workbench, refresher

SCRIPT = "#!/bin/bash\n#SBATCH --job-name=true --time=5 --cpus-per-task=1\n/bin/true\n"
SUBMITIT = """import submitit

executor = submitit.AutoExecutor(folder="submitit", cluster="slurm")
executor.update_parameters(name="true", timeout_min=5, cpus_per_task=1)
print(executor.submit(submitit.helpers.CommandFunction(["/bin/true"])).job_id)
"""
HYDRA = """import subprocess

import hydra


@hydra.main(version_base=None, config_path=None)
def main(config):
    subprocess.run(["/bin/true"], check=True)


main()
"""
HYDRA_WORDS = (
    "-m", "hydra/launcher=submitit_slurm", "hydra.launcher.submitit_folder=submitit", "hydra.launcher.name=true",
    "hydra.launcher.timeout_min=5", "hydra.launcher.cpus_per_task=1", "hydra.sweep.dir=sweep",
)  # fmt: skip
OURS = ("-m", "slurmopt.launch", "task.command=/bin/true", "resources.time=5m", "resources.cpus_per_task=1")
HYDRA_SUBMITIT = "hydra-submitit-launcher"
RETURN_RUNS = 3
FACTS_SERVE = 40.0
PATIENCE = 30.0


@dataclass(frozen=True)
class Launcher:
    """One way to submit the job."""

    name: str
    argv: list[str]
    until: str = ""
    """The folder of submitit's submission file, where the command itself goes on."""
    fresh: bool = False
    """Whether nothing of the cluster is known yet."""


def bench(bench: Workbench, report: Report, runs: int) -> None:
    if not bench.slurm:
        report.skip("comparison with other launchers: no cluster")
        return
    sources = _sources(bench)
    launchers = _launchers(bench, report, sources)
    warm = refresher(lambda: _know_the_cluster(bench), FACTS_SERVE)
    with busy_cluster(bench):
        samples = side_by_side([_case(bench, launcher, warm) for launcher in launchers], runs)
        notes = {launcher.name: _counted(bench, _case(bench, launcher, warm)) for launcher in launchers}
    if find_spec("hydra_plugins.hydra_submitit_launcher"):
        _to_return(bench, _case(bench, launchers[-1], warm), samples, notes)
    report.table("one job, to its submission", samples, notes)


def _sources(bench: Workbench) -> Path:
    folder = bench.place("sources")
    for name, text in (("true.sbatch", SCRIPT), ("with_submitit.py", SUBMITIT), ("with_hydra.py", HYDRA)):
        (folder / name).write_text(text)
    return folder


def _launchers(bench: Workbench, report: Report, sources: Path) -> list[Launcher]:
    python = bench.python
    found = [
        Launcher("sbatch", ["sbatch", "--parsable", str(sources / "true.sbatch")]),
        Launcher("slurmopt", [python, *OURS]),
        Launcher("slurmopt, first in a minute", [python, *OURS], fresh=True),
        Launcher("slurmopt, launch.check=false", [python, *OURS, "launch.check=false"]),
    ]
    if find_spec("submitit"):
        found.append(Launcher("slurmopt, launch.backend=submitit", [python, *OURS, "launch.backend=submitit"]))
        found.append(Launcher("submitit, executor.submit()", [python, str(sources / "with_submitit.py")]))
    else:
        report.skip("submitit: not installed in this Python")
    if find_spec("hydra_plugins.hydra_submitit_launcher"):
        found.append(Launcher(HYDRA_SUBMITIT, [python, str(sources / "with_hydra.py"), *HYDRA_WORDS], until="submitit"))
    else:
        report.skip("hydra-submitit-launcher: not installed in this Python")
    return found


def _case(bench: Workbench, launcher: Launcher, warm: Callable[[], None]) -> Case:
    cwd = bench.folder / "launched"
    cache = bench.folder / ("empty-cache" if launcher.fresh else "cache")

    def before() -> None:
        bench.place("launched")
        bench.place("empty-cache")
        warm()

    return Case(
        launcher.name,
        launcher.argv,
        cwd,
        {**bench.env, "XDG_CACHE_HOME": str(cache)},
        before,
        lambda: cancel_all(bench),
        cwd / launcher.until if launcher.until else None,
    )


def _know_the_cluster(bench: Workbench) -> None:
    bench.run([bench.python, *OURS, "launch.dry_run=true", "launch.backend=sbatch"])


def _counted(bench: Workbench, case: Case) -> str:
    """Files written and Slurm's commands called, in a run that is not timed."""
    calls = Calls(bench, "launched")
    files = 0

    def count() -> None:
        nonlocal files
        files = sum(path.is_file() for path in (bench.folder / "launched").rglob("*"))
        cancel_all(bench)

    once(replace(case, env={**case.env, "PATH": calls.env["PATH"]}, after=count))
    return f"{files} files; {calls}"


def _to_return(bench: Workbench, submitted: Case, samples: Samples, notes: dict[str, str]) -> None:
    name = f"{submitted.name}, to its return"
    case = replace(submitted, until=None)
    samples[name] = [once(case) for _ in range(RETURN_RUNS)]
    notes[name] = _counted(bench, case)


@contextlib.contextmanager
def busy_cluster(bench: Workbench, nodes: int = 2) -> Iterator[None]:
    """A job on all nodes, named so that it outlives the cancelling of the others."""
    bench.run(["sbatch", "--job-name=busy", f"--nodes={nodes}", "--exclusive", "--time=60", "--output=/dev/null",
               "--wrap=sleep 3600"])  # fmt: skip
    _wait(lambda: "busy" in bench.run(["squeue", "-h", "-t", "R", "-o", "%j"]), "the job that takes all nodes runs")
    try:
        yield
    finally:
        bench.run(["scancel", "--name=busy"])
        _wait(lambda: not bench.run(["squeue", "-h"]).strip(), "the cluster is free again")


def cancel_all(bench: Workbench) -> None:
    """All jobs but the one that keeps the nodes busy."""
    jobs = [line.split() for line in bench.run(["squeue", "-h", "-o", "%A %j"]).splitlines()]
    mine = [job for job, name in jobs if name != "busy"]
    if mine:
        bench.run(["scancel", *mine])
    _wait(lambda: _names(bench) <= {"busy"}, "the measured job is gone")


def _names(bench: Workbench) -> set[str]:
    return set(bench.run(["squeue", "-h", "-o", "%j"]).split())


def _wait(reached: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not reached():
        if time.monotonic() > deadline:
            raise BenchError(f"{what}: not within {PATIENCE:g} s")
        time.sleep(0.1)
