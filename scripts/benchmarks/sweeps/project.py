"""The experiment that the benches of sweeps launch, and the same points as a Hydra application for hydra-submitit."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.measure import BenchError
from benchmarks.workbench import Workbench
from slurmopt.grid.records import Records
from slurmopt.run_folder.sweep_layout import SweepFolder

FILES = {
    "points.py": '''"""A point of one line."""


def main(config):
    return {"loss": config.lr * config.seed}
''',
    "with_torch.py": '''"""A point that tells when it began and ended; each has torch."""
import time

began = time.time
import torch


def main(config):
    with open("moments", "a") as file:
        now = began()
        file.write(f"{now} {float(torch.ones(1)) and began()}\\n")
''',
    "hunt.py": '''"""Trials of uneven length, which wait instead of computing; a line for each."""
import json
import os
import time

SECONDS = json.load(open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "seconds.json")))


def trial(number, worker, x, folder):
    begin = time.time()
    time.sleep(SECONDS[number])
    with open(os.path.join(folder, "trials"), "a") as file:
        file.write(f"{worker} {begin} {time.time()}\\n")
    return (x - 3) ** 2


def main(config):
    here = os.path.dirname(os.path.abspath(__file__))
    task = os.environ["SLURM_ARRAY_TASK_ID"]
    return {"loss": trial(int(os.environ["SLURMOPT_POINT"]), task, config.x, here)}
''',
    "conf/experiment/short.yaml": """# @package _global_
defaults:
  - /model: small
task: {_target_: points.main}
resources: {time: 10m, cpus_per_task: 1}
lr: 0.1
seed: 0
x: 0.0
""",
    "conf/model/small.yaml": "layers: 2\nwidth: 64\n",
    "conf/model/large.yaml": "layers: 24\nwidth: 1024\n",
    "conf/app.yaml": "defaults:\n  - model: small\n  - _self_\nlr: 0.1\nseed: 0\nx: 0.0\n",
    "with_hydra.py": """import hydra


@hydra.main(version_base=None, config_path="conf", config_name="app")
def main(config):
    return {"loss": config.lr * config.seed}


main()
""",
    "moments_with_hydra.py": """import time

import hydra
import torch


@hydra.main(version_base=None, config_path="conf", config_name="app")
def main(config):
    now = time.time()
    with open("moments", "a") as file:
        file.write(f"{now} {float(torch.ones(1)) and time.time()}\\n")


if __name__ == "__main__":
    main()
""",
    "hunt_with_hydra.py": """import os

import hydra
from hydra.core.hydra_config import HydraConfig


@hydra.main(version_base=None, config_path="conf", config_name="app")
def main(config):
    from hunt import trial

    number = HydraConfig.get().job.num
    return trial(number, number % config.workers, config.x, os.path.dirname(os.path.abspath(__file__)))


main()
""",
}
SUBMITIT = (
    "-m", "hydra/launcher=submitit_slurm", "hydra.launcher.submitit_folder=submitit", "hydra.launcher.name=points",
    "hydra.launcher.timeout_min=10", "hydra.launcher.cpus_per_task=1", "hydra.sweep.dir=sweep",
)  # fmt: skip
PATIENCE = 600.0


def project(bench: Workbench, name: str) -> Path:
    """A new folder with the experiment `short` and the Hydra applications."""
    folder = bench.place(name)
    for file, text in FILES.items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(text)
    return folder


def launched(bench: Workbench, cwd: Path, *words: str, env: Mapping[str, str] | None = None) -> SweepFolder:
    """The sweep that these words launch."""
    argv = [bench.python, "-m", "slurmopt.launch", "-m", "+experiment=short", *words, "launch.json=true"]
    answer: dict[str, Any] = json.loads(bench.run(argv, cwd, env))["data"]
    return SweepFolder(Path(answer["run"]))


def patient(argv: Sequence[str], cwd: Path, env: Mapping[str, str]) -> float:
    """The seconds that a command takes, however many; BenchError where it fails."""
    since = time.monotonic()
    done = subprocess.run(argv, cwd=cwd, env=dict(env), capture_output=True, text=True, timeout=PATIENCE, check=False)
    if done.returncode:
        raise BenchError(f"{' '.join(argv)} ended with {done.returncode}\n{(done.stderr or done.stdout)[-3000:]}")
    return time.monotonic() - since


def await_end(bench: Workbench) -> None:
    """Until no job is left on the cluster."""
    wait_for(lambda: not bench.run(["squeue", "--noheader"]).strip(), "the end of all jobs")


def wait_for(reached: Callable[[], bool], what: str) -> None:
    """Looks five times a second; BenchError where it takes too long."""
    deadline = time.monotonic() + PATIENCE
    while not reached():
        if time.monotonic() > deadline:
            raise BenchError(f"{what}: not within {PATIENCE:g} s")
        time.sleep(0.2)


def ends(sweep: SweepFolder, count: int) -> list[dict[str, Any]]:
    """The `end` of each of the `count` points, all of which must have finished."""
    records = Records(sweep)
    found = [
        event
        for number in range(count)
        for event in records.journal(number)
        if event["event"] == "end" and event["outcome"] == "finished"
    ]
    if len(found) != count:
        raise BenchError(f"{len(found)} of {count} points of {sweep.path} have finished")
    return found
