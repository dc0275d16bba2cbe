"""Sweeps on the local backend: cancels, time limits, retries, and processes that are killed."""

from __future__ import annotations

import os
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


def kill_runner(sweep: LocalSweep) -> None:
    runner = sweep.runner()
    assert runner is not None
    os.kill(runner, signal.SIGKILL)
    wait_until(lambda: not Path(f"/proc/{runner}/stat").exists(), 10, "the runner is gone")


def test_a_single_point_and_then_the_whole_sweep_are_cancelled() -> None:
    sweep = LocalSweep("+lr=range(5)", "+until=never")
    sweep.wait_for_starts(1)
    done = slurmopt("cancel", f"{sweep.path}/0", "--json")
    assert data_of(done.stdout)["gone"], done
    done = slurmopt("cancel", f"{sweep.path}/4", "--json")
    assert data_of(done.stdout)["gone"], done
    assert sweep.states()["cancelled"] == 2
    sweep.wait_for_starts(2)
    done = slurmopt("cancel", str(sweep.path), "--json")
    assert data_of(done.stdout)["gone"], done
    assert sweep.states() == {"cancelled": 5}
    wait_until(lambda: not sweep.processes(), 10, "all processes have ended", sweep.processes)
    assert "4-0" not in sweep.began()


def test_a_point_of_several_in_an_array_task_is_cancelled_alone() -> None:
    sweep = LocalSweep("+lr=range(4)", "+until=go", "sweep.per_task=4", "monitor.heartbeat=1s")
    sweep.wait_for_starts(1)
    assert slurmopt("cancel", f"{sweep.path}/0,2").returncode == 0
    Path("go").touch()
    sweep.wait(finished=2, cancelled=2)


def test_points_save_before_the_time_limit_and_go_on_after_it() -> None:
    sweep = LocalSweep("+lr=1,2", "+until='next attempt'", "resources.time=30s", "restart.lead=27s")
    sweep.wait(finished=2)
    assert {"0-1", "1-1"} <= set(sweep.began())
    (end, *_) = events.read(sweep.path / "points" / "00000" / "events.jsonl", "end")
    assert (end["cause"], end["next"]) == ("time limit", "requeue")


def test_points_that_failed_are_retried_and_no_other() -> None:
    sweep = LocalSweep("+lr=range(3)", "+bad=[1]")
    sweep.wait(finished=2, failed=1)
    Path("good").touch()
    done = slurmopt("retry", str(sweep.path), "--failed", "resources.cpus_per_task=1")
    assert "point 1 submitted as job local-" in done.stdout, done.stderr
    sweep.wait(finished=3)
    assert sweep.began() == ["0-0", "1-0", "1-1", "2-0"]


def test_a_point_whose_shell_is_killed_is_lost_alone_and_its_ranks_end() -> None:
    sweep = LocalSweep("+lr=1,2", "+until=go", "sweep.at_once=1")
    sweep.wait_for_starts(1)
    os.kill(sweep.shells()[0], signal.SIGKILL)
    sweep.wait_for_starts(2)  # a rank that is about to be ended must not see `go` before
    Path("go").touch()
    sweep.wait(killed=1, finished=1)
    assert slurmopt("retry", str(sweep.path), "--failed").returncode == 0
    sweep.wait(finished=2)
    assert sweep.began() == ["0-0", "0-1", "1-0"]


@pytest.mark.parametrize("command", ["tend", "retry"])
def test_after_the_runner_was_killed_the_rest_is_brought_back_and_nothing_runs_twice(command: str) -> None:
    sweep = LocalSweep("+lr=range(3)", "+until=go", "sweep.at_once=1")
    sweep.wait_for_starts(1)
    kill_runner(sweep)
    assert sweep.states() == {"running": 1, "lost": 2}
    assert "slurmopt tend" in slurmopt("status", f"{sweep.path}/2").stdout
    done = slurmopt(command, str(sweep.path))
    assert done.returncode == 0, done.stderr
    assert sweep.states() == {"running": 1, "pending": 2}
    assert "nothing is to be done" in slurmopt("tend", str(sweep.path)).stderr
    Path("go").touch()
    sweep.wait(finished=3)
    assert sweep.began() == [f"{point}-0" for point in range(3)]
    assert sweep.most_at_once() == 1


def test_after_a_restart_of_the_machine_the_points_go_on_in_their_next_attempts() -> None:
    sweep = LocalSweep("+lr=range(3)", "+until=go")
    sweep.wait_for_starts(min(3, usable_cpus()))
    begun = len(sweep.began())
    kill_runner(sweep)
    end_what_is_left(sweep.path)
    wait_until(lambda: sweep.states() == {"lost": 3}, 10, "all are lost", sweep.states)
    done = slurmopt("tend")
    assert "submitted again as job local-" in done.stdout, done
    Path("go").touch()
    sweep.wait(finished=3)
    assert len([name for name in sweep.began() if name.endswith("-1")]) == begun


def test_a_cancel_after_the_runner_was_killed_ends_what_it_has_started() -> None:
    sweep = LocalSweep("+lr=range(3)", "+until=never", "sweep.at_once=1")
    sweep.wait_for_starts(1)
    kill_runner(sweep)
    done = slurmopt("cancel", str(sweep.path), "--json")
    assert data_of(done.stdout)["gone"], done
    assert sweep.states() == {"cancelled": 3}
    wait_until(lambda: not sweep.processes(), 10, "all processes have ended", sweep.processes)


def test_a_launch_that_was_killed_is_repeated_and_submits_nothing_twice() -> None:
    words = ("+lr=range(2)", "launch.id=same")
    launch = subprocess.Popen([sys.executable, "-m", "slurmopt", "launch", "-m", *LOCAL, "launch.json=true", *words])
    journal = Path("runs/train/same/events.jsonl")
    wait_until(lambda: events.read(journal, "submitting") if journal.exists() else [], 20, "it submits")
    launch.kill()
    launch.wait()
    sweep = LocalSweep(*words)
    assert LocalSweep(*words).launched["job_ids"] == sweep.launched["job_ids"]
    sweep.wait(finished=2)
    assert sweep.began() == ["0-0", "1-0"]
