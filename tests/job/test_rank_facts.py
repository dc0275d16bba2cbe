"""Rank facts from the environments of torchrun, Slurm and nobody."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from slurmopt.job.facts.rank_facts import (
    exports,
    facts_from,
    is_tracked_by_cgroup,
    launched_facts,
    one_per_node,
    slurm_job,
    tasks_per_node,
    torchrun_exports,
    visible_gpus,
)
from slurmopt.job.rank_args import parse
from slurmopt.job.worker import rank

# As srun 22.05 set them for the last task of `-N2 -n3`, and as the batch shell of the same job saw them.
STEP = {
    "SLURM_STEP_ID": "0",
    "SLURM_PROCID": "2",
    "SLURM_LOCALID": "0",
    "SLURM_NODEID": "1",
    "SLURM_NTASKS": "3",
    "SLURM_STEP_NUM_TASKS": "3",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_NNODES": "2",
    "SLURM_STEP_TASKS_PER_NODE": "2,1",
    "SLURMD_NODENAME": "node2",
    "MASTER_ADDR": "node1",
    "MASTER_PORT": "23456",
}
BATCH = {"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NTASKS": "3", "SLURM_NNODES": "2", "SLURM_NODEID": "0"}
TORCHRUN = {"RANK": "5", "LOCAL_RANK": "1", "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "4", "GROUP_RANK": "1"}


def _numbers(environ: dict[str, str]) -> tuple[int, ...]:
    facts = facts_from(environ)
    return facts.rank, facts.local_rank, facts.world_size, facts.local_world_size, facts.node_rank, facts.nodes


def test_a_task_of_srun() -> None:
    assert _numbers(STEP) == (2, 0, 3, 1, 1, 2)
    facts = facts_from(STEP)
    assert (facts.node, facts.master_addr, facts.master_port) == ("node2", "node1", 23456)


def test_torchruns_worker() -> None:
    assert _numbers(TORCHRUN) == (5, 1, 8, 4, 1, 2)


def test_a_plain_process_is_alone() -> None:
    assert _numbers({}) == (0, 0, 1, 1, 0, 1)


def test_the_batch_shell_is_alone_though_it_has_a_procid() -> None:
    assert _numbers(BATCH) == (0, 0, 1, 1, 0, 1)


def test_a_rank_inside_a_step_keeps_its_own_rank() -> None:
    assert _numbers(STEP | TORCHRUN)[0] == 5


@pytest.mark.parametrize(
    ("cgroups", "tracked"),
    [
        (
            "8:pids:/\n6:freezer:/slurm_node5/uid_0/job_402/step_0\n4:memory:/slurm_node5/uid_0/job_402/step_0/task_0\n",
            True,
        ),
        ("6:freezer:/\n4:memory:/slurm_node5/uid_0/job_402/step_0/task_0\n", False),  # task/cgroup alone
        ("0::/system.slice/slurmstepd.scope/job_402/step_0/user/task_0\n", True),
        ("0::/system.slice/node5_slurmstepd.scope/job_402/step_0/user/task_0\n", True),
        ("0::/user.slice/user-0.slice/session-1.scope\n", False),
    ],
)
def test_a_step_that_slurm_tracks_by_cgroups_is_told_from_others(cgroups: str, tracked: bool) -> None:
    assert is_tracked_by_cgroup(cgroups) is tracked


def test_a_rank_left_over_in_the_users_environment_does_not_fool_the_launched_process() -> None:
    assert launched_facts(STEP | TORCHRUN).rank == 2


def test_what_is_exported_reads_back_the_same() -> None:
    facts = facts_from(STEP)
    assert facts_from({**exports(facts), "SLURMD_NODENAME": "node2"}) == facts


@pytest.mark.parametrize(
    ("text", "counts"), [("2", [2]), ("2(x3),1", [2, 2, 2, 1]), ("1,4(x2)", [1, 4, 4]), ("8(x1)", [8])]
)
def test_tasks_per_node(text: str, counts: list[int]) -> None:
    assert tasks_per_node(text) == counts


def test_tasks_per_node_of_something_else() -> None:
    with pytest.raises(ValueError, match="valid is a form such as"):
        tasks_per_node("2(x")


def test_one_process_per_node_tells_torchrun_where_it_is() -> None:
    step = STEP | {"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_TASKS_PER_NODE": "1(x2)"}
    facts = one_per_node(launched_facts(step))
    assert (facts.rank, facts.node_rank, facts.world_size, facts.nodes) == (1, 1, 2, 2)
    assert torchrun_exports(facts, {"SLURM_GPUS_ON_NODE": "8"}) == {
        "PET_NNODES": "2",
        "PET_NODE_RANK": "1",
        "PET_MASTER_ADDR": "node1",
        "PET_MASTER_PORT": "23456",
        "PET_NPROC_PER_NODE": "8",
    }
    assert "PET_NPROC_PER_NODE" not in torchrun_exports(facts, {"PET_NPROC_PER_NODE": "2", "CUDA_VISIBLE_DEVICES": "0"})


@pytest.mark.parametrize(
    ("nodes", "ranks_per_node", "own", "lazy"),
    [
        (29, 8, {}, True),
        (28, 8, {}, False),
        (225, 1, {}, True),
        (29, 8, {"PET_NPROC_PER_NODE": "1"}, False),
        (29, 1, {"PET_NPROC_PER_NODE": "8"}, True),
        (29, 1, {"SLURM_GPUS_ON_NODE": "8"}, False),
    ],
)
def test_below_torchrun_a_large_world_is_one_of_many_ranks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nodes: int, ranks_per_node: int, own: dict[str, str], lazy: bool
) -> None:
    """The GPUs that one node shows do not count: on another there may be another number, and all decide alike."""
    step = {"SLURM_STEP_NUM_TASKS": str(nodes), "SLURM_STEP_NUM_NODES": str(nodes), "MASTER_ADDR": "127.0.0.1"}
    step |= {"SLURM_STEP_TASKS_PER_NODE": f"1(x{nodes})", "SLURM_NODEID": "2"}
    monkeypatch.setattr(os, "environ", {**STEP, **step, **own})
    words = ["--per", "node", "--ranks-per-node", str(ranks_per_node), "--", "torchrun", "train.py"]
    rank.export(parse([str(tmp_path), *words]), 0)
    assert ("TORCH_GLOO_LAZY_INIT" in os.environ) is lazy


@pytest.mark.parametrize(
    ("environ", "count"),
    [
        ({}, 0),
        ({"CUDA_VISIBLE_DEVICES": "0,3"}, 2),
        ({"CUDA_VISIBLE_DEVICES": ""}, 0),
        ({"CUDA_VISIBLE_DEVICES": "-1"}, 0),
        ({"SLURM_GPUS_ON_NODE": "4"}, 4),
        ({"CUDA_VISIBLE_DEVICES": "MIG-1,MIG-2", "SLURM_GPUS_ON_NODE": "1"}, 2),
    ],
)
def test_visible_gpus(environ: dict[str, str], count: int) -> None:
    assert visible_gpus(environ) == count


def test_the_array_task_is_slurms_also_where_a_point_has_a_number_of_its_own() -> None:
    """scancel of that number would reach the job of another point."""
    code = "import os; from slurmopt.job.facts.rank_facts import slurm_job, started_with\n"
    code += "os.environ['SLURM_ARRAY_TASK_ID'] = '3'; print(slurm_job(started_with()))"
    environment = {**os.environ, "SLURM_ARRAY_JOB_ID": "29", "SLURM_ARRAY_TASK_ID": "2"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "29_2\n"
    assert slurm_job({"SLURM_JOB_ID": "7"}) == "7"
