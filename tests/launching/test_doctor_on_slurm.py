"""`slurmopt doctor` on a real Slurm: on compute nodes, against a controller that is not there, and over real runs."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from json_answer import data_of
from launching.conftest import Project


def test_compute_nodes_answer_for_themselves(project: Project) -> None:
    found = data_of(project.slurmopt("doctor", "--nodes", "2", "--json").stdout)
    nodes = {name for each in found for name in each["nodes"] or []}
    assert len(nodes) == 2
    here = {each["name"] for each in found if each["nodes"] is None}
    assert {"Slurm", "requeue", "accounting", "nodes", "Python", "file system", "space"} <= here
    for node in nodes:
        of_node = {each["name"]: each["verdict"] for each in found if each["nodes"] == [node]}
        assert of_node["Python"] == of_node["clock"] == "pass"
    assert all(each["verdict"] != "fail" for each in found), found


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--nodes", "900", "--within", "1s"], "--nodes 900: only"),
        (["--nodes", "1", "--partition", "gone"], "invalid partition specified: gone"),
    ],
    ids=" ".join,
)
def test_nodes_that_cannot_be_had(words: list[str], said: str, project: Project) -> None:
    done = project.slurmopt("doctor", *words, check=False)
    assert done.returncode == 1
    (failed,) = re.findall(r"^fail +(.*)", done.stdout, re.MULTILINE)
    assert failed.startswith("nodes: ")
    assert said in failed
    assert re.search(r"^pass ", done.stdout, re.MULTILINE)


def test_a_controller_that_does_not_answer_hides_nothing_else(project: Project, tmp_path: Path) -> None:
    text = project.cluster.conf.read_text()
    conf = project.path / "dead" / "slurm.conf"
    conf.parent.mkdir()
    conf.write_text(re.sub(r"(?m)^SlurmctldPort=.*$", "SlurmctldPort=9", text))
    for path in (conf.parent, conf):
        os.chmod(path, 0o755)
    done = project.slurmopt("doctor", "--all", check=False, SLURM_CONF=str(conf))
    assert done.returncode == 1
    assert re.search(r"^fail +Slurm: ", done.stdout, re.MULTILINE)
    assert re.search(r"^pass +Python: ", done.stdout, re.MULTILINE)


def test_runs_against_the_targets_of_a_site(project: Project) -> None:
    good = project.submit("task.command=[true]", "launch.name=good")
    bad = project.submit("task.command=[false]", "launch.name=bad", "restart.budgets.infrastructure=0")
    project.wait_for(good, "finished")
    project.wait_for(bad, "failed")
    words = ("doctor", "--history", "1d", "--json")
    found = {each["name"]: each for each in data_of(project.slurmopt(*words).stdout)}
    assert found["completion"]["text"] == "50.0%; target: 95% or more"
    assert found["completion"]["verdict"] == "warn"
    assert found["wait"]["verdict"] == "pass"
    assert found["recovery"]["verdict"] == "skipped"
    easy = {each["name"]: each["verdict"] for each in data_of(project.slurmopt(*words, "--completion", "50").stdout)}
    assert easy["completion"] == "pass"


def test_a_launch_asks_the_doctor_first(project: Project) -> None:
    done = project.launch("task.command=[true]", "launch.doctor=true", "launch.name=checked")
    assert "Submitted checked/" in done.stdout
    shadow = project.path / "nvidia_ml_py3-7.352.0.dist-info"
    shadow.mkdir()
    (shadow / "METADATA").write_text("Name: nvidia-ml-py3\nVersion: 7.352.0\n")
    words = ("launch", "task.command=[true]", "launch.doctor=true", "launch.name=refused")
    done = project.slurmopt(*words, check=False, PYTHONPATH=f"{project.path}:{os.environ.get('PYTHONPATH', '')}")
    assert done.returncode == 2
    assert "doctor: pynvml: " in done.stderr
    assert "mend: pip uninstall" in done.stderr
    assert not (project.path / "runs" / "refused").exists()
