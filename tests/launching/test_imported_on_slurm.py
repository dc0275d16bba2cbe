"""Batch scripts that people have, on a real Slurm: imported, they leave the same files as under sbatch."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import shutil
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from launching.conftest import Project
from private_cluster import wait_until

SCRIPTS = Path(__file__).parents[1] / "importing" / "scripts"
FIT = """
import json, os, sys
lr, seed = float(sys.argv[2]), int(sys.argv[3].partition("=")[2])
value = {"arguments": sys.argv[1:], "loss": (lr * 1e4 - seed) ** 2, "threads": os.environ["OMP_NUM_THREADS"]}
value["cpus"] = os.environ["SLURM_CPUS_PER_TASK"]
open(sys.argv[5], "w").write(json.dumps(value))
"""
DDP = """
import json, os, sys
import torch
import torch.distributed as dist
import torch.distributed.nn
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.Generator().manual_seed(dist.get_rank())
for step in range(int(sys.argv[2])):
    x = torch.randn(8, 4, generator=data)
    loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
if dist.get_rank() == 0:
    names = ("WORLD_SIZE", "LOCAL_WORLD_SIZE", "LOGLEVEL")
    value = {"weight": model.module.weight.tolist(), **{name: os.environ[name] for name in names}}
    open(sys.argv[4], "w").write(json.dumps(value))
dist.destroy_process_group()
"""
EVALUATE = """
import json, os, sys
names = ("CONDA_DEFAULT_ENV", "HF_HUB_OFFLINE", "DATA_DIR", "SLURM_NTASKS", "CUDA_VISIBLE_DEVICES")
value = {name: os.environ.get(name) for name in names}
open("rank-" + os.environ["SLURM_PROCID"] + ".json", "w").write(json.dumps([sys.argv[1:], sys.executable, value]))
"""
CONDA = """
conda() {
  if [ "$1" = activate ]; then
    export CONDA_DEFAULT_ENV=$2 CONDA_PREFIX=$HOME/miniconda3/envs/$2
    export PATH=$CONDA_PREFIX/bin:$PATH
  fi
}
"""


@pytest.fixture
def home(project: Project) -> Path:
    """The home of the user, with a conda that has one environment."""
    home = Path(pwd.getpwnam(project.user).pw_dir)
    conda = home / "miniconda3"
    python = conda / "envs" / "lab" / "bin" / "python"
    python.parent.mkdir(parents=True, exist_ok=True)
    python.unlink(missing_ok=True)
    python.symlink_to("/usr/bin/env" if not Path("/usr/bin/python3").exists() else "/usr/bin/python3")
    (conda / "etc" / "profile.d").mkdir(parents=True, exist_ok=True)
    (conda / "etc" / "profile.d" / "conda.sh").write_text(CONDA)
    return home


def both(project: Project, script: str, program: str, text: str, produced: str, count: int) -> tuple[Any, Any, str]:
    """What plain sbatch leaves behind, and the imported experiment: file → content; and what the import said."""
    found, said = [], ""
    for way in ("sbatch", "slurmopt"):
        here = Project(project.cluster, project.path / way, project.user)
        here.path.mkdir()
        (here.path / program).write_text(text)
        shutil.copy(SCRIPTS / script, here.path)
        shutil.chown(here.path, project.user)
        path = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        if way == "sbatch":
            here.run(["sbatch", script], env=path)
        else:
            said = here.slurmopt("import", script, **path).stdout
            here.slurmopt(*said.rpartition("next")[2].split()[1:], "health.reach=false", **path)
        files: dict[str, Any] = {}
        wait_until(partial(all_read, here.path, produced, count, files), 120, f"{way} has left its files")
        # Agents of torchrun can wait for each other's end for five minutes.
        project.cluster.run(["scancel", "--user", project.user])
        here.wait_until_no_job_is_left()
        found.append(files)
    return found[0], found[1], said


def all_read(folder: Path, produced: str, count: int, files: dict[str, Any]) -> bool:
    """Whether all files are there and whole; they are in `files` then."""
    for path in folder.glob(produced):
        with contextlib.suppress(ValueError):
            files[path.name] = json.loads(path.read_text())
    return len(files) == count


def test_an_array_becomes_a_sweep_with_the_same_results(project: Project) -> None:
    plain, ours, said = both(project, "grid.sbatch", "fit.py", FIT, "results/*.json", 6)
    assert len(plain) == 6
    assert ours == plain
    assert "experiment grid, 6 points" in said


def test_torchrun_on_two_nodes_leaves_the_same_weights(project: Project) -> None:
    pytest.importorskip("torch", reason="NOT TESTED: torch is not installed")
    plain, ours, said = both(project, "ddp.sbatch", "ddp.py", DDP, "weights.json", 1)
    assert plain["weights.json"]["WORLD_SIZE"] == "2"
    assert ours == plain
    assert "slurmopt connects the ranks itself" in said


def test_a_conda_environment_and_a_gpu_for_each_task(project: Project, home: Path) -> None:
    plain, ours, said = both(project, "conda.sbatch", "evaluate.py", EVALUATE, "rank-*.json", 2)
    assert plain["rank-0.json"][2]["CONDA_DEFAULT_ENV"] == "lab"
    assert ours == plain
    assert "+experiment=evaluate-model" in said


def test_points_of_a_kept_array_are_known_by_slurms_numbers_and_see_their_own(project: Project) -> None:
    script = '#!/bin/bash\n#SBATCH --array=3-4 --time=5\nif true; then echo "$SLURM_ARRAY_TASK_ID" >> seen; fi\n'
    (project.path / "job.sbatch").write_text(script)
    project.slurmopt("import", "job.sbatch", "--name", "kept")
    sweep = project.slurmopt("launch", "-m", "+experiment=kept", "health.reach=false", "launch.wait=true").stdout
    assert "2 finished" in sweep
    assert sorted((project.path / "seen").read_text().split()) == ["3", "4"]
    jobs = [project.status(f"kept/{number}")["job"] for number in range(2)]
    assert [job.partition("_")[2] for job in jobs] == ["0", "1"]
