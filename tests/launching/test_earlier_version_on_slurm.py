"""The job script of an earlier slurmopt, which starts modules by their old names, submitted again to the real Slurm."""

from __future__ import annotations

import json
import shutil

from launching.conftest import Project
from runs.earlier_run import put


def test_the_script_of_an_earlier_version_goes_on(project: Project) -> None:
    run = put(project.path, "sbatch")
    for path in [project.path / "train.py", project.path / "runs", *(project.path / "runs").rglob("*")]:
        shutil.chown(path, project.user)
    script = (run / "job.sbatch").read_text()
    assert "-m slurmopt.runtime " in script
    project.submit("launch.run=mine")
    project.wait_for({"run": str(run)}, "finished")
    assert (run / "job.sbatch").read_text() == script
    assert json.loads((run / "result.json").read_text())["result"] == {"lr": 0.1}
