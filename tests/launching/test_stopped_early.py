"""Trainings that stop early, on this machine: they have finished, and say how."""

from __future__ import annotations

from pathlib import Path

import pytest
from json_answer import data_of
from local_sweep import end_what_is_left, slurmopt, write_project

TRAIN = """
from slurmopt import progress
from slurmopt.training import EarlyStopping

def main(config):
    early = EarlyStopping(patience=config.patience)
    for step in range(1, 11):
        loss = max(1 / step, 0.25)  # no better after step 4
        progress(step, 10, loss=loss)
        if early.update(loss):
            break
    return {"steps": step}
"""
EXPERIMENT = """# @package _global_
task: {_target_: train.main}
patience: 3
launch: {backend: local, wait: true}
"""
SAID = "stopped early: no improvement in 3 evaluations; the best value is 0.25"


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_project(tmp_path, TRAIN, EXPERIMENT)
    monkeypatch.chdir(tmp_path)


def test_a_run_of_two_ranks_has_finished_and_says_how() -> None:
    done = slurmopt("launch", "+experiment=mine", "resources.tasks_per_node=2")
    assert done.returncode == 0, done.stderr
    (status,) = data_of(slurmopt("status", "mine", "--json").stdout)
    assert (status["state"], status["detail"]) == ("finished", SAID)
    assert status["step"] == 7
    assert SAID in slurmopt("status", "mine").stdout
    (listed,) = data_of(slurmopt("list", "--json").stdout)
    assert (listed["state"], listed["detail"]) == ("finished", SAID)


def test_a_run_that_does_not_stop_early_says_nothing() -> None:
    done = slurmopt("launch", "+experiment=mine", "patience=20")
    assert done.returncode == 0, done.stderr
    (status,) = data_of(slurmopt("status", "mine", "--json").stdout)
    assert (status["state"], status["detail"]) == ("finished", None)


def test_a_point_that_stops_early_has_its_result_and_no_error() -> None:
    done = slurmopt("launch", "+experiment=mine", "patience=3,20", "-m")
    end_what_is_left(Path.cwd())
    assert done.returncode == 0, done.stderr
    found = data_of(slurmopt("results", "mine", "--json").stdout)
    assert found["states"] == {"finished": 2}
    (point,) = data_of(slurmopt("status", "mine/0", "--json").stdout)
    assert (point["state"], point["detail"]) == ("finished", SAID)
