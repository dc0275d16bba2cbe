"""Real trainings on this machine's CPUs, with their own ranks, samplers and journals: each is told for what it is."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from json_answer import data_of

from slurmopt.ledger.findings import finding
from slurmopt.ledger.findings.config_facts import config_facts
from slurmopt.ledger.findings.diagnosis import diagnose_run
from slurmopt.ledger.findings.finding import Diagnosis, Finding
from slurmopt.ledger.findings.records import evidence_of
from slurmopt.report.gather import gather
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.series import series
from slurmopt.run_folder.series.series import Series

pytestmark = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="NOT TESTED: torch is not installed")
DEADLINE = 280

DDP = """
import os, time, torch
from slurmopt import progress, rank_facts, watch

class Slow(torch.autograd.Function):
    @staticmethod
    def forward(context, x, seconds):
        context.seconds = seconds
        return x

    @staticmethod
    def backward(context, gradient):
        time.sleep(context.seconds)
        return gradient, None

def train(seconds, backward, wait=0.0):
    torch.set_num_threads(1)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
    rank, end = rank_facts().rank, time.monotonic() + seconds
    def batches():
        while True:
            time.sleep(wait)
            yield torch.randn(8, 64)
    stop, step = torch.zeros(1), 0
    for batch in watch(batches()):
        Slow.apply(model(batch), backward[rank]).sum().backward()
        progress(step := step + 1)
        stop[0] = time.monotonic() > end
        if step % 20 == 0:
            torch.distributed.all_reduce(stop)
            if stop[0] > 0:
                return
"""
TRAININGS = {
    "healthy": (
        ["resources.tasks_per_node=2"],
        DDP + "def main(config):\n    train(28, [0.06, 0.06])\n",
    ),
    "straggler": (
        ["resources.tasks_per_node=2"],
        DDP + "def main(config):\n    train(28, [0.01, 0.06])\n",
    ),
    # The other end of a pipe is the storage: the loader sleeps in `read` until its bytes come, as on a file system that
    # delivers ten of them a second.
    "storage": (
        [],
        """
import os, threading, time
from slurmopt import progress, watch

def deliver(end):
    while True:
        time.sleep(0.1)
        os.write(end, bytes(1 << 20))

def batches():
    ours, theirs = os.pipe()
    threading.Thread(target=deliver, args=[theirs], daemon=True).start()
    while True:
        left = 1 << 20
        while left:
            left -= len(os.read(ours, left))
        yield left

def main(config):
    end, step = time.monotonic() + 28, 0
    for batch in watch(batches()):
        time.sleep(0.05)
        progress(step := step + 1)
        if time.monotonic() > end:
            return
""",
    ),
    "leak": (
        [],
        """
import time
from slurmopt import progress, watch

def main(config):
    total = int(open("/proc/meminfo").read().split()[1]) << 10
    kept, end, step = [], time.monotonic() + 98, 0
    while time.monotonic() < end:
        time.sleep(0.1)
        kept.append(b"x" * (total // 25 // 980))
        progress(step := step + 1, 10_000_000)
""",
    ),
}
DECODING = """
import time
from slurmopt import progress, watch

def batches():
    while True:
        end = time.monotonic() + 0.06
        while time.monotonic() < end:
            sum(range(1000))
        yield 1

def main(config):
    end, step = time.monotonic() + 24, 0
    for batch in watch(batches()):
        done = time.monotonic() + 0.03
        while time.monotonic() < done:
            sum(range(1000))
        progress(step := step + 1)
        if time.monotonic() > end:
            return
"""


def launch(folder: Path, code: str, words: list[str], *before: str) -> subprocess.Popen[str]:
    (folder / "train.py").write_text(code)
    options = ["launch.backend=local", "launch.json=true", "monitor.every=1s", "monitor.heartbeat=1s"]
    command = [*before, sys.executable, "-m", "slurmopt.launch", *options, "task._target_=train.main", *words]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def diagnosed(process: subprocess.Popen[str]) -> Diagnosis:
    out, errors = process.communicate(timeout=DEADLINE)
    assert process.returncode == 0, out + errors
    record = gather(RunFolder(Path(data_of(out)["run"])))
    assert record.problems == []
    return diagnose_run(
        [
            evidence_of(
                attempt,
                record.heartbeats[attempt.number],
                in_detail(record.folder, attempt.number),
                config=config_facts(record.config),
            )
            for attempt in record.attempts
        ]
    )


def in_detail(run: RunFolder, attempt: int) -> list[Series]:
    """All rows of a short attempt, which has one merged row for each node."""
    read = [series.read(run.recent_series(attempt, node)) for node in run.nodes_with_series(attempt)]
    return [one for one in read if one is not None]


def the_one(diagnosis: Diagnosis) -> Finding:
    (found,) = diagnosis.findings
    return found


@pytest.fixture(scope="module")
def trainings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, subprocess.Popen[str]]]:
    """All trainings that sleep most of the time, side by side."""
    started = {}
    for name, (words, code) in TRAININGS.items():
        started[name] = launch(tmp_path_factory.mktemp(name), code, words)
    yield started
    for process in started.values():
        if process.poll() is None:
            process.kill()


def test_a_healthy_training_has_no_finding(trainings: dict[str, subprocess.Popen[str]]) -> None:
    diagnosis = diagnosed(trainings["healthy"])
    assert diagnosis.findings == ()
    assert finding.STRAGGLER not in {item.kind for item in diagnosis.abstentions}


def test_a_delayed_rank_is_the_straggler(trainings: dict[str, subprocess.Popen[str]]) -> None:
    found = the_one(diagnosed(trainings["straggler"]))
    assert (found.kind, found.cause, found.rank, found.sure) == ("straggler", "backward", 1, "certain")
    assert found.cost is not None
    assert found.cost > 0


def test_a_loader_that_waits_for_its_bytes_is_told_as_storage(trainings: dict[str, subprocess.Popen[str]]) -> None:
    found = the_one(diagnosed(trainings["storage"]))
    assert (found.kind, found.cause) == ("input-bound", "storage")


@pytest.mark.speed(reason="another process on the same CPU takes the time in which it would be seen busy")
def test_a_loader_that_decodes_on_the_only_cpu(tmp_path: Path) -> None:
    cpu = str(max(os.sched_getaffinity(0)))
    first = ["chrt", "-r", "1"] if os.geteuid() == 0 else []  # the other tests want this CPU too
    found = the_one(diagnosed(launch(tmp_path, DECODING, [], *first, "taskset", "-c", cpu)))
    assert (found.kind, found.cause) == ("input-bound", "decoding")
    assert found.change in ("resources.cpus_per_task=3", "resources.cpus_per_task=4")  # it waits for two thirds


def test_a_leak_is_told_with_the_step_at_which_memory_is_full(trainings: dict[str, subprocess.Popen[str]]) -> None:
    """The longest of all, and so the last to be waited for."""
    found = the_one(diagnosed(trainings["leak"]))
    assert (found.kind, found.cause) == ("leak", "memory")
    assert any("at about step" in line for line in found.evidence)
