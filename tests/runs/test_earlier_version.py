"""Runs of an earlier slurmopt, whose modules had other names: shown, gone on with, retried."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from json_answer import data_of
from runs.earlier_run import ID, put

from slurmopt.old_names import MOVED
from slurmopt.run_folder.layout import RunFolder
from slurmopt.runs.submit import unfinished_retry


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return put(tmp_path, "local")


def slurmopt(*words: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "slurmopt", *words]
    return subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)


def answer(*words: str) -> Any:
    done = slurmopt(*words, "--json")
    assert done.returncode == 0, done.stderr
    return data_of(done.stdout)


def test_the_run_is_shown(run: Path) -> None:
    (status,) = answer("status", "mine")
    assert (status["state"], status["cause"], status["step"], status["job"]) == (
        "failed",
        "user error",
        3,
        "local-4242",
    )
    assert [attempt["error"] for attempt in answer("history", "mine")["attempts"]] == [
        "ValueError: the first attempt fails"
    ]
    assert [listed["id"] for listed in answer("list")] == [ID]
    assert "the first attempt fails" in slurmopt("logs", "mine", "--errors").stdout


def test_its_own_script_goes_on(run: Path) -> None:
    """The script starts every module by its old name: the ranks, the watchdog, the verdict and what it calls."""
    script = (run / "job.sbatch").read_text()
    assert "slurmopt.runtime.verdict" in script
    done = slurmopt("launch", "launch.run=mine", "launch.wait=true")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (run / "job.sbatch").read_text() == script
    assert json.loads((run / "result.json").read_text())["result"] == {"lr": 0.1}
    assert [attempt["outcome"] for attempt in answer("history", "mine")["attempts"]] == ["user error", "finished"]


def test_it_is_retried_with_another_value(run: Path) -> None:
    done = slurmopt("retry", "mine", "resources.time=20m")
    assert done.returncode == 0, done.stdout + done.stderr
    slurmopt("status", "mine", "--watch")
    assert answer("status", "mine")[0]["state"] == "finished"
    digest = hashlib.sha256((run / "supervisor.sh").read_bytes()).hexdigest()
    assert digest in (run / "job.sbatch").read_text(), "both are written anew"


def test_a_retry_that_slurmopt_undoes_leaves_no_supervisor_in_it(run: Path) -> None:
    folder = RunFolder(run)
    script = folder.script.read_text()
    files = (folder.config, folder.script, folder.supervisor)
    unfinished_retry.begin(folder, "slurmopt:before", files)
    folder.script.write_text("another")
    folder.supervisor.write_text("another")
    broken_off = unfinished_retry.found(folder)
    assert broken_off is not None
    unfinished_retry.undo(folder, broken_off)
    assert folder.script.read_text() == script
    assert not folder.supervisor.exists()
    folder.supervisor.write_text("before")
    unfinished_retry.begin(folder, "slurmopt:before", files)
    folder.supervisor.write_text("another")
    broken_off = unfinished_retry.found(folder)
    assert broken_off is not None
    unfinished_retry.undo(folder, broken_off)
    assert folder.supervisor.read_text() == "before"


@pytest.mark.parametrize("name", [name for name in MOVED if name != "slurmopt.folder"])
def test_each_old_name_starts_the_program_of_the_new_one(name: str, tmp_path: Path) -> None:
    def start(module: str) -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, "-m", module], capture_output=True, text=True, timeout=180, check=False, cwd=tmp_path
        )
        return done.returncode, done.stderr.strip().splitlines()[-1]

    old, new = start(name), start(MOVED[name])
    assert old == new
    assert "No module" not in old[1]
