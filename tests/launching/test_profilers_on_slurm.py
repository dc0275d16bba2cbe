"""Profiled trainings on a real Slurm, whose signals go to every process of a step. nsys is simulated, py-spy real."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from job.profiler_stand_ins import stand_ins
from launching.conftest import Project

from slurmopt.run_folder.layout import RunFolder

WORKS = """
import time

import slurmopt


def hot_function():
    return sum(i * i for i in range(20000))


def main(config):
    if slurmopt.current_run().attempt > 0:
        return "resumed"
    step = 0
    while not slurmopt.stop_requested():
        hot_function()
        step += 1
        slurmopt.progress(step)
    raise slurmopt.Requeue("saved")


main.makes_process_group = True
"""
COMMAND = """
import os, pathlib, signal, sys, time
if os.environ["SLURMOPT_ATTEMPT"] != "0":
    sys.exit(0)
def save(number, frame):
    sys.exit(75)
signal.signal(signal.SIGUSR1, save)
pathlib.Path(f"ready-{os.environ['RANK']}").touch()
while True:
    time.sleep(0.02)
"""
TWO = ("resources.nodes=2", "resources.tasks_per_node=2", "resources.time=30m", "restart.lead=10m")


@pytest.mark.slurm
def test_a_profiled_training_saves_and_comes_back(project: Project) -> None:
    place = project.path / "bin"
    found = stand_ins(place)
    shutil.chown(place, project.user)
    (project.path / "works.py").write_text(WORKS)
    (project.path / "command.py").write_text(COMMAND)
    options = ("task.profiler_options.delay=0", "task.profiler_options.seconds=600", "launch.wait=false", *TWO)
    function, nsys = "task._target_=works.main", "task.profiler=nsys"
    runs = {
        "below-nsys": project.submit(nsys, function, "launch.name=below-nsys", *options, env=found),
    }
    for name, answer in runs.items():
        project.wait_for(answer, "running")
    del json, Path, RunFolder, name
