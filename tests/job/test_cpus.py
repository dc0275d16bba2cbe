"""The CPUs and threads of a rank: real affinities. NVML is simulated, by a module named pynvml on the path."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from job.harness import DEADLINE, Runner

TRAIN = """
import os


def main(config):
    return {"cpus": sorted(os.sched_getaffinity(0)), "threads": os.environ["OMP_NUM_THREADS"]}


main.makes_process_group = True
"""
SIMULATED_NVML = """
class NVMLError(Exception):
    value = 0


def nvmlInit(): pass
def nvmlShutdown(): pass
def nvmlDeviceGetHandleByIndex(index): return index
def nvmlDeviceGetCpuAffinity(handle, words): return [1 << handle] + [0] * (words - 1)  # GPU n is near CPU n
"""
CPUS = sorted(os.sched_getaffinity(0))

pytestmark = pytest.mark.skipif(CPUS[:2] != [0, 1], reason="NOT TESTED: these tests need the CPUs 0 and 1")


def result(runner: Runner, rank: int, *words: str, cpus: set[int] | None = None, **own: str) -> dict[str, object]:
    """What a rank that srun has started, one of two on its node with two GPUs, sees of its CPUs."""
    runner.module("training", TRAIN)
    runner.module("pynvml", SIMULATED_NVML)
    runner.make_folders()
    step = {"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_NUM_NODES": "1", "SLURM_NODEID": "0"}
    step |= {"SLURM_STEP_TASKS_PER_NODE": "2", "SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank)}
    step |= {"SLURM_CPUS_ON_NODE": str(len(CPUS)), "CUDA_VISIBLE_DEVICES": "0,1"}
    kept = {name: value for name, value in runner._environment().items() if name != "OMP_NUM_THREADS"}
    done = subprocess.run(
        [sys.executable, "-m", "slurmopt.job", runner.folder.path, *words, "--function", "training.main"],
        cwd=runner.code,
        env=kept | step | own | {"PYTHONPATH": f"{kept['PYTHONPATH']}:{runner.code}"},
        preexec_fn=None if cpus is None else lambda: os.sched_setaffinity(0, cpus),
        timeout=DEADLINE,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    beat = runner.beat(rank)
    assert beat is not None
    assert beat.outcome is not None
    found = beat.outcome["result"]
    assert isinstance(found, dict)
    return found


def test_a_rank_that_slurm_does_not_bind_keeps_to_the_cpus_near_its_gpu(runner: Runner) -> None:
    assert result(runner, 0) == {"cpus": [0], "threads": "1"}
    assert result(runner, 1) == {"cpus": [1], "threads": "1"}


def test_without_binding_the_ranks_of_a_node_divide_its_cpus_into_threads(runner: Runner) -> None:
    assert result(runner, 1, "--cpu-bind", "off") == {"cpus": CPUS, "threads": str(len(CPUS) // 2)}


def test_a_rank_that_slurm_has_bound_keeps_its_cpus(runner: Runner) -> None:
    assert result(runner, 1, cpus={0}) == {"cpus": [0], "threads": "1"}


def test_the_users_own_number_of_threads_is_kept(runner: Runner) -> None:
    assert result(runner, 0, OMP_NUM_THREADS="3")["threads"] == "3"
