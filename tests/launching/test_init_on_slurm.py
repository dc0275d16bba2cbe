"""The project of `slurmopt init` on a real Slurm: it runs as printed, and uses all GPUs that it asks for."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from json_answer import data_of
from launching.conftest import Project

from slurmopt.run_folder.layout import RunFolder


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="NOT TESTED: torch is not installed")
def test_it_runs_at_once_with_a_rank_for_each_gpu(project: Project) -> None:
    answer = data_of(project.slurmopt("init", "new", "--json").stdout)
    assert (answer["found"]["partition"], answer["found"]["gpus_per_node"]) == ("main", 8)
    assert answer["next"] == "cd new && slurmopt launch +experiment=train"
    here = Project(project.cluster, project.path / "new", project.user)
    script = here.launch("+experiment=train", "launch.dry_run=true").stdout
    assert "#SBATCH --gpus-per-node=8\n" in script
    assert "#SBATCH --ntasks-per-node=8\n" in script
    words = ("steps=200", "resources.gpus_per_node=2", "resources.cpus_per_task=1", "health.reach=false")
    run = here.submit("+experiment=train", *words)
    assert here.wait_for(run, "finished")["step"] == 200
    ranks = sorted(path.name for path in (RunFolder(Path(run["run"])).path / "logs" / "attempt-0").glob("rank-*.log"))
    assert ranks == ["rank-0.log", "rank-1.log"]
