"""Real runs on a GPU of this machine: measured, traced, profiled, and out of memory."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from json_answer import data_of
from launching.local_sweep import end_what_is_left, write_project
from private_cluster import clean_environment, wait_until

from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.series import series

TRAIN = """
import os
import torch
from torch import nn
from slurmopt import progress, stop_requested
from slurmopt.training import Steps

KEPT = []


def made(width):
    torch.manual_seed(0)
    layers = [module for _ in range(4) for module in (nn.Linear(width, width), nn.GELU())]
    model = nn.Sequential(*layers).cuda()
    return model, Steps(model, torch.optim.AdamW(model.parameters(), fused=True), precision="bf16", clip=1.0)


def main(config):
    model, steps = made(4096)
    x = torch.randn(4096, 4096, device="cuda")
    while not (os.path.exists("enough") or stop_requested()):
        steps.run(lambda x: (model(x) - x).square().mean(), x)
        if config.leaks:
            KEPT.append(torch.empty(1000 + steps.count, device="cuda"))  # the leak
        progress(steps.count, samples=4096)
        steps.taken


def short(config):
    model, steps = made(512)
    x = torch.randn(64, 512, device="cuda")
    for _ in range(20):
        steps.run(lambda x: (model(x) - x).square().mean(), x)
        progress(steps.count)


def full(config):
    torch.cuda.set_per_process_memory_fraction(0.05)
    while True:
        KEPT.append(torch.empty(2**28, dtype=torch.uint8, device="cuda"))  # the last straw


def sized(config):
    torch.cuda.set_per_process_memory_fraction(0.1)
    model, steps = made(256)
    for _ in range(config.train_steps):
        x = torch.randn(config.batch_size, 16384, 256, device="cuda")
        steps.run(lambda x: (model(x) - x).square().mean(), x)
        progress(steps.count, samples=config.batch_size)
        steps.taken
"""
EXPERIMENT = """# @package _global_
leaks: false
batch_size: 8
train_steps: 1000
task: {_target_: train.main}
resources: {gpus_per_node: 1}
health: {enabled: false}
launch: {backend: local, wait: false}
"""


def line_of(comment: str) -> int:
    return next(number for number, text in enumerate(TRAIN.splitlines(), 1) if text.endswith(f"# {comment}"))


class Place:
    """A folder with runs in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        write_project(folder, TRAIN, EXPERIMENT)
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        states = {name: str(folder / name) for name in ("XDG_CACHE_HOME", "XDG_STATE_HOME")}
        self._environment = {**clean_environment(), **states, "PATH": path}

    def slurmopt(self, *words: str, status: int = 0, timeout: float = 120) -> str:
        argv = [sys.executable, "-m", "slurmopt", *words]
        done = subprocess.run(
            argv, cwd=self.folder, env=self._environment, capture_output=True, text=True, timeout=timeout, check=False
        )
        assert done.returncode == status, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout

    def launch(self, name: str, *words: str) -> RunFolder:
        answer = self.slurmopt("launch", "+experiment=mine", f"launch.name={name}", "launch.json=true", *words)
        return RunFolder(Path(data_of(answer)["run"]))

    def wait_for_end(self, run: RunFolder) -> dict[str, Any]:
        wait_until(run.result.exists, 90, f"{run.path} ends", lambda: self.log(run))
        found = json.loads(run.result.read_text())
        assert isinstance(found, dict)
        return found

    def log(self, run: RunFolder) -> str:
        log = run.rank_log(0, 0)
        return log.read_text() if log.exists() else ""

    def step(self, run: RunFolder) -> int:
        (status,) = data_of(self.slurmopt("status", str(run.path), "--json"))
        return int(status["step"] or 0)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("gpu")
    try:
        yield Place(folder)
    finally:
        (folder / "enough").touch()
        end_what_is_left(folder)


@pytest.fixture(scope="module")
def running(place: Place) -> RunFolder:
    run = place.launch("mine")
    wait_until(lambda: place.step(run) > 50, 90, "steps", lambda: place.log(run))
    return run


def test_a_trace_says_in_words_what_the_gpu_does(place: Place, running: RunFolder) -> None:
    told = data_of(place.slurmopt("profile", "mine", "--steps", "5", "--shapes", "--json"))
    assert "error" not in told["ranks"]["0"]
    found = data_of(place.slurmopt("profile", "show", "mine", "--json"))
    (rank,) = found["ranks"]
    assert rank["device"] not in (None, "cpu")
    assert rank["shares"]["compute"] > 0.5 * rank["seconds"]
    text = place.slurmopt("profile", "show", "mine")
    print(text)
    assert "tensor" in text.lower()
    assert {(each["m"], each["n"], each["k"], each["type"]) for each in rank["products"]} == {
        (4096, 4096, 4096, "bf16")
    }
    assert all(0.2 < each["rate"] / each["limit"] <= 1 for each in rank["products"])
    assert "of what the GPU can do in bf16" in text
    assert "TOP KERNELS" in text


def test_the_sampler_measures_the_gpu(place: Place, running: RunFolder) -> None:
    path = running.recent_series(0, os.uname().nodename)

    def power() -> list[float]:
        found = series.read(path)
        return [] if found is None else [value for value in found.values.get("gpu0.power", []) if value is not None]

    wait_until(lambda: len(power()) > 2, 90, "measured rows", lambda: path.read_text() if path.exists() else "")
    found = series.read(path)
    assert found is not None
    values = {
        name: next((value for value in each[::-1] if value is not None), None) for name, each in found.values.items()
    }
    print(json.dumps(values), found.absent, found.facts)
    assert (values["gpu0.power"] or 0) > 100
    assert (values["gpu0.util"] or 0) > 50
    assert (values["gpu0.memory"] or 0) > 2**30


def test_a_leak_on_the_gpu_is_named_by_its_line(place: Place) -> None:
    run = place.launch("leaks", "leaks=true")
    wait_until(lambda: place.step(run) > 20, 90, "steps", lambda: place.log(run))
    text = place.slurmopt("profile", "memory", "leaks")
    print(text)
    assert text.count("behind in each step") == 1
    assert f"train.py:{line_of('the leak')} in main leaves" in text
    assert "the GPU is full in" in text
    assert "of the GPU, in `" in text
    assert list(run.traces.glob("*/rank-0.pickle"))
    place.slurmopt("cancel", "leaks")


def test_a_run_out_of_memory_names_the_line_that_holds_it(place: Place) -> None:
    run = place.launch("full", "task._target_=train.full", "profile.allocations=true")
    assert place.wait_for_end(run)["outcome"] == "user error"
    assert "slurmopt profile memory RUN --stored" in place.log(run)
    text = place.slurmopt("profile", "memory", "full", "--stored")
    print(text)
    assert "the GPU was full: torch had allocated" in text
    assert f"the line that holds most GPU memory is train.py:{line_of('the last straw')} in full" in text


def test_the_batch_size_that_fits_the_gpu_is_found(place: Place) -> None:
    words = ("tune", "batch", "+experiment=mine", "task._target_=train.sized", "--local", "--json")
    told = data_of(place.slurmopt(*words, timeout=280))
    print(told)
    tried = {trial["size"]: trial for trial in told["trials"]}
    assert tried[told["largest"]]["fits"]
    assert told["best"] <= told["largest"]


@pytest.mark.skipif(shutil.which("ncu") is None, reason="NOT TESTED: ncu is not installed")
def test_kernels_of_a_run_are_measured_by_ncu(place: Place) -> None:
    run = place.launch("ncu", "task._target_=train.short", "task.profiler=ncu")
    assert place.wait_for_end(run)["outcome"] == "finished", place.log(run)
    assert list(run.profiles(0).glob("*.ncu-rep")), place.log(run)
