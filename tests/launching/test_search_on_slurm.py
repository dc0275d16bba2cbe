"""A search on a real Slurm: workers are array tasks, which share a study and survive a requeue."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import optuna
import pytest
from json_answer import data_of
from launching.conftest import Project
from optuna.storages.journal import JournalFileBackend, JournalStorage
from optuna.trial import TrialState
from private_cluster import wait_until

from slurmopt.grid.records import Records
from slurmopt.run_folder import events
from slurmopt.run_folder.sweep_layout import SweepFolder

TRAIN = '''
import os
import time
from pathlib import Path

import slurmopt


def main(config):
    """Trials that wait for a word, unless they have been started again; then a curve that ends at (x - 3)²."""
    point = slurmopt.current_run().folder.path
    attempt = slurmopt.current_run().attempt
    (point / "begun").touch()
    while config.wait and attempt == 0 and not Path("go").exists():
        if slurmopt.stop_requested():
            (point / "saved").write_text("yes")
            return {"loss": -1.0, "model": config.model}  # as if it had finished: no value of the trial's
        time.sleep(0.05)
    goal = (config.x - 3) ** 2
    for step in range(1, 30):
        if config.ranks > 1:
            import torch.distributed as dist

            dist.barrier()
        slurmopt.progress(step, total=30, loss=goal + 10 / step)
    return {"loss": goal, "model": config.model}
'''

EXPERIMENT = """
# @package _global_
task: {_target_: hunt.main}
resources: {time: 5m, cpus_per_task: 1}
x: 0.0
model: small
wait: false
ranks: 1
"""


@pytest.fixture
def site(project: Project) -> Project:
    (project.path / "hunt.py").write_text(TRAIN)
    folder = project.path / "conf" / "experiment"
    folder.mkdir(parents=True)
    (folder / "hunt.yaml").write_text(EXPERIMENT)
    return project


def launch(site: Project, *words: str) -> tuple[SweepFolder, str]:
    answer = site.submit("-m", "+experiment=hunt", "x=interval(0,10)", "model=small,large", *words)
    (job,) = answer["job_ids"]
    return SweepFolder(Path(answer["run"])), job


def study(sweep: SweepFolder) -> optuna.Study:
    storage = JournalStorage(JournalFileBackend(str(sweep.study)))
    return optuna.load_study(study_name=f"{sweep.name}/{sweep.id}", storage=storage)


def finish(site: Project, sweep: SweepFolder, **counts: int) -> None:
    def states() -> Any:
        (told,) = data_of(site.slurmopt("status", str(sweep.path), "--json").stdout)
        return told["states"]

    wait_until(lambda: states() == counts, 90, str(counts), states)


def test_workers_share_a_search_and_a_requeued_one_goes_on_with_its_trials(site: Project) -> None:
    words = ["sweep.search=tpe", "sweep.trials=7", "sweep.workers=2", "sweep.metric=loss", "sweep.seed=1", "wait=true"]
    sweep, job = launch(site, *words)
    wait_until(lambda: len(study(sweep).trials) == 2, 60, "both workers have asked")
    mine = next(trial.number for trial in study(sweep).trials if trial.user_attrs["worker"] == "0-0")
    wait_until((sweep.point(mine).path / "begun").exists, 60, "the trial has begun")
    site.cluster.run(["scontrol", "requeue", f"{job}_0"])
    wait_until((sweep.point(mine).path / "saved").exists, 60, "the trial has saved")
    (site.path / "go").touch()
    finish(site, sweep, finished=7)
    trials = study(sweep).trials
    assert [trial.state for trial in trials] == [TrialState.COMPLETE] * 7
    attempts = [sum(event["event"] == "attempt" for event in Records(sweep).journal(one)) for one in range(7)]
    assert attempts == [2 if number == mine else 1 for number in range(7)]
    for trial in trials:
        assert trial.value == pytest.approx((trial.params["x"] - 3) ** 2)
    table = data_of(site.slurmopt("results", str(sweep.path), "--sort", "loss", "--json").stdout)
    assert table["rows"][0]["point"] == study(sweep).best_trial.number


def test_trials_that_do_badly_are_given_up_on_all_ranks(site: Project) -> None:
    words = ["sweep.search=asha", "sweep.trials=12", "sweep.workers=1", "sweep.metric=loss", "sweep.seed=1"]
    sweep, _ = launch(site, *words, "resources.tasks_per_node=2", "ranks=2")
    finish(site, sweep, finished=12)
    trials = study(sweep).trials
    assert {trial.state for trial in trials} == {TrialState.COMPLETE, TrialState.PRUNED}
    for trial in trials:
        (end,) = (event for event in Records(sweep).journal(trial.number) if event["event"] == "end")
        assert end["outcome"] == "finished"
        assert end.get("pruned", False) is (trial.state == TrialState.PRUNED)


def test_the_trial_of_a_worker_that_is_cancelled_is_taken_over(site: Project) -> None:
    words = ["sweep.search=random", "sweep.trials=4", "sweep.workers=2", "sweep.metric=loss", "wait=true"]
    sweep, job = launch(site, *words)
    wait_until(lambda: len(study(sweep).trials) == 2, 60, "both workers have asked")
    mine = next(trial.number for trial in study(sweep).trials if trial.user_attrs["worker"] == "0-0")
    wait_until((sweep.point(mine).path / "begun").exists, 60, "the trial has begun")
    site.cluster.run(["scancel", f"{job}_0"])
    wait_until(
        lambda: any(event["event"] == "end" for event in events.read(sweep.task(0, 0).events)), 60, "its worker ended"
    )
    (site.path / "go").touch()
    wait_until(
        lambda: len(study(sweep).get_trials(states=[TrialState.COMPLETE])) == 4,
        60,
        "all trials are complete",
        lambda: sweep.task(0, 0).events.read_text() + str(study(sweep).trials),
    )
    assert study(sweep).trials[mine].user_attrs["worker"] == "0-1"
    finish(site, sweep, finished=4)


def test_a_search_whose_workers_were_all_cancelled_goes_on_with_new_ones(site: Project) -> None:
    words = ["sweep.search=random", "sweep.trials=5", "sweep.workers=2", "sweep.metric=loss", "wait=true"]
    sweep, job = launch(site, *words)
    wait_until(lambda: all((sweep.point(one).path / "begun").exists() for one in (0, 1)), 60, "two trials have begun")
    site.cluster.run(["scancel", job])
    wait_until(lambda: not site.cluster.run(["squeue", "--noheader", "--job", job], check=False).stdout, 60, "all left")
    assert [trial.state for trial in study(sweep).trials] == [TrialState.RUNNING] * 2
    (site.path / "go").touch()
    site.slurmopt("retry", str(sweep.path))
    finish(site, sweep, finished=5)
    assert [trial.state for trial in study(sweep).trials] == [TrialState.COMPLETE] * 5
