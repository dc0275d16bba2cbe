"""A slurmctld that is down, an answer that is lost, a launcher that is killed: in the end there is exactly one job."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from private_cluster import wait_until

TASK = ("task.command=[sleep, 60]", "resources.time=5m", "launch.check=false", "launch.json=true")


def jobs_of(project: Any) -> list[str]:
    listed: list[str] = project.run(["squeue", "--me", "-h", "--states=pending,running", "-o", "%i"]).stdout.split()
    return listed


def begin(project: Any, *words: str) -> subprocess.Popen[str]:
    """A launch in the background."""
    environment = {**project.environment(), "XDG_CACHE_HOME": str(project.path / "cache")}
    return subprocess.Popen(
        [sys.executable, "-m", "slurmopt", "launch", *TASK, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=project.path,
        env=environment,
        user=project.user,
        extra_groups=[],
    )


def events(project: Any, name: str) -> list[str]:
    found = list((project.path / "runs" / name).glob("*/events.jsonl"))
    return [json.loads(line)["event"] for path in found for line in path.read_text().splitlines()]


def test_a_controller_that_is_down_leaves_nothing_half_done(project: Any) -> None:
    project.cluster.stop_controller()
    try:
        refused = project.launch("task.command=[true]", "launch.name=down", check=False)
        unchecked = project.launch("task.command=[true]", "launch.name=down", "launch.check=false", check=False)
    finally:
        project.cluster.start_controller()
    for done in (refused, unchecked):
        assert done.returncode == 1
        assert "does not answer" in done.stderr or "Unable to contact" in done.stderr
        assert len([line for line in done.stderr.splitlines() if line.startswith("slurmopt: error:")]) == 1
        assert "Traceback" not in done.stderr
    assert not list((project.path / "runs").glob("*/*"))


def test_an_answer_that_is_lost_is_looked_up_and_not_tried_again(project: Any) -> None:
    """slurmctld is stopped with sbatch's request in its hands, and goes on when sbatch has given up."""
    project.cluster.pause_controller()
    launch = begin(project, "launch.name=lost")
    try:
        wait_until(lambda: "submitting" in events(project, "lost"), 20, "the launch submits")
        sbatch = ["pgrep", "--exact", "--euid", project.user, "sbatch"]
        wait_until(lambda: subprocess.run(sbatch, capture_output=True).returncode == 0, 20, "sbatch runs")
        wait_until(lambda: subprocess.run(sbatch, capture_output=True).returncode != 0, 90, "sbatch gives up")
    finally:
        project.cluster.resume_controller()
    out, err = launch.communicate(timeout=120)
    assert launch.returncode == 0, err
    (job,) = jobs_of(project)
    assert json.loads(out)["job_ids"] == [job]
    assert "waiting for Slurm to take the job" in err


@pytest.mark.parametrize("moment", ["submitting", "submitted"])
def test_a_launcher_that_is_killed_can_be_repeated(project: Any, moment: str) -> None:
    """Killed once with the request at slurmctld, once after the answer; the repetition finds the job."""
    words = (f"launch.name={moment}", "launch.id=one")
    if moment == "submitting":
        project.cluster.pause_controller()
    launch = begin(project, *words)
    try:
        wait_until(lambda: moment in events(project, moment), 20, f"the launch is {moment}")
        if moment == "submitting":
            sbatch = ["pgrep", "--exact", "--euid", project.user, "sbatch"]
            wait_until(lambda: subprocess.run(sbatch, capture_output=True).returncode == 0, 20, "sbatch runs")
        launch.send_signal(signal.SIGKILL)
        launch.communicate()
    finally:
        if moment == "submitting":
            project.cluster.resume_controller()
    wait_until(lambda: len(jobs_of(project)) == 1, 60, "the killed launcher's sbatch got through")
    answer = json.loads(project.launch(*TASK, *words, timeout=180).stdout)
    assert answer["job_ids"] == jobs_of(project)


def test_two_launches_of_one_id_at_once_submit_one_job(project: Any) -> None:
    launches = [begin(project, "launch.name=race", "launch.id=one") for _ in range(3)]
    answers = [launch.communicate(timeout=120) for launch in launches]
    assert [launch.returncode for launch in launches] == [0, 0, 0], answers
    assert len({out for out, _ in answers}) == 1
    assert len(jobs_of(project)) == 1
    assert len(list(Path(project.path / "runs" / "race").iterdir())) == 1
