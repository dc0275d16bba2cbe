"""Real attempts that hang, each in its own way, side by side; the lookout watches each as the batch shell starts it."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from job.harness import Runner, alive, wait_for

from slurmopt.run_folder import events
from slurmopt.run_folder.layout import RunFolder

TRAIN = """
import os, re, signal, time
from slurmopt import current_run, progress

RANK = int(os.environ.get("RANK", 0))


def note(pid):
    with open("pids", "a") as file:
        file.write(f"{pid}\\n")


def has_a_worker():
    note(os.getpid())
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    worker = os.fork()
    if worker == 0:
        loads_for_ever()
    note(worker)


def loads_for_ever():
    time.sleep(1000)


def waits_for_ever():
    time.sleep(1000)


def stops():
    time.sleep(1.5)  # it beats on: by then it is not yet known to be silent
    os.kill(os.getpid(), signal.SIGSTOP)


def holds_the_gil():
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    re.match("(a+)+$", "a" * 60 + "b")


def steps(last):
    for step in range(1, last + 1):
        time.sleep(0.3 if step == last else 0.02)  # a command's steps are told a few times a second
        progress(step)


def main(how):
    has_a_worker()
    steps(10 if RANK == 1 else 30)
    time.sleep(2)  # until the heartbeat tells of the last step
    how() if RANK == 1 else waits_for_ever()


def sleeping(config):
    import torch
    torch.distributed.all_reduce(torch.ones(3))
    main(waits_for_ever)


def patient(config):
    note(os.getpid())
    steps(10)
    waits_for_ever()


def stopped(config):
    main(stops)


def gil(config):
    main(holds_the_gil)


def away(config):
    note(os.getpid())
    steps(10)
    stops()


def hesitant(config):
    steps(10)
    while not current_run().folder.stacks_request(0).exists():
        time.sleep(0.02)
    for step in range(11, 10**6):
        progress(step)
        time.sleep(0.02)
        if not current_run().folder.stacks_request(0).exists():
            return


def suspended(config):
    note(os.getpid())
    for step in range(1, 10**6):
        progress(step)
        time.sleep(0.02)
        if os.path.exists("enough"):
            return


if __name__ == "__main__":
    note(os.getpid())
    steps(10)
    waits_for_ever()
"""
FUNCTIONS = ("patient", "sleeping", "stopped", "gil", "away", "suspended", "hesitant")
HANGS = ("sleeping", "stopped", "gil", "command")
SUSPENDED_SECONDS = 6
HANG_AFTER = {"patient": "auto", "suspended": str(SUSPENDED_SECONDS - 1)}


@dataclass
class Case:
    """One attempt, its step and its lookout."""

    runner: Runner
    step: subprocess.Popen[str]
    lookout: subprocess.Popen[str]
    said: Path
    outlived_an_outage: bool = False

    @classmethod
    def start(cls, name: str, folder: Path) -> Case:
        run = RunFolder(folder / "run")
        run.make()
        run.events.touch()
        run.config.write_text("lr: 0.1\n")
        (folder / "code").mkdir()
        runner = Runner(run, folder / "code")
        runner.module("train", TRAIN)
        runner.make_folders()
        if name == "away":  # nothing can be put in its place: as if the file system took no writes
            run.stacks_request(0).mkdir()
        tasks = {"command": ["--", sys.executable, "train.py"], "plain": ["--", "sleep", "8"]}
        task = tasks.get(name, ["--function", f"train.{name}"])
        ranks = 2 if name in ("sleeping", "stopped", "gil", "suspended") else 1
        step = runner.start(ranks, "--heartbeat", "0.3", "--hang-after", "2", *task)
        said = folder / "said"
        with said.open("w") as file:
            words = lookout_words(run, ranks, step.pid, heartbeat=3.0 if name == "hesitant" else 0.3)
            words[words.index("--hang-after") + 1] = HANG_AFTER.get(name, "2")
            if name == "patient":
                words += ["--timeout", "4"]
            lookout = subprocess.Popen(words, stdout=file, stderr=file)
        return cls(runner, step, lookout, said)

    @property
    def pids(self) -> list[int]:
        path = self.runner.code / "pids"
        return [int(line) for line in path.read_text().split()] if path.exists() else []

    def hang(self) -> dict[str, Any]:
        found = json.loads(self.runner.folder.hang(0).read_text())
        assert isinstance(found, dict)
        return found

    def finish(self) -> None:
        self.step.communicate(timeout=180)
        self.lookout.wait(timeout=180)

    def clear_up(self) -> None:
        for pid in (*self.pids, self.step.pid, self.lookout.pid):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.finish()


def resume(case: Case) -> None:
    """The lookout first: it looks before any rank has moved."""

    def read() -> int:
        return int(Path(f"/proc/{case.lookout.pid}/io").read_text().split()[1])

    before = read()
    os.kill(case.lookout.pid, signal.SIGCONT)
    wait_for(lambda: read() > before, "a look")
    for pid in case.pids:
        os.kill(pid, signal.SIGCONT)


def lookout_words(run: RunFolder, ranks: int, step: int, heartbeat: float = 0.3) -> list[str]:
    ours = ["--hang-after", "2", "--deadline", "5", "--heartbeat", str(heartbeat), "--step-pid", str(step)]
    return [sys.executable, "-m", "slurmopt.job.watchdog.watchdog", str(run.path), "0", str(ranks), *ours]


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Case]]:
    """All of them, as they are when those that hang have been ended."""
    names = (*FUNCTIONS, "command", "plain")
    found = {name: Case.start(name, tmp_path_factory.mktemp(name)) for name in names}
    suspended, away = found["suspended"], found["away"]
    wait_for(lambda: (beat := suspended.runner.beat(0)) and beat.step, "steps of the one to be suspended")
    for pid in (*suspended.pids, suspended.lookout.pid):
        os.kill(pid, signal.SIGSTOP)
    since = time.monotonic()
    try:
        wait_for(lambda: away.said.read_text().count("the folder cannot be written") > 1, "the lookout's second word")
        away.outlived_an_outage = away.step.poll() is None
        away.runner.folder.stacks_request(0).rmdir()
        for name in HANGS:
            found[name].finish()
        wait_for(lambda: time.monotonic() - since > SUSPENDED_SECONDS, "more than it takes to seem to hang")
        resume(suspended)
        yield found
    finally:
        for case in found.values():
            case.clear_up()


@pytest.mark.parametrize(("name", "rank", "silent"), [
    ("sleeping", 1, []), ("stopped", 1, [1]), ("gil", 1, [1]), ("command", 0, []),
])  # fmt: skip
def test_the_rank_that_stopped_first_is_named(cases: dict[str, Case], name: str, rank: int, silent: list[int]) -> None:
    case = cases[name]
    found = case.hang()
    assert (found["rank"], found["step"], found["phase"], found["silent"]) == (rank, 10, "running", silent)
    assert found["node"] == os.uname().nodename
    assert found["seconds"] >= 2
    (event,) = events.read(case.runner.folder.events)
    assert {key: event[key] for key in ("event", "attempt", "rank", "node", "step", "seconds")} == {
        "event": "hang", "attempt": 0, **{key: found[key] for key in ("rank", "node", "step", "seconds")},
    }  # fmt: skip
    assert f"slurmopt: attempt 0: hang: rank {rank} on {found['node']} stopped first" in case.said.read_text()


@pytest.mark.parametrize("name", HANGS)
def test_the_step_ends_with_all_that_ignores_sigterm(cases: dict[str, Case], name: str) -> None:
    case = cases[name]
    assert case.step.returncode != 0
    assert case.lookout.returncode == 1
    assert len(case.pids) == (1 if name == "command" else 4)
    assert [pid for pid in case.pids if alive(pid)] == []


def test_every_rank_that_beats_writes_its_stacks_and_its_workers(cases: dict[str, Case]) -> None:
    for rank, step in ((0, 30), (1, 10)):
        log = cases["sleeping"].runner.log(rank)
        own, worker = log.split(f"slurmopt: stacks of rank {rank}, step {step}, phase running")[1].split(
            f"slurmopt: stacks of a process below rank {rank}, process "
        )
        assert "in waits_for_ever" in own
        assert "in loads_for_ever" in worker


def test_the_flight_recorder_of_each_rank_lies_with_its_log(cases: dict[str, Case]) -> None:
    for rank in (0, 1):
        path = Path(f"{cases['sleeping'].runner.folder.flight_recorder(0)}{rank}")
        assert path.parent == cases["sleeping"].runner.folder.attempt_logs(0)
        (entry,) = pickle.loads(path.read_bytes())["entries"]
        assert (entry["profiling_name"], entry["input_sizes"]) == ("gloo:all_reduce", [[3]])


def test_stacks_are_written_before_a_collectives_timeout_would_end_the_ranks(cases: dict[str, Case]) -> None:
    case = cases["patient"]
    case.runner.wait_for_log(0, "slurmopt: stacks of rank 0, step 10, phase running")
    case.runner.wait_for_log(0, "in waits_for_ever")
    assert case.said.read_text().startswith("slurmopt: nothing has moved for ")
    assert case.step.poll() is None
    assert not case.runner.folder.hang(0).exists()


def test_a_rank_that_holds_the_gil_writes_its_stacks_all_the_same(cases: dict[str, Case]) -> None:
    assert "in holds_the_gil" in cases["gil"].runner.log(1)


@pytest.mark.parametrize(("name", "whose", "where"), [
    ("stopped", "rank 1, which is silent", "stops (train.py"), ("command", "a process below rank 0", "waits_for_ever"),
])  # fmt: skip
def test_py_spy_is_asked_for_others_or_why_not_is_said(
    cases: dict[str, Case], name: str, whose: str, where: str
) -> None:
    log = cases[name].runner.log(0)
    if f"slurmopt: stacks of {whose}, process" in log:
        assert where in log.split(f"slurmopt: stacks of {whose}, process")[1]
    else:
        (line,) = [line for line in log.splitlines() if f"no stacks of {whose}, process" in line]
        assert "py-spy" in line.rpartition(": ")[2] + line


def test_a_command_that_reports_no_steps_is_left_alone(cases: dict[str, Case]) -> None:
    case = cases["plain"]
    case.finish()
    assert (case.step.returncode, case.lookout.returncode, case.said.read_text()) == (0, 0, "")


def test_what_was_suspended_together_with_its_lookout_goes_on(cases: dict[str, Case]) -> None:
    case = cases["suspended"]
    before = case.runner.beat(0)
    wait_for(lambda: (beat := case.runner.beat(0)) and before and beat.time > before.time, "another heartbeat")
    (case.runner.code / "enough").touch()
    case.finish()
    assert (case.step.returncode, case.lookout.returncode) == (0, 0)
    assert case.said.read_text() == ""


@pytest.mark.slow
def test_what_goes_on_in_the_end_is_left_alone(cases: dict[str, Case]) -> None:
    case = cases["hesitant"]
    case.finish()
    assert (case.step.returncode, case.lookout.returncode) == (0, 0)
    assert case.said.read_text() == "slurmopt: attempt 0 seemed to hang, but goes on\n"
    assert not case.runner.folder.hang(0).exists()
    assert not case.runner.folder.stacks_request(0).exists()


def test_nothing_is_judged_while_the_folder_takes_no_writes(cases: dict[str, Case]) -> None:
    case = cases["away"]
    assert case.outlived_an_outage
    case.finish()
    assert (case.lookout.returncode, case.hang()["silent"]) == (1, [0])


@pytest.mark.parametrize("word", ["soon", "0", "-1", "nan"])
def test_a_wrong_word_ends_with_status_2(tmp_path: Path, word: str) -> None:
    words = lookout_words(RunFolder(tmp_path), 1, os.getpid())
    words[words.index("--hang-after") + 1] = word
    ended = subprocess.run(words, capture_output=True, text=True, timeout=180)
    assert ended.returncode == 2
    assert "--hang-after" in ended.stderr
    assert "Traceback" not in ended.stderr
