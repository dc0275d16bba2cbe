"""`slurmopt tune batch` on this machine: trials of a real training, each a process of its own."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from json_answer import data_of
from local_sweep import end_what_is_left, slurmopt, write_project
from private_cluster import wait_until

TRAIN = """
import os, time
from slurmopt import progress

def main(config):
    if config.batch_size > config.get("typo_above", 10**9):
        raise KeyError("no such column: labels")
    if config.batch_size > config.breaks_at:
        raise MemoryError("the batch is too large")
    held = bytearray(os.urandom(1)) * (config.batch_size * 100_000)
    for step in range(config.train_steps):
        time.sleep(0.001 * (4 + config.batch_size / 16))  # half as fast as it can be at 64
        progress(step, samples=config.batch_size if config.get("told") is None else float(config.told))
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


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a search of two sizes."""
    place = tmp_path_factory.mktemp("search")
    write_project(place, TRAIN, EXPERIMENT)
    done = slurmopt("tune", "batch", "+experiment=mine", "--local", "--sizes", "8-16", "--steps", "4", cwd=place)
    end_what_is_left(place)
    assert done.returncode == 0, done.stderr
    return place


@pytest.fixture
def finished(once: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(once, tmp_path / "copy"))


def tune(*words: str, status: int = 0):  # type: ignore[no-untyped-def]
    done = slurmopt("tune", "batch", *words)
    end_what_is_left(Path.cwd())
    assert done.returncode == status, done.stderr
    return done


def test_it_finds_the_largest_and_the_smallest_fast_size_and_the_launch_for_it() -> None:
    done = tune("+experiment=mine", "batch_size=16", "--local", "--sizes", "32-1024", "--plot", "curve.html")
    found = data_of(tune("--read", "mine", "--json").stdout)
    assert tune("--read", "mine").stdout == done.stdout
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


def test_a_failure_that_is_not_for_want_of_memory_is_no_limit_and_ends_the_search() -> None:
    done = tune("+experiment=mine", "--local", "+typo_above=30", "--json", status=1)
    told = json.loads(done.stdout)
    assert [trial["error"] is None for trial in told["data"]["trials"]] == [True, True, False]
    assert (told["data"]["largest"], told["data"]["best"], told["data"]["overrides"]) == (None, None, [])
    assert "failed, and not for want of memory: KeyError: 'no such column: labels'; slurmopt logs mine/" in done.stderr


@pytest.mark.parametrize("told", ["nan", "-1", "inf"])
def test_samples_that_are_no_number_of_samples_do_not_count(told: str) -> None:
    done = tune("+experiment=mine", "--local", "--sizes", "8-16", "--steps", "4", f"+told='{told}'", "--json")
    found = data_of(done.stdout)
    assert all(0 < trial["rate"] < 1e6 for trial in found["trials"])  # the size counts, as without samples
    assert found["state"] == "ended"


def test_a_search_that_was_cancelled_has_no_answer() -> None:
    words = ("launch", "-m", "+experiment=mine", "batch_size=range(8,512,8)", "sweep.search=batch_size")
    done = slurmopt(*words, "sweep.trials=8", "sweep.steps=2000", "launch.backend=local", "launch.wait=false")
    assert done.returncode == 0, done.stderr
    running = slurmopt("tune", "batch", "--read", "mine", "--json")
    assert (running.returncode, data_of(running.stdout)["state"]) == (1, "running")
    assert "has not ended: slurmopt status mine/" in running.stderr
    slurmopt("cancel", "mine")
    wait_until(lambda: data_of(slurmopt("status", "mine", "--json").stdout)[0]["state"] == "cancelled", 30, "cancelled")
    stopped = slurmopt("tune", "batch", "--read", "mine", "--json")
    end_what_is_left(Path.cwd())
    found = data_of(stopped.stdout)
    assert (stopped.returncode, found["state"], found["largest"]) == (1, "stopped", None)
    assert "was ended before it had an answer; to go on: slurmopt retry mine/" in stopped.stderr


@pytest.mark.parametrize("value", ["0", "-1", "NaN", "1e300", "1" + "0" * 400, '"fast"', "null"])
@pytest.mark.parametrize("name", ["tuned_rate", "tuned_memory"])
def test_records_that_somebody_has_edited_raise_nothing(finished: Path, name: str, value: str) -> None:
    for journal in finished.glob("runs/mine/*/tasks/*/events.jsonl"):
        journal.write_text(re.sub(rf'"{name}": [^,}}]+', f'"{name}": {value}', journal.read_text()))
    done = slurmopt("tune", "batch", "--read", "mine", "--json", cwd=finished)
    assert done.returncode in (0, 1)
    assert "Traceback" not in done.stderr
    assert all(
        len(line) < 300 for line in slurmopt("tune", "batch", "--read", "mine", cwd=finished).stdout.splitlines()
    )


def test_overrides_that_somebody_has_edited_are_one_line(finished: Path) -> None:
    (overrides,) = finished.glob("runs/mine/*/overrides.yaml")
    overrides.write_text('- "+x=\\e[31mred\nnew"\n')
    assert "\x1b" not in slurmopt("tune", "batch", "--read", "mine", cwd=finished).stdout
    overrides.write_text("")
    assert (
        "next      launch the experiment with batch_size="
        in slurmopt("tune", "batch", "--read", "mine", cwd=finished).stdout
    )


def test_a_training_that_ends_too_early_is_told() -> None:
    done = tune("+experiment=mine", "--local", "train_steps=5", status=1)
    assert "the training ended before its steps were measured; make the trials shorter (--steps)" in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["+experiment=mine", "--key", "size"], "size is not there in the config; valid: --key with the key"),
        (["+experiment=mine", "--key", "task"], "task is {"),
        (["+experiment=mine", "--sizes", "8"], "--sizes '8' is not valid; valid: LEAST-MOST, such as 8-1024"),
        (["+experiment=mine", "--sizes", "16-8"], "--sizes 16-8: the least comes first"),
        (["+experiment=mine", "--steps", "1"], "--steps 1 is not valid; valid: 2 or more"),
        (["+experiment=mine", "--plot", "curve.gif"], "valid: a name that ends in .html"),
        (
            ["+experiment=mine", "--local", "resources.nodes=2"],
            "on this machine trials have one node, and resources.nodes is 2; valid: resources.nodes=1, or Slurm",
        ),
        (["+experiment=mine", "task._target_=null", "task.command='true x'"], "ends trials from inside progress()"),
        (["+experiment=mine", "--local", "launch.dry_run=true"], "launch.dry_run has no trials to answer with"),
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
