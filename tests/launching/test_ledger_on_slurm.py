"""The ledger against the accounting of a real Slurm: of a run that came back, and of a sweep with packed points."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from json_answer import data_of
from launching.conftest import Project
from private_cluster import PrivateCluster, unprivileged_user, wait_until

from slurmopt.ledger import buckets
from slurmopt.report.gather import gather, gather_many, gather_sweep
from slurmopt.report.run.build import report_on
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.sweep_layout import SweepFolder
from slurmopt.slurm.accounting import allocations

TRAIN = '''
"""A training that comes back once, and points that take a second."""
import time

import slurmopt


def comes_back(config):
    first = slurmopt.current_run().attempt == 0
    for step in range(1, 11):
        slurmopt.progress(step if first else step + 4, 14)
        time.sleep(0.2)
    with slurmopt.phase("evaluation"):
        time.sleep(1)
    if first:
        raise slurmopt.Requeue("once more")


def point(config):
    for step in range(1, 6):
        slurmopt.progress(step, 5)
        time.sleep(0.2)
'''

SWEEP = """
# @package _global_
task: {_target_: ledger_train.point}
resources: {time: 5m, gpus_per_node: 1, tasks_per_node: 1}
seed: 0
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[PrivateCluster]:
    with PrivateCluster.running("--nodes", "2", "--gpus", "4", "--accounting", "--user", unprivileged_user()) as made:
        yield made


@pytest.fixture
def site(project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    (project.path / "ledger_train.py").write_text(TRAIN)
    folder = project.path / "conf" / "experiment"
    folder.mkdir(parents=True)
    (folder / "points.yaml").write_text(textwrap.dedent(SWEEP))
    monkeypatch.setenv("SLURM_CONF", str(project.cluster.conf))
    return project


def in_the_books(jobs: list[str], starts: int) -> list[Any]:
    """What sacct says of the jobs, once it knows the end of each start."""
    found: list[Any] = []

    def all_ended() -> bool:
        found[:] = allocations(jobs)
        return len(found) == starts and all(one.end is not None for one in found)

    wait_until(all_ended, 60, f"{starts} starts in the books", lambda: found)
    return found


def test_the_ledger_of_a_run_is_what_slurm_charged(site: Project) -> None:
    words = ("resources.nodes=2", "resources.gpus_per_node=3", "resources.tasks_per_node=2", "resources.time=5m")
    answer = site.submit("task._target_=ledger_train.comes_back", *words)
    site.wait_for(answer, "finished", "failed")
    known = in_the_books(answer["job_ids"], starts=2)
    run = RunFolder(Path(answer["run"]))
    record = gather(run, accounting=True)
    ledger = record.ledger
    assert (record.state, ledger.unit, record.problems) == ("finished", "GPU", [])
    assert [attempt.gpus for attempt in record.attempts] == [{"node1": 3.0, "node2": 3.0}] * 2
    assert record.accounting is not None
    charged = sum(one.gpus * one.seconds for one in known)
    assert record.accounting.charged == charged
    assert record.accounting.notes == []
    # Slurm counts whole seconds, from before the batch shell until after its last word.
    assert ledger.allocated / 1000 == pytest.approx(charged, abs=2 * 6 * 2.5)
    assert record.accounting.difference == pytest.approx(charged - ledger.allocated / 1000, abs=0.01)
    first, second = ledger.attempts
    assert first[buckets.LOST] > 0  # steps 5 to 10, and the evaluation after them
    assert second[buckets.LOST] == 0
    assert second.phases["evaluation"] / 1000 >= 6
    assert ledger[buckets.COMPUTE] > 0
    (brief,), _ = gather_many([run])
    assert brief.ledger.allocated == ledger.allocated
    # without samples, steps are taken to be made evenly, and the evaluation to be spread over them
    assert brief.ledger[buckets.LOST] == pytest.approx(ledger[buckets.LOST], rel=0.5)
    shown = report_on(run, accounting=True)
    assert shown.accounting is not None
    assert (shown.accounting.charged, shown.accounting.unit) == (charged, "GPU")
    assert not [note for note in shown.notes if "Slurm's accounting" in note]
    print("charged", charged, "ledger", ledger.allocated / 1000)


@pytest.mark.parametrize("packed", [False, True], ids=["array", "packed"])
def test_the_ledger_of_a_sweep_is_what_slurm_charged(site: Project, packed: bool) -> None:
    words = ("sweep.per_task=4", "sweep.side_by_side=2") if packed else ()
    answer = site.submit("-m", "+experiment=points", "seed=range(8)" if packed else "seed=range(3)", *words)
    sweep = SweepFolder(Path(answer["run"]))
    tasks, points = (2, 8) if packed else (3, 3)
    jobs = [f"{answer['job_ids'][0]}_{task}" for task in range(tasks)]
    known = in_the_books(jobs, starts=tasks)
    record = gather_sweep(sweep)
    ledger = record.ledger
    assert {number: point.state for number, point in record.points.items()} == dict.fromkeys(range(points), "finished")
    charged = sum(one.gpus * one.seconds for one in known)
    assert ledger.allocated / 1000 == pytest.approx(charged, abs=tasks * 2.5)
    # five steps of 0.2 s each; where two points shared a GPU, each had half of its seconds
    assert ledger[buckets.COMPUTE] / 1000 >= points * 0.8 * (0.5 if packed else 1)
    assert ledger.share(buckets.UNKNOWN) < 0.2
    assert bool(record.between.allocated) == packed


def test_a_capacity_plan_counts_what_slurm_charged(site: Project) -> None:
    """The output of sacct as docs/cost.md has it: its jobs with GPUs, without the steps in which the ranks ran."""
    answer = site.submit(
        "task.command=[sleep,3]", "resources.nodes=2", "resources.gpus_per_node=2", "resources.time=5m"
    )
    site.wait_for(answer, "finished", "failed")
    (known,) = in_the_books(answer["job_ids"], starts=1)
    fields = "JobID,Submit,Start,End,AllocTRES,State"
    jobs = site.run(["sacct", "-P", "-j", answer["job_ids"][0], "-o", fields]).stdout
    assert len(jobs.splitlines()) > 2, "the steps are in it"
    (site.path / "jobs").write_text(jobs)
    words = ("--jobs", "jobs", "--committed", "1", "--on-demand", "4")
    found = data_of(site.slurmopt("plan", "capacity", *words, "--json").stdout)
    assert (found["history"]["jobs"], found["history"]["gpus_per_node"]) == (1, 2)
    assert found["history"]["gpu_hours"] == pytest.approx(4 * known.seconds / 3600, rel=1e-3)
    assert found["history"]["most"] == 4
