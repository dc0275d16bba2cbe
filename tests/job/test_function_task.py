"""Functions in real rank processes: over gloo, failing, dying, never arriving."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import antlr4
import omegaconf
import pytest
import yaml
from job.harness import REPOSITORY, Runner, alive, empty_python, send, wait_for

torch = pytest.importorskip("torch")

SUM = """
import torch, torch.distributed as dist
from slurmopt import current_run, progress, rank_facts

def train(config):
    total = torch.ones(1) * (rank_facts().rank + 1)
    dist.all_reduce(total)
    progress(7, 10, loss=total)
    run = current_run()
    return {"sum": total.item(), "lr": config.lr, "home": config.home, "attempt": run.attempt, "run": run.folder.id}
"""


def test_two_ranks_reduce_and_rank_0s_result_is_kept(runner: Runner) -> None:
    runner.module("sums", SUM)
    runner.environment["TEST_HOME"] = "here"
    assert runner.run(2, "--function", "sums.train") == 0
    assert runner.result()["result"] == {"sum": 3.0, "lr": 0.1, "home": "here", "attempt": 0, "run": "one"}
    assert (runner.last_event()["event"], runner.last_event()["outcome"]) == ("end", "finished")
    for rank in (0, 1):
        beat = runner.beat(rank)
        assert beat is not None
        assert (beat.phase, beat.step, beat.total_steps, beat.first_step) == ("ended", 7, 10, 7)
        assert beat.metrics == {"loss": 3.0}
    assert "torch: " in runner.folder.environment.read_text()


def test_a_world_of_one_has_a_process_group(runner: Runner) -> None:
    runner.module("one", "import torch.distributed as dist\ndef train(config):\n    return dist.get_world_size()\n")
    assert runner.run(1, "--function", "one.train") == 0
    assert runner.result()["result"] == 1


def test_the_failing_ranks_traceback_comes_first_and_starts_in_the_users_code(runner: Runner) -> None:
    runner.module(
        "boom",
        "import torch, torch.distributed as dist\n"
        "def train(config):\n"
        "    if dist.get_rank() == 1:\n"
        "        raise ValueError('no such thing')\n"
        "    dist.all_reduce(torch.ones(1))\n",
    )
    assert runner.run(2, "--function", "boom.train") == 1
    result = runner.result()
    assert (result["outcome"], result["rank"], result["error"]) == ("user error", 1, "ValueError: no such thing")
    lines = runner.story.splitlines()
    assert lines[0] == f"slurmopt: attempt 0: user error in rank 1 on {result['node']}: ValueError: no such thing"
    assert lines[1].startswith("Traceback")
    assert "boom.py" in lines[2]
    assert next(at for at, line in enumerate(lines) if "rank 0" in line) > lines.index("ValueError: no such thing")


def test_a_killed_rank_is_the_cause_and_what_the_others_saw_is_not(runner: Runner) -> None:
    runner.module(
        "die",
        "import os, signal, torch, torch.distributed as dist\n"
        "def train(config):\n"
        "    if dist.get_rank() == 1:\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "    dist.all_reduce(torch.ones(1))\n",
    )
    assert runner.run(2, "--function", "die.train") == 137
    result = runner.result()
    assert (result["outcome"], result["rank"]) == ("killed", 1)
    assert "SIGKILL" in result["error"]


def test_a_rank_that_never_arrives_is_named(runner: Runner) -> None:
    runner.module(
        "late", "import os, time\nif os.environ['RANK'] == '1':\n    time.sleep(60)\ndef train(config): ...\n"
    )
    assert runner.run(2, "--timeout", "2", "--function", "late.train") == 69
    result = runner.result()
    assert (result["outcome"], result["rank"]) == ("infrastructure", 0)
    assert "rank 1 did not arrive" in result["error"]
    assert "within 2 s" in result["error"]
    assert "logs/attempt-0/rank-1.log" in result["error"]


def test_when_rank_0_never_arrives_the_others_say_so(runner: Runner) -> None:
    runner.module(
        "late", "import os, time\nif os.environ['RANK'] == '0':\n    time.sleep(60)\ndef train(config): ...\n"
    )
    assert runner.run(2, "--timeout", "2", "--function", "late.train") == 69
    assert "rank 0 did not arrive" in runner.result()["error"]


def test_an_import_error_is_the_users_and_comes_before_the_process_group(runner: Runner) -> None:
    runner.module("broken", "x = 1\nimport nowhere_to_be_found\ndef train(config): ...\n")
    assert runner.run(2, "--timeout", "30", "--function", "broken.train") == 1
    result = runner.result()
    assert result["error"] == "ModuleNotFoundError: No module named 'nowhere_to_be_found'"
    assert 'broken.py", line 2' in result["traceback"]


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("absent.train", "no module of 'absent.train' is found"),
        ("there.trian", "there has no 'trian'"),
        ("there.number", "is not a function but a int"),
    ],
)
def test_a_target_that_is_not_there(runner: Runner, target: str, told: str) -> None:
    runner.module("there", "number = 1\ndef train(config): ...\n")
    assert runner.run(1, "--function", target) == 1
    assert told in runner.result()["error"]


def test_a_missing_variable_in_the_config_is_named(runner: Runner) -> None:
    runner.folder.config.write_text("data: {path: '${oc.env:NOT_SET_ANYWHERE}'}\n")
    runner.module("there", "def train(config): ...\n")
    assert runner.run(1, "--function", "there.train") == 1
    assert "data.path" in runner.result()["error"]
    assert "NOT_SET_ANYWHERE" in runner.result()["error"]


def test_modules_of_launch_imports_register_their_resolvers(runner: Runner) -> None:
    runner.module(
        "words", "from omegaconf import OmegaConf\nOmegaConf.register_new_resolver('twice', lambda x: 2 * x)\n"
    )
    runner.folder.config.write_text("a: 2\nb: ${twice:${a}}\n")
    runner.lone_function("there", "def train(config):\n    return config.b\n")
    assert runner.run(1, "--import", "words", "--function", "there.train") == 0
    assert runner.result()["result"] == 4


@pytest.mark.parametrize("how", ["raise Requeue('saved')", "raise SystemExit(75)"])
def test_requeue(runner: Runner, how: str) -> None:
    runner.lone_function("again", f"from slurmopt import Requeue\ndef train(config):\n    {how}\n")
    assert runner.run(2, "--function", "again.train") == 75
    assert runner.result()["outcome"] == "requeue"


def test_a_rank_that_loses_those_who_left_to_be_requeued_does_not_spoil_it(runner: Runner) -> None:
    runner.module(
        "again",
        "import torch, torch.distributed as dist\nfrom slurmopt import Requeue\n"
        "def train(config):\n"
        "    if dist.get_rank() == 0:\n        raise Requeue('saved')\n"
        "    dist.all_reduce(torch.ones(1))\n",
    )
    assert runner.run(2, "--function", "again.train") == 75


@pytest.mark.parametrize(("code", "status", "exit_code"), [("None", 0, 0), ("0", 0, 0), ("3", 1, 3), ("'no'", 1, 1)])
def test_sys_exit(runner: Runner, code: str, status: int, exit_code: int) -> None:
    runner.lone_function("leave", f"import sys\ndef train(config):\n    sys.exit({code})\n")
    assert runner.run(1, "--function", "leave.train") == status
    assert runner.result()["exit_code"] == exit_code


WAITING = """
import time, subprocess, signal, os, multiprocessing
from slurmopt import Requeue, stop_requested

def rest():
    time.sleep(100)

def train(config):
    helper = subprocess.Popen(["sleep", "100"])
    print("helper", helper.pid, flush=True)
    while not stop_requested():
        time.sleep(0.01)
    print("saw it", flush=True)
    helper.poll()
    assert helper.returncode is None
    pool = multiprocessing.get_context("fork").Process(target=rest)
    pool.start()
    pool.terminate()
    pool.join()
    raise Requeue("saved")
"""


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGTERM])
def test_a_signal_asks_every_rank_to_stop(runner: Runner, number: signal.Signals) -> None:
    runner.lone_function("waiting", WAITING)
    process = runner.start(2, "--function", "waiting.train")
    for rank in (0, 1):
        runner.wait_for_log(rank, "helper")
    send(process, number)
    assert runner.finish(process) == 75


def test_usr1_to_every_process_of_the_step_leaves_the_helpers_alive(runner: Runner) -> None:
    runner.lone_function("waiting", WAITING)
    process = runner.start(1, "--function", "waiting.train")
    runner.wait_for_log(0, "helper")
    helper = int(runner.log(0).split("helper ")[1].split()[0])
    os.kill(helper, signal.SIGUSR1)  # as slurmstepd does
    send(process, signal.SIGUSR1)
    assert runner.finish(process) == 75


def test_a_stop_request_older_than_the_rank_is_seen(runner: Runner) -> None:
    runner.lone_function(
        "early", "from slurmopt import stop_requested\ndef train(config):\n    print(stop_requested())\n"
    )
    runner.make_folders()
    runner.folder.stop_request(0).touch()
    process = runner.start(1, "--function", "early.train")
    assert runner.finish(process) == 75
    assert "True" in runner.log(0)


def test_the_trainings_own_usr1_handler_runs_too(runner: Runner) -> None:
    runner.lone_function(
        "own",
        "import signal, time\nfrom slurmopt import stop_requested\ngot = []\n"
        "def train(config):\n"
        "    signal.signal(signal.SIGUSR1, lambda *_: got.append(1))\n"
        "    print('ready', flush=True)\n"
        "    while not got: time.sleep(0.01)\n"
        "    print('asked:', stop_requested())\n",
    )
    process = runner.start(1, "--function", "own.train")
    runner.wait_for_log(0, "ready")
    send(process, signal.SIGUSR1)
    assert runner.finish(process) == 75
    assert "asked: True" in runner.log(0)


def test_terms_in_a_burst_leave_the_time_to_save(runner: Runner) -> None:
    """Slurm ends a job by TERM, CONT and TERM, and gives it KillWait then."""
    runner.lone_function(
        "saving",
        "import time\nfrom slurmopt import Requeue, stop_requested\n"
        "def train(config):\n"
        "    print('ready', flush=True)\n"
        "    while not stop_requested(): time.sleep(0.01)\n"
        "    time.sleep(1)\n"
        "    raise Requeue('saved in time')\n",
    )
    process = runner.start(1, "--function", "saving.train")
    runner.wait_for_log(0, "ready")
    for number in (signal.SIGTERM, signal.SIGCONT, signal.SIGTERM):
        send(process, number)
    assert runner.finish(process) == 75
    assert runner.result()["error"] == "saved in time"


def test_without_the_spawn_its_ranks_and_their_children_end(runner: Runner) -> None:
    runner.lone_function("waiting", WAITING)
    process = runner.start(1, "--heartbeat", "0.2", "--function", "waiting.train")
    runner.wait_for_log(0, "helper")
    helper = int(runner.log(0).split("helper ")[1].split()[0])
    send(process, signal.SIGKILL)
    process.wait()
    beat = runner.beat(0)
    assert beat is not None
    wait_for(lambda: not alive(beat.pid) and not alive(helper), "the rank and its helper to end")


def test_a_result_that_json_cannot_hold_is_left_out(runner: Runner) -> None:
    runner.lone_function("odd", "def train(config):\n    return object()\n")
    assert runner.run(1, "--function", "odd.train") == 0
    assert runner.result()["result"] is None
    assert "result.json cannot hold" in runner.log(0)


def test_a_failed_rank_is_not_held_up_by_what_the_user_left_running(runner: Runner) -> None:
    runner.module(
        "held",
        "import threading, time\n"
        "def train(config):\n"
        "    threading.Thread(target=time.sleep, args=(1000,)).start()\n"
        "    raise ValueError('no such thing')\n",
    )
    assert runner.run(1, "--function", "held.train") == 1
    assert runner.result()["error"] == "ValueError: no such thing"


@pytest.fixture
def bare_python(runner: Runner, tmp_path: Path) -> Path:
    """A Python that has omegaconf, and what that needs, but no torch."""
    site = tmp_path / "site"
    site.mkdir()
    for module in (omegaconf, yaml, antlr4):
        (site / module.__name__).symlink_to(Path(str(module.__file__)).parent)
    runner.environment["PYTHONPATH"] = f"{REPOSITORY}:{site}"
    return empty_python(tmp_path)


@pytest.mark.parametrize(("ranks", "told"), [(1, "torch is not installed here"), (2, "a function on 2 ranks needs it")])
def test_without_torch_one_rank_runs_and_two_are_told(runner: Runner, bare_python: Path, ranks: int, told: str) -> None:
    runner.module("plain", "def train(config):\n    return config.lr\n")
    started = runner.start_with(str(bare_python), ranks, "--function", "plain.train")
    assert runner.finish(started) == (0 if ranks == 1 else 1)
    assert runner.result()["result"] == (0.1 if ranks == 1 else None)
    assert told in runner.log(0)
