"""`slurmopt tune batch` on this machine: trials of a real training, each a process of its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from json_answer import data_of
from local_sweep import end_what_is_left, slurmopt, write_project

TRAIN = """
import os, time
from slurmopt import progress

def main(config):
    if config.batch_size > config.breaks_at:
        raise MemoryError("the batch is too large")
    held = bytearray(os.urandom(1)) * (config.batch_size * 100_000)
    for step in range(config.train_steps):
        time.sleep(0.001 * (4 + config.batch_size / 16))  # half as fast as it can be at 64
        progress(step, samples=config.batch_size)
"""
EXPERIMENT = """# @package _global_
task: {_target_: train.main}
batch_size: 64
breaks_at: 600
train_steps: 1000
"""


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_project(tmp_path, TRAIN, EXPERIMENT)
    monkeypatch.chdir(tmp_path)


def tune(*words: str, status: int = 0):  # type: ignore[no-untyped-def]
    done = slurmopt("tune", "batch", *words)
    end_what_is_left(Path.cwd())
    assert done.returncode == status, done.stderr
    return done


def test_it_finds_the_largest_and_the_smallest_fast_size_and_the_launch_for_it() -> None:
    done = tune("+experiment=mine", "--local", "--sizes", "32-1024", "--plot", "curve.html")
    found = data_of(tune("--read", "mine", "--json").stdout)
    tried = {trial["size"]: trial for trial in found["trials"]}
    assert "the batch is too large" in tried[1024]["error"]
    assert found["largest"] == max(size for size, trial in tried.items() if trial["fits"])
    assert 448 <= found["largest"] <= 600
    best = tried[found["best"]]
    rates = [trial["rate"] for trial in found["trials"] if trial["rate"] is not None]
    assert best["rate"] >= 0.95 * max(rates)
    assert all(tried[size]["rate"] < 0.95 * max(rates) for size in tried if size < found["best"])
    assert tried[32]["memory"] < tried[found["largest"]]["memory"] < tried[32]["limit"]
    assert found["overrides"] == [f"batch_size={found['best']}"]
    assert f"slurmopt launch +experiment=mine batch_size={found['best']}" in done.stdout
    assert f"largest   {found['largest']}: " in done.stdout
    assert str(found["largest"]) in Path("curve.html").read_text()
    states = data_of(slurmopt("results", "mine", "--json").stdout)["states"]
    assert set(states) == {"finished", "failed"}  # trials that were not needed are no failures
    assert states["failed"] == sum(trial["error"] is not None for trial in found["trials"])


def test_a_smallest_size_that_does_not_fit_ends_it_with_the_error() -> None:
    done = tune("+experiment=mine", "--local", "breaks_at=1", "--json", status=1)
    told = json.loads(done.stdout)
    assert [trial["size"] for trial in told["data"]["trials"]] == [8]
    assert (told["data"]["largest"], told["data"]["overrides"]) == (None, [])
    assert "the smallest size, batch_size=8, failed: MemoryError: the batch is too large" in done.stderr


def test_a_training_that_ends_too_early_is_told() -> None:
    done = tune("+experiment=mine", "--local", "train_steps=5", status=1)
    assert "the training ended before its steps were measured; give fewer: --steps" in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["+experiment=mine", "--key", "size"], "size is not there in the config; valid: --key with the key"),
        (["+experiment=mine", "--key", "task"], "task is {"),
        (["+experiment=mine", "--sizes", "8"], "--sizes '8' is not valid; valid: LEAST-MOST, such as 8-1024"),
        (["+experiment=mine", "--sizes", "16-8"], "--sizes 16-8: the least comes first"),
        (["+experiment=mine", "--steps", "1"], "--steps 1 is not valid; valid: 2 or more"),
        (["+experiment=mine", "--plot", "curve.gif"], "valid: a name that ends in .html"),
        (["+experiment=mine", "--local", "resources.nodes=2"], "share one node's array task"),
        (["+experiment=mine", "task._target_=null", "task.command='true x'"], "ends trials from inside progress()"),
        (["--read", "mine", "lr=1"], "--read launches nothing"),
        ([], "no experiment; valid: slurmopt tune batch +experiment=NAME"),
    ],
)
def test_bad_input_is_one_line_and_launches_nothing(words: list[str], said: str) -> None:
    done = tune(*words, status=2)
    errors = [line for line in done.stderr.splitlines() if line.startswith("slurmopt: error")]
    assert len(errors) == 1
    assert said in errors[0]
    assert "Traceback" not in done.stderr
    assert not Path("runs").exists()
