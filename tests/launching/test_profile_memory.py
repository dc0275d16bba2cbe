"""The memory of a running function, recorded on this machine."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from json_answer import data_of
from local_sweep import end_what_is_left, slurmopt, write_project
from private_cluster import wait_until

TRAIN = """
import time
import torch
from slurmopt import progress, stop_requested

KEPT = []

def main(config):
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.ReLU())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(1, 20_000):
        model(torch.ones(512, 64)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        KEPT.append(bytes(20_000 + step))  # line 16
        KEPT.append(torch.zeros(10_000 + step))  # line 17
        progress(step)
        time.sleep(0.05)
        if stop_requested():
            break


def full(config):
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")


def silent(config):
    while not stop_requested():
        time.sleep(0.05)
"""
PLAIN = """
import signal
import torch
print("runs", flush=True)
signal.pause()
"""
EXPERIMENT = """# @package _global_
task: {_target_: train.main}
launch: {backend: local, wait: false}
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with four runs: one leaks, one is a command, one reports no steps, one had no GPU memory left."""
    place = tmp_path_factory.mktemp("memory")
    write_project(place, TRAIN, EXPERIMENT)
    (place / "plain.py").write_text(PLAIN)
    runs = {
        "mine": ("+experiment=mine",),
        "command": (f"task.command=[{sys.executable},plain.py]", "launch.backend=local", "launch.wait=false"),
        "silent": ("+experiment=mine", "task._target_=train.silent"),
        "full": ("+experiment=mine", "task._target_=train.full"),
    }
    try:
        for name, words in runs.items():
            done = slurmopt("launch", f"launch.name={name}", *words, cwd=place)
            assert done.returncode == 0, done.stderr
        wait_until(lambda: (status(place, "mine")["step"] or 0) > 20, 60, "steps")
        wait_until(lambda: status(place, "full")["state"] == "failed", 60, "the end of a run")
        wait_until(lambda: "runs" in slurmopt("logs", "command", cwd=place).stdout, 60, "the command runs")
        yield place
        for name in ("mine", "command", "silent"):
            slurmopt("cancel", name, cwd=place)
    finally:
        end_what_is_left(place)


def status(place: Path, name: str) -> dict[str, Any]:
    (found,) = data_of(slurmopt("status", name, "--json", cwd=place).stdout)
    return dict(found)


def test_a_leak_is_named_by_its_line(place: Path) -> None:
    done = slurmopt("profile", "memory", "mine", cwd=place)
    assert done.returncode == 0, done.stderr
    leaks = [line for line in done.stdout.splitlines() if "behind in each step" in line]
    assert len(leaks) == 2, done.stdout
    assert re.match(r"- train\.py:17 leaves (39|4\d)\.\d KiB of", leaks[0])  # more with each step
    assert "of main memory in tensors" in leaks[0]
    assert re.match(r"- train\.py:16 leaves (19|2\d)\.\d KiB of", leaks[1])
    assert "of Python objects" in leaks[1]
    stored = slurmopt("profile", "memory", "mine", "--stored", "--json", cwd=place)
    record = data_of(stored.stdout)["ranks"]["0"]["record"]
    phases = {row["name"] for row in record["phases"]}
    assert {"forward", "loss and backward", "optimizer"} <= phases
    assert record["host"]["pss"][1] > 0


def test_a_run_that_ended_without_memory_has_a_record(place: Path) -> None:
    done = slurmopt("profile", "memory", "full", "--stored", "--json", cwd=place)
    found = data_of(done.stdout)
    assert found["reason"] == "out-of-memory"
    assert found["ranks"]["0"]["record"]["out_of_memory"] == "CUDA out of memory. Tried to allocate 2.00 GiB"


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("mine", "--steps", "0"), 2, "--steps"),
        (("mine", "--ranks", "7"), 2, "--ranks"),
        (("mine", "--capture", "a9-none"), 2, "profile memory: mine/"),
        (("full",), 2, "only a running run can be asked; --stored shows the record"),
        (("silent",), 2, "reports no steps yet"),
        (("silent", "--stored"), 2, "has no record of its memory; while it runs, slurmopt profile memory silent"),
        (("nobody",), 2, "nobody"),
    ],
)
def test_what_cannot_be_recorded_is_one_line(place: Path, words: tuple[str, ...], code: int, told: str) -> None:
    done = slurmopt("profile", "memory", *words, cwd=place)
    assert done.returncode == code
    lines = [line for line in done.stderr.splitlines() if "error:" in line]
    assert len(lines) == 1, done.stderr
    assert told in lines[0]
    assert "Traceback" not in done.stderr


def test_the_memory_of_a_command_is_refused(place: Path) -> None:
    done = slurmopt("profile", "memory", "command", cwd=place)
    assert done.returncode == 2, done.stderr
    assert "reports no steps yet" in done.stderr
