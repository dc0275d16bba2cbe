"""Files of the user's with the names of modules stand in for these in the training alone, not in slurmopt's processes.

Real runs on this machine, with such files in the folder that they are launched from.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from job.harness import wait_for

from slurmopt.run_folder import process

NAMES = (
    "amdsmi", "argparse", "boto3", "contextlib", "json", "logging", "msgspec", "pynvml", "queue", "random", "runpy",
    "select", "signal", "socket", "subprocess", "tempfile",
    "token", "types", "typing", "warnings", "yaml",
)  # fmt: skip
TRAP = """
import sys
with open({trace!r}, "a") as file:
    file.write(" ".join(sys.orig_argv) + "\\n")
name, path = __name__, list(sys.path)
del sys.modules[name]
sys.path[:] = [entry for entry in path if entry not in ("", {folder!r})]
module = __import__(name)
sys.path[:] = path
sys.modules[name] = module
"""
TRAIN = """
import time, slurmopt
def main(config):
    for step in range(20):
        slurmopt.progress(step, loss=1.0)
        time.sleep(0.05)
"""
SINKS = """
  tensorboard: {{folder: auto}}
  prometheus: {{textfile: {out}, http: "127.0.0.1:0"}}
  cloudwatch: {{namespace: test, emf: {out}}}
"""


@pytest.mark.parametrize(
    ("task", "may"), [("{_target_: train.main}", "-m slurmopt.job "), ("{command: 'sleep 1.5'}", None)]
)
def test_only_the_training_imports_what_is_in_its_folder(tmp_path: Path, task: str, may: str | None) -> None:
    project, out, trace = tmp_path / "project", tmp_path / "out", tmp_path / "trace"
    (project / "conf" / "experiment").mkdir(parents=True)
    out.mkdir()
    for name in NAMES:
        (project / f"{name}.py").write_text(TRAP.format(trace=str(trace), folder=str(project)))
    (project / "train.py").write_text(TRAIN)
    config = f"# @package _global_\nname: mine\ntask: {task}\nmetrics:{SINKS.format(out=out)}"
    (project / "conf" / "experiment" / "mine.yaml").write_text(config)
    command = [Path(sys.executable).parent / "slurmopt", "launch", "+experiment=mine", "launch.backend=local"]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    (run,) = (project / "runs" / "mine").iterdir()
    assert json.loads((run / "result.json").read_text())["outcome"] == "finished"
    wait_for((run / "report.html").exists, "the report, which follows the end")
    assert list((run / "series").rglob("*.jsonl"))
    assert list(out.glob(".slurmopt-*.lock")), "the sinks ran"
    ran = trace.read_text().splitlines() if trace.exists() else []
    assert [line for line in ran if may is None or may not in line] == []


def test_what_any_python_is_started_with_imports_nothing_from_the_folder(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    for name in NAMES:
        (tmp_path / f"{name}.py").write_text(TRAP.format(trace=str(trace), folder=str(tmp_path)))
    words = [sys.executable, *process.module_start(any_python=True), "platform"]
    subprocess.run(words, cwd=tmp_path, check=True, capture_output=True)
    assert not trace.exists(), trace.read_text()


@pytest.mark.parametrize(
    "words",
    [
        ["slurmopt", "list"],
        ["slurmopt", "launch", "--help"],
        ["slurmopt.launch", "task.command=[x]", "launch.dry_run=true"],
    ],
)
def test_python_m_in_the_folder_is_the_same_as_the_command(tmp_path: Path, words: list[str]) -> None:
    """Only what Python itself imports for `-m`, before anything of slurmopt, comes from the folder."""
    trace = tmp_path / "trace"
    for name in sorted(
        {*NAMES, "dataclasses", "datetime", "difflib", "inspect"}
        - {"runpy", "types", "typing", "contextlib", "warnings"}
    ):
        (tmp_path / f"{name}.py").write_text(TRAP.format(trace=str(trace), folder=str(tmp_path)))
    done = subprocess.run([sys.executable, "-m", *words], cwd=tmp_path, capture_output=True, text=True, timeout=180)
    assert done.returncode in (0, 2), done.stderr
    assert "Traceback" not in done.stderr
    assert not trace.exists(), trace.read_text()
