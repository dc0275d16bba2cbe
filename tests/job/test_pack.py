"""A packed array task: its points are runs of their own, in milliseconds, and nothing of one reaches another."""

from __future__ import annotations

import importlib.util
import os
import signal
from pathlib import Path

import pytest
from job.harness import alive, wait_for
from job.pack_harness import Packer

from slurmopt.config.composition.stored_yaml import load
from slurmopt.run_folder.sweep_layout import SweepFolder

needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="NOT TESTED: torch is not installed")
needs_numpy = pytest.mark.skipif(importlib.util.find_spec("numpy") is None, reason="NOT TESTED: numpy is not installed")


@pytest.fixture
def packer(tmp_path: Path) -> Packer:
    sweep = SweepFolder(tmp_path / "runs" / "test" / "one")
    sweep.logs.mkdir(parents=True)
    sweep.path.chmod(0o700)
    (code := tmp_path / "code").mkdir()
    return Packer(sweep, code)


def test_a_point_that_writes_nothing_of_its_own_leaves_no_files_of_its_own(packer: Packer) -> None:
    packer.points(2, {"lr": 0.5})
    packer.module(
        "import os, sys, slurmopt\n"
        "def main(config):\n"
        "    run = slurmopt.current_run()\n"
        "    print(run.folder.path.name, run.attempt, os.environ['SLURMOPT_POINT'], os.environ['SLURMOPT_SWEEP'])\n"
        "    print(os.environ['SLURMOPT_CONFIG'], len(sys.argv), file=sys.stderr)\n"
        "    slurmopt.progress(7, 9, loss=config.lr + config.n)\n"
        "    return {'n': config.n}\n"
    )
    assert packer.run() == 0, packer.output
    assert not list(packer.sweep.points.iterdir())
    assert len([path for path in packer.task.path.rglob("*") if path.is_file()]) <= 10
    folder = packer.run_of(1)
    assert load(folder.config) == {"n": 1, "task": {"_target_": "train.main", "command": None}, "lr": 0.5}
    files = {str(path.relative_to(folder.kept)) for path in folder.kept.rglob("*") if path.is_file()}
    assert files == {"config.yaml", "events.jsonl", "logs/attempt-0/rank-0.log"}
    said, config = packer.log(1).splitlines()
    assert said == f"00001 0 1 {packer.sweep.path}"
    assert config.startswith(str(packer.sweep.packed_point(1, "0-0").config))
    end = packer.end(1)
    assert (end["cause"], end["next"], end["step"], end["metrics"]) == ("finished", None, 7, {"loss": 1.5})
    assert end["result"] == {"n": 1}
    assert end["seconds"] < 60
    assert [event["point"] for event in packer.told("started")] == [0, 1]
    told = packer.told()
    assert [event["point"] for event in told] == [0, 1]
    assert {key: told[1][key] for key in ("outcome", "metrics", "result", "attempt")} == {
        "outcome": "finished", "metrics": {"loss": 1.5}, "result": {"n": 1}, "attempt": 0,
    }  # fmt: skip
    assert packer.events(1, "attempt")[0]["job"] == "7_0"


KEEPS = """
from pathlib import Path
import slurmopt
def main(config):
    run = slurmopt.current_run()
    print(config.n, "in attempt", run.attempt)
    slurmopt.progress(run.attempt + 1)
    if config.n == 1:
        (run.folder.path / "mine.txt").write_text("mine")
    if config.n == 2 and run.attempt == 0:
        raise slurmopt.Requeue("again")
    if config.n == 4:
        run.folder.logs.joinpath("mine").mkdir()
"""


def test_what_a_point_writes_stays_where_it_wrote_it(packer: Packer) -> None:
    packer.points(6)
    packer.module(KEEPS)
    assert packer.run() == 0, packer.output
    assert [path.name for path in packer.sweep.points.iterdir()] == ["00001"]
    assert [path.name for path in (packer.task.path / "points").iterdir()] == ["00004"]
    assert (packer.sweep.point(1).path / "mine.txt").read_text() == "mine"
    assert [packer.log(point) for point in (0, 1, 5)] == ["0 in attempt 0\n", "1 in attempt 0\n", "5 in attempt 0\n"]
    assert [packer.log(2, attempt=attempt) for attempt in (0, 1)] == ["2 in attempt 0\n", "2 in attempt 1\n"]
    assert [end["next"] for end in packer.events(2)] == ["requeue", None]


def test_a_batch_of_ended_points_is_archived_while_others_run(packer: Packer) -> None:
    packer.points(80)
    packer.module(
        "import time\nfrom pathlib import Path\ndef main(config):\n    print('point', config.n)\n"
        "    while config.n == 79 and not Path('go').exists():\n        time.sleep(0.05)\n"
    )
    process = packer.start()
    records = packer.task.path / "points"
    wait_for(lambda: (records / "00079").exists() and len(list(records.iterdir())) < 80, "a batch")
    (packer.code / "go").touch()
    assert packer.finish(process) == 0, packer.output
    assert not [*packer.sweep.points.iterdir(), *records.iterdir()]
    assert [packer.log(point) for point in range(80)] == [f"point {point}\n" for point in range(80)]
    assert [load(packer.run_of(point).config)["n"] for point in (0, 1, 63, 64, 79)] == [0, 1, 63, 64, 79]


def test_the_users_module_is_imported_once(packer: Packer) -> None:
    packer.points(3)
    packer.module(
        "import os\nprint('imported', flush=True)\nPARENT = os.getpid()\n"
        "def main(config):\n    assert os.getppid() == PARENT\n    return os.getpid()\n"
    )
    assert packer.run() == 0, packer.output
    assert packer.output.count("imported") == 1
    assert len({event["result"] for event in packer.told()}) == 3


CRASHES = """
import os, signal, time
def main(config):
    if config.n == 1:
        os.kill(os.getpid(), signal.SIGSEGV)
    if config.n == 2:
        os._exit(3)
    if config.n == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    if config.n == 4:
        raise ValueError("bad data")
    if config.n == 5:
        os._exit(0)
    time.sleep(0.5)
"""


def test_a_crash_hurts_no_other_point_and_is_told_with_its_cause(packer: Packer) -> None:
    packer.points(8)
    packer.module(CRASHES)
    assert packer.run("--side-by-side", "8") == 1
    ends = {point: packer.end(point) for point in range(8)}
    assert [ends[point]["cause"] for point in (0, 6, 7)] == ["finished"] * 3
    assert ends[1]["cause"] == "killed"
    assert "SIGSEGV" in ends[1]["error"]
    assert (ends[2]["cause"], ends[2]["exit_code"]) == ("user error", 3)
    assert "exit status 3" in ends[2]["error"]
    assert "SIGKILL" in ends[3]["error"]
    assert ends[4]["error"] == "ValueError: bad data"
    assert ends[5]["cause"] == "user error"
    assert packer.outcome()["error"] == "5 of 8 points failed: 1-5"
    assert "point 4, attempt 0: user error" in packer.output
    # What may come back did, and ended for want of progress.
    assert [len(packer.events(point)) for point in range(8)] == [1, 2, 1, 2, 1, 1, 1, 1]


def test_points_side_by_side_share_the_node_and_have_a_port_each(packer: Packer) -> None:
    packer.points(4)
    packer.environment = {"CUDA_VISIBLE_DEVICES": "4,5,6,7", "SLURM_GPUS_ON_NODE": "4"}
    packer.module(
        "import os, time\n"
        "def main(config):\n"
        "    time.sleep(0.5)\n"
        "    names = ('MASTER_PORT', 'CUDA_VISIBLE_DEVICES', 'OMP_NUM_THREADS', 'SLURM_GPUS_ON_NODE', 'WORLD_SIZE')\n"
        "    return [os.environ[name] for name in names] + [sorted(os.sched_getaffinity(0))]\n"
    )
    assert packer.run("--side-by-side", "2") == 0, packer.output
    results = {event["point"]: event["result"] for event in packer.told()}
    ports, gpus, threads, count, world, cpus = zip(*(results[point] for point in range(4)), strict=True)
    assert ports[0] != ports[1]
    assert set(gpus) == {"4,5", "6,7"}
    assert gpus[0] != gpus[1]
    assert (set(count), set(world)) == ({"2"}, {"1"})
    mine = sorted(os.sched_getaffinity(0))
    if len(mine) > 1:
        assert sorted(cpus[0] + cpus[1]) == mine
        assert threads[0] == str(max(1, len(cpus[0])))


def test_fewer_gpus_than_points_are_shared(packer: Packer) -> None:
    packer.points(3)
    packer.environment = {"CUDA_VISIBLE_DEVICES": "2"}
    packer.module("import os\ndef main(config):\n    return os.environ['CUDA_VISIBLE_DEVICES']\n")
    assert packer.run("--side-by-side", "3") == 0, packer.output
    assert {event["result"] for event in packer.told()} == {"2"}


def test_a_command_is_a_point_too(packer: Packer) -> None:
    packer.points(2, {"task": {"command": ["bash", "-c", "echo point $SLURMOPT_POINT; exit $SLURMOPT_POINT"]}})
    assert packer.run(task=("--", "bash")) == 1
    assert packer.log(1) == "point 1\n"
    assert [packer.end(point)["cause"] for point in (0, 1)] == ["finished", "user error"]


@needs_torch
def test_two_ranks_a_point(packer: Packer) -> None:
    packer.points(2)
    packer.module(
        "import torch, torch.distributed as dist\n"
        "def main(config):\n"
        "    total = torch.ones(1) * (dist.get_rank() + config.n)\n"
        "    dist.all_reduce(total)\n"
        "    print('rank', dist.get_rank(), 'of', dist.get_world_size())\n"
        "    return total.item()\n"
    )
    assert packer.run("--ranks", "2", "--side-by-side", "2") == 0, packer.output
    assert {event["point"]: event["result"] for event in packer.told()} == {0: 1.0, 1: 3.0}
    assert [packer.log(1, rank=rank).strip() for rank in (0, 1)] == ["rank 0 of 2", "rank 1 of 2"]


@pytest.mark.slow
@needs_torch
def test_the_first_rank_that_fails_is_the_cause_and_ends_the_other(packer: Packer) -> None:
    packer.points(1)
    packer.module(
        "import time, torch.distributed as dist\n"
        "def main(config):\n"
        "    if dist.get_rank() == 1:\n"
        "        raise ValueError('rank 1 is unhappy')\n"
        "    dist.barrier()\n"
    )
    assert packer.run("--ranks", "2") == 1
    end = packer.end(0)
    assert (end["rank"], end["error"], end["cause"]) == (1, "ValueError: rank 1 is unhappy", "user error")


def test_dice_are_those_of_a_fresh_python(packer: Packer) -> None:
    packer.points(3)
    packer.module("import random\ndef main(config):\n    return random.random()\n")
    assert packer.run() == 0, packer.output
    assert len({event["result"] for event in packer.told()}) == 3


def test_dice_that_the_users_module_has_seeded_stay_so(packer: Packer) -> None:
    packer.points(3)
    packer.module("import random\nrandom.seed(3)\ndef main(config):\n    return random.random()\n")
    assert packer.run() == 0, packer.output
    import random

    assert {event["result"] for event in packer.told()} == {random.Random(3).random()}


@needs_numpy
@pytest.mark.parametrize(("seed", "different"), [("", 2), ("numpy.random.seed(3)\n", 1)])
def test_numpys_dice_too(packer: Packer, seed: str, different: int) -> None:
    packer.points(2)
    packer.module(f"import numpy\n{seed}def main(config):\n    return numpy.random.random()\n")
    assert packer.run() == 0, packer.output
    assert len({event["result"] for event in packer.told()}) == different


def test_what_a_module_registered_for_its_exit_runs_once_and_what_a_point_did_in_the_point(packer: Packer) -> None:
    packer.points(2)
    packer.module(
        "import atexit\natexit.register(print, 'bye of the import')\n"
        "def main(config):\n    atexit.register(print, 'bye of the point')\n"
    )
    assert packer.run() == 0, packer.output
    assert packer.output.count("bye of the import") == 1
    assert packer.log(0) == "bye of the point\n"


def test_a_failing_import_is_told_once_and_is_each_points_error(packer: Packer) -> None:
    packer.points(2)
    packer.module("import there_is_no_such_module\n")
    assert packer.run() == 1
    assert packer.output.count("each point will fail") == 1
    for point in (0, 1):
        end = packer.end(point)
        assert (end["cause"], end["outcome"]) == ("user error", "user error")
        assert "there_is_no_such_module" in end["error"]
        assert "Traceback" in packer.log(point)


def test_a_module_that_asks_for_its_run_at_import_gets_the_points(packer: Packer) -> None:
    packer.points(2)
    packer.module(
        "import slurmopt\nHERE = slurmopt.current_run().folder.path.name\ndef main(config):\n    return HERE\n"
    )
    assert packer.run() == 0, packer.output
    assert [event["result"] for event in packer.told()] == ["00000", "00001"]


def test_variables_of_the_points_config_are_set_before_its_module_is_imported(packer: Packer) -> None:
    packer.points(2, {"environment": {"variables": {"SPEED": "${n}", "BASE": "b"}}})
    packer.module("import os\ndef main(config):\n    return os.environ['SPEED'] + os.environ['BASE']\n")
    assert packer.run() == 0, packer.output
    assert [event["result"] for event in packer.told()] == ["0b", "1b"]


def test_what_hydras_own_sweep_calls_environment_is_the_users_and_the_module_is_imported_once(packer: Packer) -> None:
    packer.points(2, axis="environment.wind", kind="hydra")
    packer.module("print('imported', flush=True)\ndef main(config):\n    pass\n")
    assert packer.run() == 0, packer.output
    assert packer.output.count("imported") == 1


def test_a_result_that_is_too_large_is_left_out(packer: Packer) -> None:
    packer.points(1)
    packer.module("def main(config):\n    return 'x' * 20000\n")
    assert packer.run() == 0, packer.output
    assert packer.end(0)["result"] is None


def test_a_config_that_cannot_be_made_is_that_points_error(packer: Packer) -> None:
    packer.points(2, {"lr": "${oc.dict.keys:nothing}"})
    packer.module("def main(config):\n    pass\n")
    assert packer.run() == 1
    assert [event["cause"] for event in packer.told()] == ["user error"] * 2
    assert "point 1: lr" in packer.output


def test_what_a_point_leaves_behind_ends_with_it(packer: Packer) -> None:
    packer.points(2)
    packer.module(
        "import subprocess, time\nfrom pathlib import Path\n"
        "def main(config):\n"
        "    if config.n == 0:\n"
        "        return subprocess.Popen(['sleep', '1000']).pid\n"
        "    while not Path('go').exists():\n"
        "        time.sleep(0.05)\n"
    )
    process = packer.start()
    pid = wait_for(lambda: [event["result"] for event in packer.told()], "the end of point 0")[0]
    wait_for(lambda: not alive(pid), "the end of its child")
    (packer.code / "go").touch()
    assert packer.finish(process) == 0


def test_signals_reach_a_point_as_they_would_a_rank(packer: Packer) -> None:
    """No signal that the parent holds back stays held back in a point, nor in what it starts."""
    packer.points(1)
    packer.module(
        "import signal, subprocess\n"
        "def main(config):\n"
        "    child = subprocess.Popen(['sleep', '1000'])\n"
        "    child.terminate()\n"
        "    return [child.wait(), sorted(int(one) for one in signal.pthread_sigmask(signal.SIG_BLOCK, []))]\n"
    )
    assert packer.run() == 0, packer.output
    assert packer.told()[0]["result"] == [-signal.SIGTERM, [int(signal.SIGUSR1)]]


def test_a_forked_point_has_one_thread_for_signals(packer: Packer) -> None:
    packer.points(1)
    packer.module(
        "import threading\ndef main(config):\n    return sorted(each.name for each in threading.enumerate())\n"
    )
    assert packer.run(task=("--of-point",)) == 0, packer.output
    assert packer.told()[0]["result"] == ["MainThread", "slurmopt-heartbeat", "slurmopt-signals"]


@pytest.mark.slow
@needs_torch
def test_where_an_import_has_asked_the_driver_for_gpus_each_point_starts_a_python(packer: Packer) -> None:
    """There is no GPU here: torch is made to say so, and as torch does it in forked processes alone."""
    packer.points(1)
    packer.module(
        "import os, torch\nprint('imported', flush=True)\nparent = os.getpid()\n"
        "torch.version.hip, torch.cuda._is_in_bad_fork = '7.0', lambda: os.getpid() != parent\n"
        "def main(config):\n    return torch.cuda._is_in_bad_fork()\n"
    )
    assert packer.run(task=("--of-point",)) == 0, packer.output
    assert packer.output.count("each point starts a Python of its own") == 1
    assert packer.told()[0]["result"] is False


@pytest.mark.slow
@needs_torch
def test_where_an_import_has_initialised_cuda_each_point_starts_a_python(packer: Packer) -> None:
    """There is no GPU here: torch is made to say so."""
    packer.points(1)
    packer.module(
        "import torch\nprint('imported', flush=True)\ntorch.cuda.is_initialized = lambda: True\n"
        "def main(config):\n    return config.n\n"
    )
    assert packer.run(task=("--of-point",)) == 0, packer.output
    assert packer.log(0).count("imported") == 1
    assert packer.output.count("each point starts a Python of its own") == 1
    assert [event["cause"] for event in packer.events(0)] == ["finished"]
    assert packer.told()[0]["result"] == 0


def test_a_word_that_is_none_ends_the_parent_at_once(packer: Packer) -> None:
    packer.points(1)
    assert packer.run("--side-by-side", "none") == 2
    assert "'none' is not a whole number above 0" in packer.output
