"""`slurmopt cancel`, on real local runs and on those that cannot be cancelled."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from json_answer import data_of

from slurmopt.cli import main
from slurmopt.run_folder import events
from slurmopt.run_folder.layout import RunFolder

ROOT = Path(__file__).parents[2]


@pytest.fixture
def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A run that sleeps, launched on this machine, once its rank has started."""
    monkeypatch.chdir(tmp_path)
    words = ["task.command=[bash,-c,'echo ready; exec sleep 600']", "launch.backend=local", "launch.wait=false"]
    command = [sys.executable, "-m", "slurmopt.launch", *words, "launch.name=mine", "launch.id=one"]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    run = RunFolder(tmp_path / "runs" / "mine" / "one")
    deadline = time.monotonic() + 30
    while not (run.rank_log(0, 0).exists() and "ready" in run.rank_log(0, 0).read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    yield run
    pid = next(event["pid"] for event in events.read(run.events) if event["event"] == "submitted")
    if Path(f"/proc/{pid}").exists():
        os.kill(pid, signal.SIGTERM)


def test_a_local_run_is_gone_afterwards(running: RunFolder, capsys) -> None:
    assert main(["status", "--json"]) == 0
    assert data_of(capsys.readouterr().out)[0]["state"] == "running"
    assert main(["cancel", "mine", "--json"]) == 0
    said = data_of(capsys.readouterr().out)
    assert (said["state"], said["gone"], said["folder"]) == ("cancelled", True, str(running.path))
    assert main(["status", "--json"]) == 0
    assert data_of(capsys.readouterr().out)[0]["state"] == "cancelled"
    assert main(["cancel"]) == 2
    assert "has ended already: cancelled" in capsys.readouterr().err


def test_a_process_that_only_has_the_same_id_is_left_alone(make_run, capsys) -> None:
    import socket

    with subprocess.Popen(["sleep", "600"]) as other:
        runner = {"backend": "local", "host": socket.gethostname(), "pid": other.pid, "pid_started": 1}
        make_run().submitted(f"local-{other.pid}", **runner).attempt(job=f"local-{other.pid}")
        assert main(["cancel"]) == 2
        assert "has ended already: lost" in capsys.readouterr().err
        assert other.poll() is None
        other.kill()


def test_a_run_on_another_machine_is_named(make_run, capsys) -> None:
    make_run().submitted("local-3", backend="local", host="login9", pid=3, pid_started=1).attempt(job="local-3")
    assert main(["cancel"]) == 2
    assert "login9" in capsys.readouterr().err


def test_a_run_that_was_never_submitted(make_run, capsys) -> None:
    make_run()
    assert main(["cancel"]) == 2
    assert "never submitted" in capsys.readouterr().err


def test_a_cancel_that_does_not_reach_slurm_is_taken_back(make_run, capsys) -> None:
    made = make_run().submitted().attempt().beat()
    assert main(["cancel"]) == 2
    assert "scancel is not installed here" in capsys.readouterr().err
    assert [event["event"] for event in events.read(made.folder.events)][-2:] == ["cancel", "cancel-failed"]
    assert main(["status", "--json"]) == 0
    assert data_of(capsys.readouterr().out)[0]["state"] == "running"
