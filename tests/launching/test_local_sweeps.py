"""Sweeps on the local backend: the same folders and commands as on Slurm, as many points at a time as fit."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from json_answer import data_of
from local_sweep import LOCAL, TRAIN, LocalSweep, end_what_is_left, slurmopt, usable_cpus
from private_cluster import wait_until

from slurmopt.run_folder import events


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(TRAIN)
    yield
    end_what_is_left(tmp_path)


def losses(sweep: LocalSweep) -> list[str]:
    table = slurmopt("results", str(sweep.path), "--csv").stdout
    return [row["loss"] for row in csv.DictReader(io.StringIO(table))]


def test_points_run_as_many_at_a_time_as_there_are_cpus_and_leave_what_a_sweep_leaves() -> None:
    sweep = LocalSweep("+lr=range(4)", "+nap=0.3", "resources.cpus_per_task=1")
    sweep.wait(finished=4)
    assert 1 <= sweep.most_at_once() <= usable_cpus()
    assert losses(sweep) == ["0", "1", "2", "3"]
    assert {path.name for path in sweep.path.iterdir()} >= {
        "points.json",
        "sweep.json",
        "points",
        "events.jsonl",
        "logs",
    }
    (job,) = sweep.launched["job_ids"]
    assert data_of(slurmopt("status", f"{job}_3", "--json").stdout)[0]["job"] == f"{job}_3"
    assert "finished" in slurmopt("history", f"{sweep.path}/3").stdout
    assert slurmopt("logs", f"{sweep.path}/3").returncode == 0
    assert "4 finished" in slurmopt("list").stdout
    assert slurmopt("report", str(sweep.path)).returncode == 0
    assert slurmopt("cancel", str(sweep.path)).returncode == 2
    assert "nothing is to be done" in slurmopt("tend", str(sweep.path)).stderr


def test_sixty_points_share_array_tasks() -> None:
    sweep = LocalSweep("+lr=range(60)", "sweep.per_task=30")
    sweep.wait(90, finished=60)
    assert len(losses(sweep)) == 60


def test_an_array_task_stages_once_for_all_its_points(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "sample").write_text("content")
    (tmp_path / "train.py").write_text(
        "import slurmopt\n"
        "def main(config):\n"
        "    return {'loss': config.lr, 'read': len((slurmopt.staged('data') / 'sample').read_text())}\n"
        "main.makes_process_group = True\n"
    )
    entry = f"+storage.stage.data={{source:{tmp_path}/data,into:{tmp_path}/node}}"
    sweep = LocalSweep("+lr=range(3)", "sweep.per_task=3", entry)
    sweep.wait(finished=3)
    table = slurmopt("results", str(sweep.path), "--csv").stdout
    assert [row["read"] for row in csv.DictReader(io.StringIO(table))] == ["7"] * 3
    said = "".join(path.read_text() for path in (sweep.path / "logs").glob("job-*"))
    assert said.count("storage.stage.data: 1 file, 7 B, of ") == 1
    assert not list((tmp_path / "node").glob("*/*/data"))


@pytest.mark.skipif(usable_cpus() < 2, reason="two points at a time need two CPUs")
@pytest.mark.parametrize("gpus", [["4", "GPU-x"], ["7"]])
def test_each_running_point_has_a_gpu_of_its_own(gpus: list[str]) -> None:
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ",".join(gpus)}
    words = ("resources.gpus_per_node=1", "resources.cpus_per_task=1", "health.enabled=false", "+until=go")
    sweep = LocalSweep("+lr=range(3)", *words, env=environment)
    sweep.wait_for_starts(len(gpus))
    assert sorted(json.loads(path.read_text())["gpus"] for path in sweep.spans.glob("*.began")) == gpus
    Path("go").touch()
    sweep.wait(finished=3)
    assert sweep.most_at_once() == len(gpus)


def test_the_limit_of_array_tasks_holds_and_can_be_changed() -> None:
    sweep = LocalSweep("+lr=range(4)", "+until=go", "sweep.at_once=1")
    sweep.wait_for_starts(1)
    states = sweep.states()
    assert (states["running"], states["pending"]) == (1, 3)
    assert slurmopt("throttle", str(sweep.path), "2").returncode == 0
    if usable_cpus() > 1:
        sweep.wait_for_starts(2)
    Path("go").touch()
    sweep.wait(finished=4)
    assert sweep.most_at_once() == min(2, usable_cpus())


def test_two_sweeps_share_the_machine() -> None:
    one = LocalSweep("+lr=range(3)", "+nap=0.4")
    two = LocalSweep("+lr=range(3)", "+nap=0.4", "launch.name=two")
    for sweep in (one, two):
        sweep.wait(finished=3)
    assert len(one.began()) == len(two.began()) == 3
    assert one.most_at_once() <= usable_cpus()


def test_a_search_is_run_by_workers_on_this_machine() -> None:
    words = ("+lr=interval(0.1,3)", "sweep.search=random", "sweep.trials=9", "sweep.metric=loss")
    sweep = LocalSweep(*words)
    sweep.wait(finished=9)
    assert len(losses(sweep)) == 9
    assert len(list((sweep.path / "tasks").iterdir())) <= usable_cpus()


def test_what_follows_the_sweep_is_launched_at_its_end() -> None:
    then = "sweep.then='task._target_=train.main +lr=7 launch.name=after monitor.sampler=false'"
    sweep = LocalSweep("+lr=1,2", then)
    sweep.wait(finished=2)
    after = Path("runs/after") / f"{sweep.path.name}-then"
    wait_until(lambda: events.read(after / "events.jsonl", "end"), 30, "what follows has ended")
    assert events.read(after / "events.jsonl", "created")[0]["time"] >= max(
        events.read(run / "events.jsonl", "end")[0]["time"] for run in (sweep.path / "points").iterdir()
    )


def test_a_launch_waits_where_that_is_asked_for_and_its_status_tells_of_failures() -> None:
    done = slurmopt("launch", "-m", *LOCAL, "+lr=1,2", "+bad=[1]", "launch.wait=true")
    assert done.returncode == 1
    assert "1 finished" in done.stdout
    assert "1 failed" in done.stdout


def test_in_a_terminal_the_launch_shows_the_sweep_and_ctrl_c_detaches() -> None:
    ours, theirs = pty.openpty()
    argv = [sys.executable, "-m", "slurmopt", "launch", "-m", *LOCAL, "+lr=1,2", "+until=go", "launch.id=seen"]
    launch = subprocess.Popen(argv, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    shown = b""
    while b"running" not in shown:
        shown += os.read(ours, 4096)
    launch.send_signal(signal.SIGINT)
    assert launch.wait(20) == 130
    while b"which goes on" not in shown:
        shown += os.read(ours, 4096)
    os.close(ours)
    Path("go").touch()
    wait_until(lambda: "2 finished" in slurmopt("list").stdout, 20, "it ends")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["launch.after=[mine]"], "launch.after: only Slurm can wait for another job"),
        (["launch.backend=submitit"], "launch.backend: "),
    ],
)
def test_what_needs_slurm_is_refused_in_one_line(words: list[str], message: str) -> None:
    done = slurmopt("launch", "-m", *LOCAL, "+lr=1,2", *words)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not Path("runs").exists()
