"""`slurmopt tune loader` on this machine: trials of a real training, each a process of its own, with real workers."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from json_answer import data_of
from local_sweep import end_what_is_left, slurmopt, write_project

TRAIN = """
import time, torch
from slurmopt import progress
from slurmopt.training import ResumableSampler, loader

class Samples:
    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        time.sleep(0.003)
        return torch.tensor([float(index)])

def main(config):
    sampler = ResumableSampler(100_000, batch_size=8)
    further = {name: config[name] for name in ("prefetch_factor", "pin_memory") if name in config}
    batches = loader(Samples(), batch_sampler=sampler, num_workers=config.num_workers, **further)
    for step, batch in enumerate(sampler.track(batches)):
        time.sleep(0.01)
        progress(step, samples=8)
"""
EXPERIMENT = """# @package _global_
task: {_target_: train.main}
num_workers: 1
"""


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_project(tmp_path, TRAIN, EXPERIMENT)
    monkeypatch.chdir(tmp_path)


def tune(*words: str, status: int = 0) -> subprocess.CompletedProcess[str]:
    done = slurmopt("tune", "loader", *words)
    end_what_is_left(Path.cwd())
    assert done.returncode == status, done.stderr
    return done


def test_it_computes_the_workers_and_confirms_them() -> None:
    done = tune("+experiment=mine", "--local", "--steps", "60")
    found = data_of(tune("--read", "mine", "--json").stdout)
    first = found["trials"][0]
    assert first["workers"] == 0
    assert 0.024 <= first["service"] <= first["wait"] * 1.2  # eight samples of 3 ms, in the training itself
    assert first["computed"] < 0.5 * first["service"]  # it waits
    assert first["step"] >= 0.01
    rates = {trial["workers"]: trial["rate"] for trial in found["trials"]}
    assert rates[found["best"]] >= 0.97 * max(rates.values())
    assert found["best"] >= 2
    assert found["gain"] > 0.5
    assert found["overrides"] == [f"num_workers={found['best']}"]
    assert f"slurmopt launch +experiment=mine num_workers={found['best']}" in done.stdout


def test_a_prefetch_factor_is_tried_where_the_step_still_waits() -> None:
    words = ("+prefetch_factor=6", "+pin_memory=false", "--steps", "60", "--most", "2")
    found = data_of(tune("+experiment=mine", "--local", "--json", *words).stdout)
    tried = [(trial["workers"], trial["prefetch"], trial["pinned"]) for trial in found["trials"]]
    assert tried[:2] == [(0, None, False), (2, None, False)]
    assert (2, 4, False) in tried  # two workers are not enough
    rates = {trial["prefetch"]: trial["rate"] for trial in found["trials"] if trial["workers"] == 2}
    assert found["best"] == 2
    fast = [factor for factor in (None, 4, 8) if rates.get(factor, 0.0) >= 0.97 * max(rates.values())]
    assert found["prefetch"] == fast[0]  # the smallest
    assert found["prefetch_gain"] == pytest.approx(max(rates[4], rates.get(8, 0)) / rates[None] - 1)
    assert (found["pinned"], found["pin_gain"]) == (None, None)  # no GPU
    assert found["overrides"] == ["num_workers=2", f"prefetch_factor={found['prefetch'] or 'null'}", "pin_memory=false"]
    assert found["key"] == "num_workers"
    shown = tune("--read", "mine").stdout
    assert "WORKERS  PREFETCH  PINNED" in shown
    assert f"prefetch  {found['prefetch'] or '2, torch'}" in shown
    assert "; a larger one: " in shown
    factor = found["prefetch"] or "null"
    assert f"slurmopt launch +experiment=mine num_workers=2 +prefetch_factor={factor} +pin_memory=false" in shown


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["+experiment=mine", "--prefetch-key", "ahead"], "--prefetch-key: ahead is not there in the config"),
        (["+experiment=mine", "--pin-key", "pins"], "--pin-key: pins is not there in the config"),
        (["+experiment=mine", "+prefetch_factor=many"], "prefetch_factor is 'many' in the config; valid: a number or"),
        (["+experiment=mine", "+pin_memory=2"], "pin_memory is 2 in the config; valid: true or false"),
        (["+experiment=mine", "--key", "workers"], "workers is not there in the config; valid: --key with the key"),
        (["+experiment=mine", "num_workers=-1"], "num_workers is -1 in the config"),
        (["+experiment=mine", "--steps", "3"], "--steps 3 is not valid; valid: 8 or more"),
        (["+experiment=mine", "--most", "0"], "--most 0 is not valid; valid: 1 or more"),
        (["--read", "mine", "lr=1"], "--read launches nothing"),
        ([], "no experiment; valid: slurmopt tune loader +experiment=NAME"),
    ],
)
def test_bad_input_is_one_line_and_launches_nothing(words: list[str], said: str) -> None:
    done = tune(*words, status=2)
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not Path("runs").exists()


def test_a_training_that_fails_says_why() -> None:
    Path("train.py").write_text("def main(config):\n    raise ValueError('no data here')\n")
    done = tune("+experiment=mine", "--local", status=1)
    assert "tune loader: no trial was measured: ValueError: no data here" in done.stderr
