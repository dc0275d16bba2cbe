"""The sampler as a process beside real ranks: when it starts and ends, and that nothing it does harms the training."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from job.harness import Runner, alive, wait_for
from job.monitor.laid_out import here

from slurmopt.job.monitor import sampler as loop
from slurmopt.job.monitor.reader import Reader
from slurmopt.job.monitor.sampler import Sampler
from slurmopt.job.monitor.series_writer import SeriesWriter
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.series import series
from slurmopt.run_folder.series.series import Series

MONITOR = ("--monitor", '{"every":1}', "--heartbeat", "0.3")
STEPS = """
import os, time
import slurmopt

for step in range(1, 1_000_000):
    slurmopt.progress(step)
    time.sleep(0.02)
    if os.path.exists("end"):
        break
"""
FUNCTIONS = """
import os, time

def closes_pipes(config):
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and os.path.exists(f"/proc/self/fd/{name}"):
            if os.readlink(f"/proc/self/fd/{name}").startswith("pipe:"):
                os.close(int(name))
    while not os.path.exists("end"):
        time.sleep(0.02)

def waits_for_all_children(config):
    while not os.path.exists("end"):
        time.sleep(0.02)
    try:
        while True:
            os.wait()
    except ChildProcessError:
        return "no child"

closes_pipes.makes_process_group = waits_for_all_children.makes_process_group = True  # without torch
"""


def samplers(folder: RunFolder) -> list[int]:
    """The processes of the run's samplers."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = Path(f"/proc/{name}/cmdline").read_bytes()
        except OSError:
            continue
        if b"slurmopt.job.monitor" in words and str(folder.path).encode() in words and b"/sh" not in words[:8]:
            found.append(int(name))
    return found


def sampler(runner: Runner) -> int:
    (pid,) = wait_for(lambda: samplers(runner.folder), "a sampler")
    wait_for(lambda: status(pid)["SigIgn"], "it ignores signals")
    return int(pid)


def status(pid: int) -> dict[str, str]:
    text = Path(f"/proc/{pid}/status").read_text()
    return {key: value.strip() for key, _, value in (line.partition(":") for line in text.splitlines())}


def measured(runner: Runner) -> Series:
    (node,) = runner.folder.nodes_with_series(runner.attempt)
    found = series.read(
        runner.folder.series(runner.attempt, node), runner.folder.recent_series(runner.attempt, node), detail=True
    )
    assert found is not None
    return found


def start(runner: Runner, ranks: int = 1) -> subprocess.Popen[str]:
    """A command that makes steps until `end`. It starts faster than a function, which has torch imported."""
    runner.module("work", STEPS)
    process = runner.start(ranks, *MONITOR, "--", sys.executable, "work.py")
    wait_for(lambda: all((beat := runner.beat(rank)) and beat.step for rank in range(ranks)), "steps")
    return process


def start_function(runner: Runner, function: str) -> subprocess.Popen[str]:
    runner.module("work", FUNCTIONS)
    return runner.start(1, *MONITOR, "--function", f"work.{function}")


def end(runner: Runner) -> None:
    (runner.code / "end").touch()


def test_one_sampler_measures_both_ranks_and_leaves_its_last_row(runner: Runner) -> None:
    process = start(runner, 2)
    pid = sampler(runner)
    wait_for(lambda: all((beat := runner.beat(rank)) and (beat.step or 0) > 20 for rank in (0, 1)), "steps")
    assert samplers(runner.folder) == [pid]
    end(runner)
    assert runner.finish(process) == 0
    assert not alive(pid), "the rank has waited for it"
    assert "sampler" not in runner.log(0)
    found = measured(runner)
    last = [(runner.beat(rank).step, found.values[f"rank{rank}.step"][-1]) for rank in (0, 1)]  # type: ignore[union-attr]
    assert last[0][0] == last[0][1], "of its own rank it has the last step"
    assert found.values["rank1.step"][-1]
    assert found.facts["cpus"] >= 1
    assert found.facts["host_memory"] > 1 << 20


def test_without_the_word_there_is_no_sampler(runner: Runner) -> None:
    runner.module("work", STEPS)
    end(runner)
    assert runner.run(1, "--", sys.executable, "work.py") == 0
    assert runner.folder.nodes_with_series(0) == []


@pytest.mark.parametrize("who", ["rank", "starter"])
def test_a_killed_rank_leaves_no_sampler(runner: Runner, who: str) -> None:
    process = start(runner)
    pid, beat = sampler(runner), runner.beat(0)
    assert beat is not None
    os.kill(beat.pid if who == "rank" else process.pid, signal.SIGKILL)
    wait_for(lambda: not alive(pid), "the sampler is gone")
    process.communicate(timeout=180)


@pytest.mark.parametrize(
    ("number", "said"),
    [(signal.SIGKILL, "has ended before the rank"), (signal.SIGSTOP, "has not ended after 1 s, and is not waited for")],
)
def test_a_sampler_that_is_killed_or_stopped_does_not_matter(runner: Runner, number: signal.Signals, said: str) -> None:
    process = start(runner, 2)
    pid = sampler(runner)
    os.kill(pid, number)
    before = runner.beat(1)
    assert before is not None
    wait_for(lambda: (beat := runner.beat(1)) and (beat.step or 0) > (before.step or 0) + 150, "the training goes on")
    end(runner)
    assert runner.finish(process) == 0
    wait_for(lambda: not alive(pid), "nothing is left")
    (line,) = [line for line in runner.log(0).splitlines() if "sampler" in line]
    assert said in line


def test_the_signals_of_a_job_do_not_end_it_and_it_is_no_process_below_the_rank(runner: Runner) -> None:
    process = start(runner)
    pid, beat = sampler(runner), runner.beat(0)
    assert beat is not None
    for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP, signal.SIGINT):
        os.kill(pid, number)
    facts = status(pid)
    assert int(facts["SigBlk"], 16) == 0, "what blocks USR1 counts as waiting for it, and a step would wait for that"
    assert int(facts["PPid"]) != beat.pid
    assert alive(pid)
    end(runner)
    assert runner.finish(process) == 0


def test_a_training_that_closes_what_it_found_open_keeps_its_sampler_until_its_end(runner: Runner) -> None:
    process = start_function(runner, "closes_pipes")
    pid = sampler(runner)
    wait_for(lambda: runner.folder.nodes_with_series(0) and len(measured(runner).times) >= 2, "two rows")
    assert alive(pid)
    end(runner)
    process.communicate(timeout=180)
    wait_for(lambda: not alive(pid), "the sampler is gone")


def test_a_training_may_wait_for_all_of_its_children(runner: Runner) -> None:
    process = start_function(runner, "waits_for_all_children")
    sampler(runner)
    end(runner)
    assert runner.finish(process) == 0
    assert runner.result()["result"] == "no child"


def test_a_command_that_dies_of_its_signal_is_not_waited_for_because_of_the_sampler(runner: Runner) -> None:
    process = runner.start(1, *MONITOR, "--", "bash", "-c", "sleep 1000")
    sampler(runner)
    wait_for(lambda: (beat := runner.beat(0)) and beat.phase == "running", "the command runs")
    beat = runner.beat(0)
    assert beat is not None
    os.kill(beat.pid, signal.SIGTERM)
    process.communicate(timeout=180)
    wait_for(lambda: not samplers(runner.folder), "the sampler is gone")


def test_a_series_that_cannot_be_written_is_one_line_in_the_log(runner: Runner) -> None:
    """A folder in which the series cannot lie: the training does not notice."""
    (runner.folder.path / "series").write_text("a file in its place")
    process = start(runner)
    sampler(runner)
    end(runner)
    assert runner.finish(process) == 0
    assert "of the sampler is not written: Not a directory" in runner.log(0)


class Simulated:
    """A source that does what a test wants."""

    name = "simulated"

    def __init__(self, read: Callable[[], dict[str, float]]) -> None:
        self._read = read

    def facts(self) -> dict[str, Any]:
        return {"simulated": True}

    def absent(self) -> dict[str, str]:
        return {"gpu0.sm": "not supported"}

    def read(self) -> dict[str, float]:
        return self._read()

    def events(self) -> list[dict[str, Any]]:
        return []

    def close(self) -> None:
        return


def sampled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reads: dict[str, Callable[[], dict[str, float]]]
) -> Series:
    """What a sampler in this process writes in a second and a half, with rows of a tenth of a second."""
    monkeypatch.setattr(loop, "ROW_SECONDS", 0.1)
    monkeypatch.setattr(loop, "_WAIT_SECONDS", 0.02)
    place = here(tmp_path, pid=os.getpid())
    object.__setattr__(place, "every", 0.05)
    readers = [Reader(name, lambda read=read: Simulated(read), 0.3) for name, read in reads.items()]  # type: ignore[misc]
    told, tell = os.pipe()
    before = os.dup(0)
    os.dup2(told, 0)
    one = Sampler(place, readers, SeriesWriter(place.run, 0, "n1"), lambda: None)
    monkeypatch.setattr(one, "_rank_lives", lambda: time.monotonic() < until)
    until = time.monotonic() + 1.5
    try:
        one.run()
    finally:
        os.dup2(before, 0)
        for descriptor in (told, tell, before):
            os.close(descriptor)
    found = series.read(place.run.series(0, "n1"), place.run.recent_series(0, "n1"), detail=True)
    assert found is not None
    return found


def test_a_source_that_hangs_has_no_values_and_one_event(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def hangs() -> dict[str, float]:
        calls.append(time.monotonic())
        if len(calls) > 2:
            time.sleep(60)
        return {"gpu0.util": 50.0}

    found = sampled(tmp_path, monkeypatch, {"gpu": hangs, "node": lambda: {"node.cpu": 1.0}})
    assert set(found.values["node.cpu"]) == {1}, "the other source goes on"
    assert found.values["gpu0.util"][0] == 50
    assert found.values["gpu0.util"][-1] is None
    slow = [event for event in found.events if event["event"] == "slow"]
    assert [event["source"] for event in slow] == ["gpu"], "it is told once"
    assert slow[0]["seconds"] >= 0.3


def test_a_source_that_fails_is_told_once_and_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def fails() -> dict[str, float]:
        calls.append(1)
        if 3 < len(calls) < 12:
            raise RuntimeError("the driver\nis gone")
        return {"gpu0.util": 0.0}

    found = sampled(tmp_path, monkeypatch, {"gpu": fails})
    assert [(one["event"], one["error"]) for one in found.events] == [("failed", "RuntimeError: the driver\\nis gone")]
    assert found.values["gpu0.util"][0] == found.values["gpu0.util"][-1] == 0
    assert None in found.values["gpu0.util"]
    assert found.absent == {"gpu0.sm": "not supported"}
    assert found.facts["simulated"] is True


def test_a_clock_that_is_set_changes_no_length_and_is_an_event(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, began = time.time, time.monotonic()
    monkeypatch.setattr(loop.time, "time", lambda: real() - (3600 if time.monotonic() > began + 0.7 else 0))
    found = sampled(tmp_path, monkeypatch, {"node": lambda: {"node.cpu": 1.0}})
    (event,) = [one for one in found.events if one["event"] == "clock"]
    assert event["seconds"] == pytest.approx(-3600, abs=1)
    assert 1 < sum(found.seconds) < 3
    assert found.times == sorted(found.times)
    assert found.times[-1] - found.times[0] < 3


def test_the_sampler_imports_little() -> None:
    code = (
        "import sys\n"
        "from slurmopt.job.monitor import sampler\n"
        "from slurmopt.job.monitor.sources import network, node, ranks\n"
        "print([name for name in ('asyncio', 'logging', 'msgspec', 'torch', 'numpy', 'hydra') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
