"""What real ranks, commands and their children say they spent their time on, in their heartbeats."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest
from job.harness import REPOSITORY, Runner, wait_for

from slurmopt.run_folder.heartbeat import Heartbeat

needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="NOT TESTED: torch is not installed")
FUNCTION = ("--function", "train.main")
COMMAND = ("--", sys.executable, "train.py")


def ended(runner: Runner, rank: int = 0) -> Heartbeat:
    """The last heartbeat of a rank: what it spent sums to its age."""
    beat = runner.beat(rank)
    assert beat is not None
    assert beat.outcome is not None, runner.log(rank)
    # By two clocks, and the file is written a moment after the time was read.
    assert sum(beat.spent.values()) == pytest.approx(beat.time - beat.started, abs=1)
    return beat


ENDLESS = """
    time.sleep(0.3)  # a child tells of its steps five times a second at most
    progress(11)
    print("now", flush=True)
    time.sleep(600)
"""
LOOP = """
import time
from slurmopt import phase, progress, watch

def slow(count):
    for number in range(count):
        time.sleep(0.04)
        yield number

def main(config=None):
    time.sleep(0.2)
    for step in watch(slow(10)):
        time.sleep(0.02)
        progress(step + 1, 10, tokens=100, samples=2, loss=0.5)
    with phase("evaluation"):
        for _ in watch(slow(2)):
            time.sleep(0.1)

if __name__ == "__main__":
    main()
"""


@pytest.mark.parametrize("task", [FUNCTION, COMMAND], ids=["function", "command"])
def test_a_slow_loader_shows_as_input(runner: Runner, task: tuple[str, ...]) -> None:
    runner.lone_function("train", LOOP)
    assert runner.run(1, *task) == 0, runner.log(0)
    beat = ended(runner)
    assert beat.spent["input"] >= 12 * 0.04
    assert beat.spent["evaluation"] >= 0.2
    assert beat.spent["running"] >= 9 * 0.02
    assert beat.spent["first step"] >= 0.22
    assert beat.counted == {"steps": 10, "tokens": 1000, "samples": 20}
    assert beat.metrics == {"tokens": 100, "samples": 2, "loss": 0.5}


@pytest.mark.parametrize("task", [FUNCTION, COMMAND], ids=["function", "command"])
def test_what_never_reports_a_step_is_running(runner: Runner, task: tuple[str, ...]) -> None:
    runner.module(
        "train", "import time\ndef main(config=None):\n    time.sleep(0.5)\nif __name__ == '__main__': main()\n"
    )
    assert runner.run(1, *task) == 0
    beat = ended(runner)
    assert beat.spent["running"] >= 0.5
    assert "first step" not in beat.spent
    assert (beat.step, beat.counted) == (None, {})


def test_what_fails_before_its_first_step_is_not(runner: Runner) -> None:
    runner.lone_function("train", "import time\ndef main(config):\n    time.sleep(0.5)\n    raise ValueError('bad')\n")
    runner.run(1, *FUNCTION)
    assert ended(runner).spent["first step"] >= 0.5


def test_what_a_killed_command_had_measured_is_kept(runner: Runner) -> None:
    runner.module("train", LOOP + ENDLESS)
    process = runner.start(1, "--heartbeat", "0.3", *COMMAND)
    runner.wait_for_log(0, "now")
    wait_for(lambda: (beat := runner.beat(0)) and beat.counted.get("steps") == 11, "the last step")
    assert (beat := runner.beat(0)) is not None
    assert beat.step == 11
    assert beat.spent["input"] >= 0.4
    process.kill()
    runner.finish(process)


def test_stages_of_a_shell_script_are_added_up(runner: Runner) -> None:
    runner.module("train", LOOP)
    script = f"{sys.executable} train.py && sleep 0.3 && {sys.executable} train.py"
    assert runner.run(1, "--", "sh", "-c", script) == 0, runner.log(0)
    beat = ended(runner)
    assert beat.counted == {"steps": 20, "tokens": 2000, "samples": 40}
    assert beat.spent["input"] >= 24 * 0.04
    assert beat.spent["first step"] >= 2 * 0.22 + 0.3


FORKS = """
import multiprocessing, os, time
from torch.utils.data import DataLoader, Dataset
from slurmopt import phase, progress, watch

class Slow(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        with phase("decoding"):  # in the workers
            for _ in watch(iter([1])):
                time.sleep(0.05)
        return index

def helper():
    for _ in watch(iter(range(20))):
        time.sleep(0.05)

def main(config=None):
    other = multiprocessing.get_context("fork").Process(target=helper)
    other.start()
    loader = watch(DataLoader(Slow(), batch_size=1, num_workers=2))
    for epoch in range(2):
        for step, _ in enumerate(loader, 1 + 8 * epoch):
            progress(step, samples=1)
    other.join()

if __name__ == "__main__":
    main()
"""


@needs_torch
@pytest.mark.parametrize("task", [FUNCTION, COMMAND], ids=["function", "command"])
def test_workers_and_forked_helpers_are_not_counted(runner: Runner, task: tuple[str, ...]) -> None:
    runner.lone_function("train", FORKS)
    assert runner.run(1, *task) == 0, runner.log(0)
    beat = ended(runner)
    assert beat.counted == {"steps": 16, "samples": 16}
    assert beat.spent["input"] >= 0.3  # two workers, 0.8 s of work each
    assert "decoding" not in beat.spent
    assert "Error" not in runner.log(0)


STALL = """
import time
import torch
from slurmopt import current_run, progress
from slurmopt.checkpoint import Checkpointer

class Slow:
    def state_dict(self):
        time.sleep(0.2)
        return {"weight": torch.zeros(10)}

    def load_state_dict(self, state):
        time.sleep(0.3)

def main(config=None):
    state = {"slow": Slow()}
    with Checkpointer({"shared": {"every": 10**6}}, current_run()) as checkpointer:
        step = checkpointer.restore(state)
        for step in range(step + 1, step + 6):
            time.sleep(0.02)
            progress(step)
            checkpointer.save(step, state, force=step % 2 == 1)
"""


@needs_torch
@pytest.mark.parametrize("task", [FUNCTION, COMMAND], ids=["function", "command"])
def test_a_save_that_blocks_and_a_restore_show_as_such(runner: Runner, task: tuple[str, ...]) -> None:
    runner.lone_function("train", STALL + "\nif __name__ == '__main__':\n    main()\n")
    assert runner.run(1, *task) == 0, runner.log(0)
    beat = ended(runner)
    assert beat.spent["checkpoint"] >= 3 * 0.2
    assert beat.counted == {"steps": 5}
    if task == COMMAND:
        runner.attempt = 1
        assert runner.run(1, *task) == 0, runner.log(0)
        assert ended(runner).spent["restoring"] >= 0.3


DDP = """
import os, time
import torch
from torch import nn
from slurmopt import progress, rank_facts

class Delay(torch.autograd.Function):
    @staticmethod
    def forward(context, value):
        return value.clone()

    @staticmethod
    def backward(context, gradient):
        if rank_facts().rank == 1:
            time.sleep(0.02)
        return gradient

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(8, 8), nn.Linear(8, 1)

    def forward(self, value):
        return self.last(Delay.apply(self.first(value)))

def main(config=None):
    model = nn.parallel.DistributedDataParallel(Model())
    for step in range(1, 15):
        model(torch.ones(2, 8)).sum().backward()
        progress(step)
        if step == 12:
            time.sleep(1.1)  # it is read once a second
"""


@needs_torch
def test_the_slow_rank_of_ddp_has_the_longest_backward(runner: Runner) -> None:
    runner.module("train", DDP)
    assert runner.run(2, *FUNCTION) == 0, runner.log(0)
    fast, slow = (ended(runner, rank).counted for rank in (0, 1))
    for counted in (fast, slow):
        assert counted["ddp_sampled"] >= 1
        assert counted["ddp_communication"] >= counted["ddp_exposed"] >= 0
    each_fast, each_slow = (
        {name: value / counted["ddp_sampled"] for name, value in counted.items()} for counted in (fast, slow)
    )
    assert each_slow["ddp_backward"] >= 0.02
    assert each_fast["ddp_backward"] < each_slow["ddp_backward"]
    assert each_fast["ddp_exposed"] > each_slow["ddp_exposed"]


@needs_torch
def test_torchruns_first_worker_speaks_for_its_node(runner: Runner) -> None:
    group = "dist.init_process_group('gloo')\nmain()\ndist.destroy_process_group()\n"
    runner.module("train", f"import torch.distributed as dist\nimport torch.distributed.nn\n{DDP}\n{group}")
    words = ("--per", "node", "--", sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "train.py")
    assert runner.run(1, *words) == 0, runner.log(0)
    beat = ended(runner)
    assert beat.counted["steps"] == 14
    assert beat.counted["ddp_sampled"] >= 1


FLOPS = """
import slurmopt
def main(config=None):
    slurmopt.progress(1, samples=4)
    slurmopt.flops_per_sample(1e9, hardware=1.25e9)
    for step in range(2, 6):
        slurmopt.progress(step, samples=4)
"""


def test_operations_are_counted_once_told(runner: Runner) -> None:
    runner.module("train", FLOPS)
    assert runner.run(1, *FUNCTION) == 0, runner.log(0)
    assert ended(runner).counted == {"steps": 5, "samples": 20, "flops": 2e10, "hardware_flops": 2.5e10}


def test_a_rank_names_its_gpus(runner: Runner, tmp_path: Path) -> None:
    """Simulated: an NVML with one GPU, which takes a moment to answer, and another that it does not know."""
    (tmp_path / "stub").mkdir()
    (tmp_path / "stub" / "pynvml.py").write_text(
        "import time\nclass NVMLError(Exception):\n    pass\n"
        "def nvmlInit():\n    time.sleep(0.3)\ndef nvmlShutdown():\n    pass\n"
        "def nvmlDeviceGetHandleByIndex(index):\n    return index\n"
        "def nvmlDeviceGetUUID(handle):\n    if handle:\n        raise NVMLError\n    return 'GPU-aa'\n"
    )
    runner.environment = {"CUDA_VISIBLE_DEVICES": "0,1,GPU-bb", "PYTHONPATH": f"{REPOSITORY}:{tmp_path / 'stub'}"}
    process = runner.start(1, "--heartbeat", "0.3", "--", "sleep", "600")
    wait_for(lambda: (beat := runner.beat(0)) and beat.gpus == ["GPU-aa", "1", "GPU-bb"], "the UUID")
    process.kill()
    runner.finish(process)
