"""`slurmopt tune` on several nodes of a real Slurm: each trial is a job step on all of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from json_answer import data_of
from launching.conftest import Project
from private_cluster import wait_until

TRAIN = """
import os, time
from pathlib import Path

import torch
import torch.distributed as dist
from slurmopt import current_run, progress, rank_facts

torch.set_num_threads(1)

def main(config):
    facts = rank_facts()
    Path(f"seen-{config.batch_size}-{current_run().attempt}-{facts.rank}").write_text(f"{facts.node} {os.getpid()}")
    held = bytearray(os.urandom(1)) * (config.batch_size * 100_000)
    total = torch.ones(1)
    for step in range(1000):
        dist.all_reduce(total)
        if facts.rank == 3 and step == 2 and config.batch_size > config.breaks_at:
            raise MemoryError("the batch is too large")
        while facts.rank == 3 and step == 4 and config.batch_size == config.hangs_at and current_run().attempt == 0:
            time.sleep(0.1)
        time.sleep(0.001 * (4 + config.batch_size / 16))
        progress(step, samples=config.batch_size * dist.get_world_size())
"""
EXPERIMENT = """# @package _global_
task: {_target_: train.main}
resources: {nodes: 2, tasks_per_node: 2, cpus_per_task: 1, time: 10m}
batch_size: 64
breaks_at: 300
hangs_at: 0
"""
SEARCH = ("sweep.search=batch_size", "sweep.trials=8", "sweep.steps=8")


@pytest.fixture
def site(project: Project) -> Project:
    (project.path / "train.py").write_text(TRAIN)
    folder = project.path / "conf" / "experiment"
    folder.mkdir(parents=True)
    (folder / "mine.yaml").write_text(EXPERIMENT)
    return project


def seen(site: Project, size: int, attempt: int = 0) -> list[list[str]]:
    """Node and process id of each rank of a trial."""
    return [path.read_text().split() for path in sorted(site.path.glob(f"seen-{size}-{attempt}-*"))]


def tune(site: Project, *words: str, **options: Any) -> dict[str, Any]:
    done = site.slurmopt("tune", "batch", "+experiment=mine", "--steps", "8", "--json", *words, timeout=300, **options)
    answer: dict[str, Any] = data_of(done.stdout)
    return answer


def test_each_trial_is_a_step_on_all_nodes(site: Project) -> None:
    found = tune(site, "--sizes", "128-512")
    tried = {trial["size"]: trial for trial in found["trials"]}
    for size in tried:
        ranks = seen(site, size)
        assert len(ranks) == 4, (size, ranks)
        assert [node for node, _ in ranks[:2]] == [ranks[0][0]] * 2
        assert len({node for node, _ in ranks}) == 2
    assert found["largest"] == 256
    failed = [trial["error"] for size, trial in tried.items() if size > 300]
    assert failed
    assert all("MemoryError: the batch is too large" in error for error in failed)
    site.wait_until_no_job_is_left()


def test_a_requeued_search_goes_on_with_its_trials(site: Project) -> None:
    answer = site.submit("-m", "+experiment=mine", "batch_size=range(32,65,32)", "hangs_at=64", *SEARCH)
    wait_until(lambda: len(seen(site, 64)) == 4, 60, "the second trial runs")
    (job,) = answer["job_ids"]
    site.run(["scontrol", "requeue", job], check=True)
    site.wait_for(answer, "finished", timeout=120)
    assert not seen(site, 32, attempt=1)
    assert len(seen(site, 64, attempt=1)) == 4


def test_a_cancelled_trial_leaves_no_rank_on_any_node(site: Project) -> None:
    answer = site.submit("-m", "+experiment=mine", "batch_size=range(32,65,32)", "hangs_at=32", *SEARCH)
    wait_until(lambda: len(seen(site, 32)) == 4, 60, "the first trial runs")
    ranks = [int(process) for _, process in seen(site, 32)]
    site.slurmopt("cancel", f"{answer['run']}/0")
    wait_until(lambda: not any(Path(f"/proc/{each}").exists() for each in ranks), 60, "the ranks have ended")
    site.wait_until_no_job_is_left()  # where the smallest size has no result, there is nothing more to try


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["sweep.search=random"], "the points share one node's array task, and resources.nodes is 2"),
        (["sweep.side_by_side=2"], "leave out sweep.side_by_side, or resources.nodes=1"),
        (["environment.container.image=mine.sif"], "cannot be started inside a container"),
    ],
)
def test_what_cannot_run_on_several_nodes_is_refused(site: Project, words: list[str], said: str) -> None:
    done = site.launch("-m", "+experiment=mine", "batch_size=range(32,65,32)", *SEARCH, *words, check=False)
    assert done.returncode == 2
    (error,) = [line for line in done.stderr.splitlines() if "error" in line]
    assert said in error
    assert not (site.path / "runs").exists()
