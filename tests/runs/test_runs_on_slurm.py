"""Seeing and stopping runs on a real Slurm."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from json_answer import data_of
from private_cluster import PrivateCluster, new_folder, wait_until

from slurmopt.cli import main

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def cluster() -> Iterator[PrivateCluster]:
    with PrivateCluster.running("--nodes", "2") as made:
        yield made


@pytest.fixture
def folder(cluster: PrivateCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the test stands, on a cluster that is empty again afterwards."""
    path = new_folder()
    monkeypatch.chdir(path)
    monkeypatch.setenv("SLURM_CONF", str(cluster.conf))
    yield path
    cluster.run(["scancel", "--me"])
    shutil.rmtree(path, ignore_errors=True)  # a rank that is just ending may still write


def launch(name: str, command: str, *words: str) -> str:
    """Launches `bash -c command`; returns the job id."""
    words = (f"task.command=[bash,-c,'{command}']", f"launch.name={name}", "launch.json=true", *words)
    done = subprocess.run(
        [sys.executable, "-m", "slurmopt.launch", *words],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert done.returncode == 0, done.stderr
    (job,) = data_of(done.stdout)["job_ids"]
    return str(job)


def status(capsys, name: str) -> dict:
    assert main(["status", name, "--json"]) == 0
    return data_of(capsys.readouterr().out)[0]


def until(capsys, name: str, *states: str, timeout: float = 60) -> dict:
    wait_until(
        lambda: status(capsys, name)["state"] in states, timeout, f"{name} is {states}", lambda: status(capsys, name)
    )
    return status(capsys, name)


def until_begun(capsys, name: str) -> None:
    """Slurm calls a job running before its batch shell has started; what comes then would meet no attempt."""
    until(capsys, name, "running")
    wait_until(lambda: status(capsys, name)["heartbeat"] is not None, 60, f"a heartbeat of {name}")


def test_a_waiting_run_says_why_and_can_be_cancelled(folder: Path, capsys) -> None:
    launch("first", "sleep 600", "resources.nodes=2", "resources.exclusive=true")
    until(capsys, "first", "running")
    launch("second", "sleep 600", "resources.nodes=2", "resources.exclusive=true")
    wait_until(lambda: "(" in (status(capsys, "second")["detail"] or ""), 40, "a reason")
    seen = status(capsys, "second")
    assert seen["state"] == "pending"
    assert "(Resources)" in seen["detail"] or "(Priority)" in seen["detail"]
    assert main(["cancel", "second", "--json"]) == 0
    assert data_of(capsys.readouterr().out)["state"] == "cancelled"
    assert main(["cancel", "first"]) == 0
    assert "is cancelled" in capsys.readouterr().out


def test_what_slurm_requeues_has_not_ended(folder: Path, capsys, cluster: PrivateCluster) -> None:
    held = 'until [ -e "$SLURMOPT_RUN_FOLDER/go" ]; do sleep 0.1; done; echo "attempt $SLURMOPT_ATTEMPT"'
    job = launch("mine", held)
    until_begun(capsys, "mine")
    cluster.run(["scontrol", "requeue", job])
    (run,) = folder.glob("runs/mine/*")
    # Its verdict, unless KillWait was too short for one; then its next start.
    told = ('"event": "end"', '"event": "attempt", "attempt": 1')
    wait_until(
        lambda: any(word in (run / "events.jsonl").read_text() for word in told), 60, "its verdict or next start"
    )
    assert status(capsys, "mine")["state"] in ("stopping", "requeued", "running")
    (run / "go").touch()
    assert main(["logs", "mine", "--follow"]) == 0
    assert capsys.readouterr().out.endswith("attempt 1\n")
    seen = status(capsys, "mine")
    assert (seen["state"], seen["attempts"], seen["job"]) == ("finished", 2, job)


def test_scancel_by_hand_is_a_cancel_too(folder: Path, capsys, cluster: PrivateCluster) -> None:
    job = launch("mine", "sleep 600")
    until_begun(capsys, "mine")
    cluster.run(["scancel", job])
    until(capsys, "mine", "cancelled")


def test_a_controller_that_is_down(folder: Path, capsys, cluster: PrivateCluster) -> None:
    launch("mine", "sleep 600")
    until_begun(capsys, "mine")
    with cluster.without_controller():
        assert main(["cancel"]) == 1
        assert "scancel" in capsys.readouterr().err
        assert status(capsys, "mine")["state"] == "running"
    assert main(["cancel"]) == 0


def test_a_retry_with_changed_memory(folder: Path, capsys, cluster: PrivateCluster) -> None:
    """Refused by Slurm it leaves the run as it was; else the same run goes on, in one new job that has what it asks."""
    first = launch("mine", "test -e again", "resources.memory=100M")
    until(capsys, "mine", "failed")
    (run,) = folder.glob("runs/mine/*")
    before = (run / "config.yaml").read_bytes(), (run / "job.sbatch").read_bytes()
    assert main(["retry", "mine", "resources.partition=nowhere"]) == 2
    assert "resources.partition" in capsys.readouterr().err
    assert main(["retry", "mine", "resources.partition=nowhere", "launch.check=false"]) == 2
    assert "nowhere" in capsys.readouterr().err
    assert ((run / "config.yaml").read_bytes(), (run / "job.sbatch").read_bytes()) == before
    (folder / "again").touch()
    assert main(["retry", "mine", "--more-memory", "1.5", "--json"]) == 0
    (answer,) = data_of(capsys.readouterr().out)
    assert cluster.run(["squeue", "--noheader", "--format=%i %m", "--states=all", "--jobs", answer["job"]]).stdout == (
        f"{answer['job']} 150M\n"
    )
    seen = until(capsys, "mine", "finished")
    assert (seen["jobs"], seen["attempt"], seen["id"]) == ([first, answer["job"]], 1, run.name)


def test_who_waits_for_a_run_is_told_on_the_desktop_and_the_job_tries_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "bin").mkdir()
    tool = folder / "bin" / "notify-send"
    tool.write_text(f'#!/bin/sh\necho "$SLURM_JOB_ID: $4" >> {folder}/shown\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("DISPLAY", ":0")
    words = ("task.command=[false]", "launch.wait=true", "launch.name=desk", "launch.id=one", "notify.desktop=true")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "slurmopt.launch", *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1, done.stderr
    assert (folder / "shown").read_text() == ": desk/one failed (user error), attempt 0\n"
