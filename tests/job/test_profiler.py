"""Trainings below nsys and ncu, which are simulated, and beside py-spy, which is real."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from job.harness import Runner, alive, send, wait_for
from job.profiler_stand_ins import stand_ins

from slurmopt.config.profiler import Profiler
from slurmopt.job.external_profilers.tools import NOT_NCCL, hindrance

PYTHON = sys.executable
HOT = """
import time


def hot_function():
    return sum(i * i for i in range(20000))


def train(config):
    end = time.monotonic() + 2.5
    while time.monotonic() < end:
        hot_function()
    return 7
"""
SAVES = """
import pathlib
import time

import slurmopt


def train(config):
    if pathlib.Path("saved").exists():
        return "resumed"
    print("trains", flush=True)
    while not slurmopt.stop_requested():
        time.sleep(0.02)
    pathlib.Path("saved").touch()
    raise slurmopt.Requeue("saved")
"""
CATCHES = """
import os, pathlib, signal, sys, time
def save(number, frame):
    pathlib.Path(f"saved-{os.environ['RANK']}").write_text(signal.Signals(number).name)
    sys.exit(75)
signal.signal(signal.SIGUSR1, save)
print("trains", flush=True)
while True:
    time.sleep(0.02)
"""


@pytest.fixture
def simulated(runner: Runner, tmp_path: Path) -> Path:
    """Where the stand-ins note their arguments."""
    runner.environment |= stand_ins(tmp_path / "bin")
    return tmp_path / "bin"


def profiler(name: str, **more: Any) -> tuple[str, str]:
    values = {"ranks": "node" if name == "nsys" else "0", "delay": 0} | more
    return "--profiler", Profiler(name=name, **values).to_json_arg()


def calls(place: Path, name: str) -> list[list[str]]:
    return [json.loads(path.read_text()) for path in sorted(place.glob(f"{name}-*"))]


def reports(runner: Runner) -> list[str]:
    return sorted(path.name for path in runner.folder.profiles(runner.attempt).glob("*"))


def test_nsys_starts_one_rank_of_a_node_and_never_ends_it(runner: Runner, simulated: Path) -> None:
    runner.lone_function("train", HOT)
    assert runner.run(2, *profiler("nsys", seconds=5, arguments=["--stats=true"]), "--function", "train.train") == 0
    assert runner.result()["result"] == 7
    (words,) = calls(simulated, "nsys")
    assert {"--kill=none", "--delay=0", "--duration=5", "--sample=none", "--stats=true"} <= set(words)
    assert reports(runner) == ["rank-0.nsys-rep"]
    assert runner.folder.profiles(0).stat().st_mode & 0o077 == 0
    assert "the report of nsys is" in runner.log(0)


def test_ncu_never_replays_kernels_of_nccl(runner: Runner, simulated: Path) -> None:
    runner.module("train", "raise SystemExit(0)")
    assert runner.run(2, *profiler("ncu", launches=3, cuda_range=True), "--", PYTHON, "train.py") == 0
    (words,) = calls(simulated, "ncu")
    assert {f"--kernel-name={NOT_NCCL}", "--launch-count=3", "--kill=no", "--profile-from-start=off"} <= set(words)
    assert reports(runner) == ["rank-0.ncu-rep"]


@pytest.mark.parametrize("how", ["", "hides", "loses"])
def test_the_exit_status_is_the_trainings(runner: Runner, simulated: Path, how: str) -> None:
    runner.environment["STAND_IN"] = how
    assert runner.run(1, *profiler("nsys"), "--", "sh", "-c", "exit 42") == 1
    assert runner.result()["exit_code"] == 42
    assert ("wrote no report" in runner.log(0)) == (how == "loses")


def test_an_error_of_the_function_is_the_result(runner: Runner, simulated: Path) -> None:
    runner.environment["STAND_IN"] = "hides"
    runner.lone_function("train", "def train(config):\n    raise ValueError('bad data')\n")
    assert runner.run(1, *profiler("nsys"), "--function", "train.train") == 1
    assert runner.result()["error"] == "ValueError: bad data"


def test_a_training_that_is_killed_is_killed(runner: Runner, simulated: Path) -> None:
    runner.environment["STAND_IN"] = "hides"
    runner.lone_function("train", "import os\n\n\ndef train(config):\n    os.kill(os.getpid(), 9)\n")
    assert runner.run(1, *profiler("nsys"), "--function", "train.train") == 137
    assert runner.result()["outcome"] == "killed"


@pytest.mark.parametrize("how", ["", "dies"])
def test_a_function_below_nsys_saves_before_the_time_limit(runner: Runner, simulated: Path, how: str) -> None:
    runner.environment["STAND_IN"] = how
    runner.lone_function("train", SAVES)
    process = runner.start(2, *profiler("nsys"), "--heartbeat", "0.3", "--function", "train.train")
    for rank in (0, 1):
        runner.wait_for_log(rank, "trains")
    if how == "dies":
        runner.wait_for_log(0, "which goes on unprofiled")
    send(process, signal.SIGUSR1)
    assert runner.finish(process) == 75
    runner.attempt = 1
    assert runner.run(2, *profiler("nsys"), "--function", "train.train") == 0
    assert runner.result()["result"] == "resumed"


@pytest.mark.parametrize("how", ["", "dies"])
def test_a_command_below_nsys_gets_the_signal_and_not_nsys(runner: Runner, simulated: Path, how: str) -> None:
    runner.environment["STAND_IN"] = how
    runner.module("train", CATCHES)
    words = ("--forward", "USR1", "--heartbeat", "0.3", "--", "sh", "-c", f"{PYTHON} train.py; exit $?")
    process = runner.start(2, *profiler("nsys"), *words)
    for rank in (0, 1):
        runner.wait_for_log(rank, "trains")
    send(process, signal.SIGUSR1)
    assert runner.finish(process) == 75
    assert [(runner.code / f"saved-{rank}").read_text() for rank in (0, 1)] == ["SIGUSR1", "SIGUSR1"]


@pytest.mark.parametrize("words", [("--function", "train.train"), ("--", PYTHON, "-c", "print('trained')")])
def test_a_profiler_that_refuses_leaves_the_training_alone(
    runner: Runner, simulated: Path, words: tuple[str, ...]
) -> None:
    runner.environment["STAND_IN"] = "refuses"
    runner.lone_function("train", "def train(config):\n    print('trained')\n")
    assert runner.run(1, *profiler("nsys"), *words) == 0
    assert runner.log(0).count("trained") == 1
    assert "nsys did not start the training" in runner.log(0)


@pytest.mark.parametrize("words", [("--function", "train.train"), ("--", PYTHON, "-c", "print('trained')")])
def test_a_profiler_that_is_missing_is_a_line(runner: Runner, words: tuple[str, ...]) -> None:
    runner.environment["PATH"] = "/usr/bin:/bin"
    runner.lone_function("train", "def train(config):\n    print('trained')\n")
    assert runner.run(1, *profiler("nsys"), *words) == 0
    lines = [line for line in runner.log(0).splitlines() if "profiled" in line]
    assert lines == [
        "slurmopt: rank 0 is not profiled: nsys is not on PATH of this node; the training goes on without nsys"
    ]


def test_the_training_ends_with_its_rank(runner: Runner, simulated: Path) -> None:
    runner.module("train", "import os, time\nprint('I am', os.getpid(), flush=True)\ntime.sleep(100)\n")
    process = runner.start(1, *profiler("nsys"), "--heartbeat", "0.3", "--", PYTHON, "train.py")
    runner.wait_for_log(0, "I am")
    training = int(runner.log(0).split("I am ")[1].split()[0])
    beat = wait_for(lambda: runner.beat(0), "a heartbeat")
    os.kill(beat.pid, signal.SIGKILL)
    wait_for(lambda: not alive(training), "the end of the training")
    process.communicate()


def test_what_keeps_a_profiler_from_working(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", stand_ins(tmp_path / "bin")["PATH"])
    driver, yama, mine, roots = (tmp_path / name for name in ("params", "scope", "mine", "roots"))
    driver.write_text("EnableMSI: 1\nRmProfilingAdminOnly: 1\n")
    mine.write_text("CapEff:\t0000000000000000\n")
    roots.write_text("CapEff:\t000001ffffffffff\n")
    told = hindrance("ncu", {}, driver, yama, mine)
    assert "ERR_NVGPUCTRPERM" in str(told)
    assert hindrance("ncu", {}, driver, yama, roots) is None
    assert hindrance("nsys", {}, driver, yama, mine) is None, "its traces need no counters"
    assert "nsys already" in str(hindrance("nsys", {"NSYS_PROFILING_SESSION_ID": "1"}, driver, yama, mine))
    driver.write_text("RmProfilingAdminOnly: 0\n")
    assert hindrance("ncu", {}, driver, yama, mine) is None


@pytest.mark.skipif(shutil.which("py-spy", path=str(Path(PYTHON).parent)) is None, reason="py-spy is not installed")
class TestPySpy:
    """With the real py-spy."""

    def test_the_hot_function_is_in_the_report(self, runner: Runner) -> None:
        runner.lone_function("train", HOT)
        assert runner.run(2, *profiler("py-spy", seconds=1), "--function", "train.train") == 0
        assert runner.result()["result"] == 7
        assert reports(runner) == ["rank-0.speedscope.json"]
        assert "hot_function" in frames(runner)

    def test_a_command_and_what_it_starts_are_sampled_until_it_ends(self, runner: Runner) -> None:
        runner.module("train", HOT + "\ntrain(None)\nraise SystemExit(42)\n")
        assert runner.run(1, *profiler("py-spy", seconds=100), "--", "sh", "-c", f"{PYTHON} train.py; exit $?") == 1
        assert runner.result()["exit_code"] == 42
        assert "hot_function" in frames(runner)

    def test_what_is_recorded_at_a_stop_is_kept(self, runner: Runner, tmp_path: Path) -> None:
        works = (
            "while not pathlib.Path('sampled').exists(): time.sleep(0.02)\n"
            "    end = time.process_time() + 0.5\n"
            "    while time.process_time() < end: sum(range(20000))\n"
            "    print('trains', flush=True)"
        )
        runner.lone_function("train", SAVES.replace('print("trains", flush=True)', works))
        runner.environment["TMPDIR"] = str(tmp_path)
        process = runner.start(2, *profiler("py-spy", seconds=100), "--heartbeat", "0.3", "--function", "train.train")
        said = "slurmopt-profiler-*/said"
        wait_for(lambda: any("Sampling" in path.read_text() for path in tmp_path.glob(said)), "py-spy")
        (runner.code / "sampled").touch()
        for rank in (0, 1):
            runner.wait_for_log(rank, "trains")
        send(process, signal.SIGUSR1)
        assert runner.finish(process) == 75
        assert reports(runner) == ["rank-0.speedscope.json"]
        assert "train" in frames(runner)

    def test_a_training_outlives_its_py_spy(self, runner: Runner) -> None:
        runner.lone_function("train", HOT)
        process = runner.start(1, *profiler("py-spy", seconds=100), "--heartbeat", "0.3", "--function", "train.train")
        (pid, *_) = wait_for(lambda: py_spies(runner), "py-spy")
        os.kill(pid, signal.SIGKILL)
        assert runner.finish(process) == 0
        assert runner.result()["result"] == 7
        assert "py-spy was killed by SIGKILL, and wrote no report" in runner.log(0)


def frames(runner: Runner) -> set[str]:
    report = json.loads((runner.folder.profiles(runner.attempt) / "rank-0.speedscope.json").read_text())
    return {frame["name"] for frame in report["shared"]["frames"]}


def py_spies(runner: Runner) -> list[int]:
    """The process ids of the py-spies that sample a rank of this run."""
    beats = [runner.beat(rank) for rank in range(runner.ranks)]
    asked = [f"--pid={beat.pid}".encode() for beat in beats if beat is not None]
    found = []
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdecimal() else []
        except OSError:
            continue
        if any(word in words for word in asked):
            found.append(int(entry.name))
    return found
