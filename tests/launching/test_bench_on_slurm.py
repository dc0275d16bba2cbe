"""The experiment bench_collectives on a real Slurm: two nodes measure, and the command shows the run."""

from __future__ import annotations

import importlib.util

import pytest
from json_answer import data_of
from launching.conftest import Project


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="NOT TESTED: torch is not installed")
def test_two_nodes_measure_and_the_run_is_shown(project: Project) -> None:
    words = ("bench.sizes=[4K,64K]", "bench.iterations=3", "resources.cpus_per_task=1", "health.reach=false")
    run = project.submit("+experiment=bench_collectives", *words)
    assert project.wait_for(run, "finished")["step"] == 10
    answer = data_of(project.slurmopt("bench", "collectives", "--read", "bench_collectives", "--json").stdout)
    assert (answer["world"], answer["backend"], len(answer["nodes"])) == (2, "gloo", 2)
    assert len(answer["rows"]) == 10
    assert all(row["wrong"] == 0 for row in answer["rows"])
    assert [(link["first"], link["second"]) for link in answer["links"]] == [tuple(answer["nodes"])]
    shown = project.slurmopt("bench", "collectives", "--read", run["run"], "--against", run["run"])
    assert "median ratio 1.00 of 10 rows" in shown.stdout
    closed = project.path / "closed.json"
    closed.write_text("{}")
    closed.chmod(0o600)  # of root, of the test
    refused = project.slurmopt("bench", "collectives", "--read", str(closed), check=False)
    assert (refused.returncode, refused.stderr) == (2, f"slurmopt: error: {closed}: permission denied\n")
