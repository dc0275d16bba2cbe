"""`slurmopt profile RUN` of real runs on this machine: a function with two ranks, a torchrun whose script knows nothing
of slurmopt, a program without torch, and a run that may not be traced."""

from __future__ import annotations

import gzip
import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from json_answer import data_of, errors_of
from private_cluster import clean_environment, wait_until

WORK = """
import os, sys, time
import torch
import torch.distributed as dist

torch.set_num_threads(1)


def start():
    torch.manual_seed(0)
    model = torch.nn.Linear(64, 64)
    return model, torch.optim.SGD(model.parameters(), lr=0.01)


def step(model, optimizer, combine):
    model(torch.ones(8, 64)).sum().backward()
    for parameter in model.parameters():
        combine(parameter.grad)
    optimizer.step()
    optimizer.zero_grad()


def train(report):
    # Whether the weights after all steps are those of a training that nobody traced.
    (model, optimizer), count, enough = start(), 0, torch.zeros(1)
    while not enough.item():
        step(model, optimizer, dist.all_reduce)
        time.sleep(0.01)
        count += 1
        report(count)
        enough.fill_(float(os.path.exists("enough")))
        dist.broadcast(enough, 0)
    again, optimizer = start()
    for _ in range(count):
        step(again, optimizer, lambda gradient: gradient.mul_(2))
    return bool(torch.equal(model.weight, again.weight))


def main(config):
    from slurmopt import progress

    return {"same": train(progress)}


def stuck(config):
    import ctypes

    from slurmopt import progress

    progress(1)
    while not os.path.exists("awake"):
        time.sleep(0.1)
    ctypes.PyDLL(None).sleep(22)  # a call in C that does not let go of the GIL


if __name__ == "__main__":
    dist.init_process_group("gloo")
    print("same", train(lambda count: open(f"plain-{dist.get_rank()}", "w").write(str(count))), flush=True)
    dist.destroy_process_group()  # without it, gloo may abort at the exit of the process
"""
SLEEP = "import signal; print('awake', flush=True); signal.pause()"
TWO = "resources.tasks_per_node=2"


class Place:
    """A folder with runs in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.runs: dict[str, Path] = {}
        self.answers: dict[str, subprocess.CompletedProcess[str]] = {}
        bin_of_python = str(Path(sys.executable).parent)
        path = os.pathsep.join([bin_of_python, os.environ["PATH"]])
        states = {name: str(folder / name) for name in ("XDG_CACHE_HOME", "XDG_STATE_HOME")}
        self._environment = {**clean_environment(), **states, "PATH": path, "OMP_NUM_THREADS": "1"}
        (folder / "work.py").write_text(WORK)

    def slurmopt(self, *words: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "slurmopt", *words]
        return subprocess.run(
            argv, cwd=self.folder, env=self._environment, capture_output=True, text=True, timeout=180, check=False
        )

    def launch(self, name: str, *words: str) -> Path:
        done = self.slurmopt(
            "launch", f"launch.name={name}", "launch.json=true", "launch.backend=local", "launch.wait=false", *words
        )
        assert done.returncode == 0, done.stderr
        return Path(data_of(done.stdout)["run"])

    def state(self, name: str) -> str:
        (status,) = data_of(self.slurmopt("status", name, "--json").stdout)
        return str(status["state"])


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """All runs, of which each was asked for traces at the same time, and the trainings have ended."""
    place = Place(tmp_path_factory.mktemp("profile"))
    place.runs = {
        "function": place.launch("function", "task._target_=work.main", TWO),
        "plain": place.launch("plain", "task.command=[torchrun,work.py]", TWO),
        "stuck": place.launch("stuck", "task._target_=work.stuck"),
        "bare": place.launch("bare", f'task.command=[{sys.executable},-c,"{SLEEP}"]'),
        "closed": place.launch("closed", "task.command=[sleep,inf]", "profile.enabled=false"),
    }
    try:
        wait_until(lambda: (place.folder / "plain-1").exists(), 40, "the unchanged training makes steps")
        wait_until(
            lambda: min(_step(place.runs["function"], rank) for rank in (0, 1)) > 1, 40, "the function makes steps"
        )
        asked = {
            "function": ("function", "--json"),
            "plain": ("plain", "--ranks", "all", "--seconds", "0.3", "--shapes", "--json"),
            "bare": ("bare",),
            "stuck": ("stuck", "--ranks", "0", "--seconds", "0.2"),
            "closed": ("closed",),
        }
        wait_until(lambda: _step(place.runs["stuck"], 0) == 1, 40, "a rank is about to be stuck")
        (place.folder / "awake").touch()
        with ThreadPoolExecutor() as pool:
            answers = {name: pool.submit(place.slurmopt, "profile", *words) for name, words in asked.items()}
            request = place.runs["plain"] / "heartbeat" / "attempt-0" / "trace"
            wait_until(request.exists, 20, "the first request is there")
            place.answers["second"] = place.slurmopt("profile", "plain", "--ranks", "0")
            place.answers["unknown"] = place.slurmopt("profile", "function", "--ranks", "2")
        place.answers |= {name: answer.result() for name, answer in answers.items()}
        (place.folder / "enough").touch()
        for name in ("function", "plain"):
            place.slurmopt("wait", name)
        yield place
    finally:
        (place.folder / "enough").touch()
        for name in ("function", "plain", "bare", "stuck", "closed"):
            place.slurmopt("cancel", name)


def _step(run: Path, rank: int) -> int:
    try:
        return int(json.loads((run / "heartbeat" / "attempt-0" / f"rank-{rank}.json").read_text())["step"] or 0)
    except FileNotFoundError:
        return 0


def _events(run: Path, capture: dict[str, Any], rank: int) -> list[dict[str, Any]]:
    """The events of a rank's trace."""
    folder = run / "traces" / capture["name"]
    trace = json.loads(gzip.decompress((folder / capture["ranks"][str(rank)]["file"]).read_bytes()))
    assert trace["traceName"]
    return list(trace["traceEvents"])


def _capture(run: Path) -> dict[str, Any]:
    (file,) = (run / "traces").glob("*/capture.json")
    return dict(json.loads(file.read_text()))


@pytest.mark.parametrize("name", ["function", "plain"])
def test_each_asked_rank_has_a_whole_trace_of_its_own_steps(place: Place, name: str) -> None:
    answer = place.answers[name]
    assert answer.returncode == 0, answer.stderr
    told, capture = data_of(answer.stdout), _capture(place.runs[name])
    assert set(capture["ranks"]) == {"0", "1"}
    assert capture["world_size"] == 2
    assert capture["ranks"] == told["ranks"]
    assert told["wall_seconds"] < 30
    for rank in (0, 1):
        events = _events(place.runs[name], capture, rank)
        named = [event for event in events if event.get("name") in ("aten::addmm", "gloo:all_reduce")]
        assert {event["name"] for event in named} == {"aten::addmm", "gloo:all_reduce"}
    # Later for a rank that was asked again: on a busy node Kineto may look too late to begin in time.
    assert all(capture["ranks"][rank]["start"] >= capture["start"] for rank in "01")


def test_steps_become_seconds(place: Place) -> None:
    capture = _capture(place.runs["function"])
    assert capture["steps"] == 5
    assert set(capture["step_times"]) == {"0", "1"}
    assert capture["seconds"] >= 5 * max(capture["step_times"].values())
    for rank in (0, 1):
        events = _events(place.runs["function"], capture, rank)
        assert sum(event.get("name") == "aten::addmm" for event in events) >= 5


@pytest.mark.parametrize("name", ["function", "plain"])
def test_its_traces_are_put_into_words(place: Place, name: str) -> None:
    told = data_of(place.slurmopt("profile", "show", name, "--json").stdout)
    assert [one["rank"] for one in told["ranks"]] == [0, 1]
    for one in told["ranks"]:
        assert one["steps"] >= 2
        assert sum(one["shares"].values()) == pytest.approx(one["seconds"])
        assert one["communication"] > 0
    assert told["straggler"]["collectives"] > 0
    assert "steps" in told["sentences"][0]["text"]


def test_the_training_is_not_changed(place: Place) -> None:
    assert json.loads((place.runs["function"] / "result.json").read_text())["result"] == {"same": True}
    assert place.slurmopt("logs", "plain").stdout.split() == ["same", "True"] * 2
    assert [place.state(name) for name in ("function", "plain")] == ["finished"] * 2


def test_all_of_it_is_private_and_nothing_else_is_left(place: Place) -> None:
    traces = place.runs["plain"] / "traces"
    paths = [traces, *traces.rglob("*")]
    assert {stat.S_IMODE(path.stat().st_mode) for path in paths if path.is_dir()} == {0o700}
    assert {stat.S_IMODE(path.stat().st_mode) for path in paths if path.is_file()} == {0o600}
    names = {"capture.json", "rank-0.json.gz", "rank-1.json.gz", "rank-0.result", "rank-1.result"}
    assert {path.name for path in paths if path.is_file()} == names


@pytest.mark.parametrize(
    ("name", "status", "says"),
    [
        ("bare", 1, "profile: rank 0: it did not answer. It is in the phase running. Only a process that has imported"),
        ("stuck", 1, "profile: rank 0: it did not answer. It is in the phase running, and made step 1 "),
        ("closed", 2, "was launched with profile.enabled=false, and cannot be traced"),
        ("second", 2, "is being traced already"),
        ("unknown", 2, "profile: --ranks 2: there is no such rank; valid: 0 to 1"),
    ],
)
def test_why_there_is_no_trace(place: Place, name: str, status: int, says: str) -> None:
    answer = place.answers[name]
    assert answer.returncode == status
    errors = [line for line in answer.stderr.splitlines() if line.startswith("slurmopt: error: ")]
    assert len(errors) == 1
    assert says in errors[0]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["function"], "has ended: finished; only a running run can be traced"),
        (["bare", "--steps", "3"], "profile: --steps: the training reports no steps; valid: --seconds"),
        (["bare", "--ranks", "slowest"], "the training reports no steps, and --ranks takes only numbers"),
        (
            ["bare", "--ranks", "first"],
            "profile: --ranks 'first' is not valid; valid: slowest, median, all, or numbers",
        ),
        (["bare", "--seconds", "1h"], "'1h' is not valid; valid: 0.05 to 600"),
        (["gone"], "no run 'gone'"),
    ],
)
def test_bad_input(place: Place, words: list[str], says: str) -> None:
    answer = place.slurmopt("profile", *words, "--json")
    assert answer.returncode == 2
    (error,) = errors_of(answer.stdout)
    assert says in error
    assert json.loads(answer.stdout)["command"] == "profile trace"
