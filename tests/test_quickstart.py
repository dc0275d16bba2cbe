"""The quickstart: it learns, it survives a stop request without losing anything, its script says what is missing."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slurmopt.checkpoint.format import ledger
from slurmopt.checkpoint.format.manifest_reader import decode
from slurmopt.run_folder import heartbeat
from slurmopt.run_folder.layout import RunFolder
from slurmopt.storage.folder import FolderStore

ROOT = Path(__file__).parents[1]
TINY = [
    "train.steps=40",
    "train.batch=4",
    "checkpoint.shared.every=4",
    "model={layers:1,width:32,heads:4,context:16,dropout:0.1}",
]
KILLED = """
import os
import signal

from slurmopt import current_run
from slurmopt.examples import char_transformer


class Killed(char_transformer.Training):
    def update(self, windows):
        super().update(windows)
        if [current_run().attempt, self.ranks.rank, self.step] == list(self.config.killed):
            os.kill(os.getpid(), signal.SIGKILL)


def train(config):
    char_transformer.Training = Killed
    return char_transformer.train(config)
"""
DEADLINE = 120.0


def start(workdir: Path, *overrides: str) -> tuple[subprocess.Popen[str], RunFolder]:
    """A launch of the quickstart on this machine, and the folder of its run."""
    words = ["+experiment=quickstart", "launch.backend=local", "launch.id=one", *TINY, *overrides]
    launcher = subprocess.Popen(
        [sys.executable, "-m", "slurmopt.launch", *words],
        cwd=workdir,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return launcher, RunFolder(workdir / "runs" / "quickstart" / "one")


def end(launcher: subprocess.Popen[str], run: RunFolder) -> dict[str, Any]:
    """Waits for the run and returns result.json; a launch that failed shows what it printed."""
    output, _ = launcher.communicate(timeout=DEADLINE)
    assert launcher.returncode == 0, output
    result: dict[str, Any] = json.loads(run.result.read_text())
    return result


def wait_for(what: str, look: Callable[[], Any], launcher: subprocess.Popen[str]) -> Any:
    deadline = time.monotonic() + DEADLINE
    while not (found := look()):
        assert launcher.poll() is None, launcher.communicate()[0]
        assert time.monotonic() < deadline, f"no {what} within {DEADLINE:g} s"
        time.sleep(0.05)
    return found


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], RunFolder]:
    launcher, run = start(tmp_path_factory.mktemp("uninterrupted"))
    return end(launcher, run), run


def test_the_validation_loss_falls_and_is_the_runs_result(uninterrupted: tuple[dict[str, Any], RunFolder]) -> None:
    result, run = uninterrupted
    assert result["outcome"] == "finished"
    assert result["result"]["val_loss"] < 0.8 * result["result"]["first_val_loss"]
    assert run.attempts() == [0]


def test_both_ranks_report_steps_and_only_the_first_prints(uninterrupted: tuple[dict[str, Any], RunFolder]) -> None:
    _, run = uninterrupted
    for rank in (0, 1):
        beat = heartbeat.read(run.heartbeat(0, rank))
        assert beat is not None
        assert (beat.step, beat.total_steps) == (40, 40)
        assert set(beat.metrics) == {"train_loss", "val_loss"}
    assert "step   40/40  train " in run.rank_log(0, 0).read_text()
    assert "step" not in run.rank_log(0, 1).read_text()


def test_a_stop_request_to_one_rank_costs_no_step_and_changes_no_number(
    uninterrupted: tuple[dict[str, Any], RunFolder], tmp_path: Path
) -> None:
    launcher, run = start(tmp_path)
    beat = wait_for("heartbeat of rank 1", lambda: heartbeat.read(run.heartbeat(0, 1)), launcher)
    os.kill(beat.pid, signal.SIGUSR1)
    result = end(launcher, run)
    assert run.attempts() == [0, 1]
    stopped, resumed = heartbeat.read(run.heartbeat(0, 0)), heartbeat.read(run.heartbeat(1, 1))
    assert stopped is not None
    assert resumed is not None
    assert first_words(run, 1) == f"resumed at step {stopped.step}"
    assert resumed.first_step == (stopped.step or 0) + 1
    assert result["result"] == uninterrupted[0]["result"]
    assert last_state(run) == last_state(uninterrupted[1])


def last_state(run: RunFolder) -> dict[Any, list[str]]:
    """The checksum of each tensor of the newest checkpoint: weights, the optimizer's state, random numbers."""
    store = FolderStore(run.checkpoints)
    commit = ledger.read(store).commits[0]
    assert commit.step == 40
    items = decode(store.get(commit.manifest), commit).items
    drawn = [item for item in items if item.offsets and not item.name.endswith((".python", ".numpy"))]  # torch's are
    return {(item.name, item.offsets): [segment.xxh3 for segment in item.segments] for item in drawn}


def test_a_rank_that_is_killed_at_a_random_step_changes_no_bit_of_the_end(
    uninterrupted: tuple[dict[str, Any], RunFolder], tmp_path: Path
) -> None:
    dice = random.Random(3)
    rank, step = dice.randrange(2), dice.randint(13, 39)
    (tmp_path / "killed.py").write_text(KILLED)
    launcher, run = start(
        tmp_path, "task._target_=killed.train", f"+killed=[0,{rank},{step}]", "launch.name=quickstart"
    )
    assert launcher.wait(DEADLINE) == 0  # it comes back by itself
    assert run.attempts() == [0, 1]
    resumed = int(first_words(run, 1).split()[-1])
    assert 0 < resumed < step
    assert json.loads(run.result.read_text())["result"] == uninterrupted[0]["result"]
    assert last_state(run) == last_state(uninterrupted[1])
    told = [line for attempt in (0, 1) for line in run.rank_log(attempt, 0).read_text().splitlines()]
    assert losses(told) == losses(uninterrupted[1].rank_log(0, 0).read_text().splitlines())


def first_words(run: RunFolder, attempt: int) -> str:
    return next(line for line in run.rank_log(attempt, 0).read_text().splitlines() if line.startswith("resumed at"))


def losses(lines: list[str]) -> dict[str, str]:
    """What was reported: step -> losses. A step that was done again is reported again, with the same losses."""
    found: dict[str, str] = {}
    for line in lines:
        if line.startswith("step "):
            step, said = line.partition("/")[0], line.partition("  ")[2].rpartition("  ")[0].rpartition("  ")[0]
            assert found.setdefault(step, said) == said
    return found


def fresh_clone(folder: Path) -> Path:
    """As much of the repository as the script needs before it installs anything."""
    (folder / "scripts").mkdir()
    for name in ("scripts/quickstart", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, folder / name)
    return folder / "scripts" / "quickstart"


def refused(script: Path, **variables: str) -> str:
    """What the script says when it ends with status 2, having made nothing."""
    environment = {**os.environ, **variables}
    ended = subprocess.run([script], env=environment, capture_output=True, text=True, timeout=DEADLINE)
    assert ended.returncode == 2, ended.stderr
    assert ended.stdout == ""
    assert ended.stderr.count("\n") == 1
    return ended.stderr


def test_a_python_that_is_not_there_or_too_old_is_named(tmp_path: Path) -> None:
    message = refused(fresh_clone(tmp_path), PYTHON="/no such/python3")
    assert "/no such/python3 is missing or older than Python 3.10" in message
    assert not (tmp_path / ".venv").exists()


def test_a_python_without_venv_names_the_package_to_install(tmp_path: Path) -> None:
    script = fresh_clone(tmp_path)
    (tmp_path / "ensurepip.py").write_text("raise ModuleNotFoundError('as Debian ships it')\n")
    message = refused(script, PYTHON=sys.executable, PYTHONPATH=str(tmp_path))
    assert "apt-get install python3-venv" in message
    assert not (tmp_path / ".venv").exists()


def test_a_broken_venv_is_reported_and_left_alone(tmp_path: Path) -> None:
    script = fresh_clone(tmp_path)
    (tmp_path / ".venv").mkdir()
    assert "rm -r .venv" in refused(script)
    assert list((tmp_path / ".venv").iterdir()) == []


def test_an_installed_venv_goes_straight_to_the_launch(tmp_path: Path) -> None:
    script = fresh_clone(tmp_path)
    subprocess.run([sys.executable, "-m", "venv", tmp_path / ".venv"], check=True)
    (tmp_path / "slurmopt").mkdir()
    (tmp_path / "slurmopt" / "launch.py").write_text("import sys\nprint(sys.argv[1:])\n")
    for folder in ("hydra_plugins", "conf", "sbatch_templates"):
        (tmp_path / folder).mkdir(exist_ok=True)
    (sums,) = re.findall(r"^wanted=(\$\(.*?\))$", script.read_text(), re.MULTILINE | re.DOTALL)
    wanted = subprocess.run(["bash", "-c", f"echo {sums}"], cwd=tmp_path, capture_output=True, check=True)
    (tmp_path / ".venv" / "slurmopt-installed").write_bytes(wanted.stdout)
    ended = subprocess.run([script, "train.steps=3", "a b"], cwd="/", capture_output=True, text=True, timeout=DEADLINE)
    assert ended.stdout == "['+experiment=quickstart', 'train.steps=3', 'a b']\n"
    assert "installing" not in ended.stderr
    assert "try next" in ended.stderr
