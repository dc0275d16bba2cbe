"""A sweep on this machine, for tests: a training without torch, commands, and what happened when."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from json_answer import data_of
from private_cluster import wait_until

TRAIN = """
import json
import os
import pathlib
import time

import slurmopt


def main(config):
    place = pathlib.Path("spans")
    place.mkdir(exist_ok=True)
    point = os.environ["SLURMOPT_POINT"]
    name = f"{pathlib.Path(os.environ['SLURMOPT_SWEEP']).parent.name}-{point}-{slurmopt.current_run().attempt}"
    gpus = os.environ.get("CUDA_VISIBLE_DEVICES")
    (place / f"{name}.began").write_text(json.dumps({"at": time.time(), "gpus": gpus}))
    if int(point) in config.get("bad", []) and not pathlib.Path("good").exists():
        raise ValueError("bad luck")
    deadline = time.time() + config.get("nap", 0)
    until = config.get("until")
    if until == "next attempt" and slurmopt.current_run().attempt > 0:
        until = None
    while time.time() < deadline or (until and not pathlib.Path(until).exists()):
        if slurmopt.stop_requested():
            raise slurmopt.Requeue("saved")
        time.sleep(0.02)
    (place / f"{name}.ended").write_text(json.dumps({"at": time.time()}))
    return {"loss": config.lr}


main.makes_process_group = True  # without torch
"""
LOCAL = ("launch.backend=local", "task._target_=train.main", "monitor.sampler=false")


def write_project(folder: Path, train: str, experiment: str) -> None:
    """`train.py`, and the experiment `mine`."""
    (folder / "train.py").write_text(train)
    (folder / "conf/experiment").mkdir(parents=True)
    (folder / "conf/experiment/mine.yaml").write_text(experiment)


def slurmopt(*words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "slurmopt", *words]
    return subprocess.run(argv, capture_output=True, text=True, timeout=180, **options)


class LocalSweep:
    """One launched sweep."""

    def __init__(self, *words: str, **options: Any) -> None:
        done = slurmopt("launch", "-m", *LOCAL, "launch.json=true", *words, **options)
        assert done.returncode == 0, done.stderr
        self.launched = data_of(done.stdout)
        self.path = Path(self.launched["run"])
        self.spans = Path("spans").absolute()

    def states(self, points: str = "") -> dict[str, int]:
        done = slurmopt("status", f"{self.path}{points}", "--json")
        (status,) = data_of(done.stdout)
        return dict(status["states"])

    def wait(self, timeout: float = 40, **states: int) -> None:
        """Waits until the runner has ended its work, and the points are in these states then."""
        wait_until(lambda: self.runner() is None, timeout, f"it is {states}", lambda: str(self.states()))
        now = self.states()
        assert now == states, now

    def began(self) -> list[str]:
        """The attempts that have begun, such as 3-0."""
        prefix = f"{self.launched['name']}-"
        return sorted(path.stem.removeprefix(prefix) for path in self.spans.glob(f"{prefix}*.began"))

    def wait_for_starts(self, count: int) -> None:
        wait_until(lambda: len(self.began()) >= count, 30, f"{count} have begun", self.began)

    def most_at_once(self) -> int:
        """How many points, those of other sweeps included, ran at the same moment, at most."""
        moments = []
        for path in self.spans.glob("*.began"):
            moments.append((_at(path), 1))
            moments.append((_at(path.with_suffix(".ended")), -1))
        running, most = 0, 0
        for _, step in sorted(moments):
            running += step
            most = max(most, running)
        return most

    def runner(self) -> int | None:
        pid = json.loads((self.path / "runner.json").read_text())["pid"]
        return None if pid is None else int(pid)

    def shells(self) -> dict[int, int]:
        """Array task of the latest array job → the process of its shell."""
        jobs = json.loads((self.path / "runner.json").read_text())["jobs"]
        return {int(task): process["pid"] for task, process in list(jobs.values())[-1]["running"].items()}

    def processes(self) -> list[int]:
        """All processes that have the sweep's folder in their environment."""
        return [
            pid for pid, text in _processes("environ") if f"SLURMOPT_SWEEP={self.path}".encode() in text.split(b"\0")
        ]


def end_what_is_left(place: Path) -> None:
    """Kills runners and points of sweeps below `place`, of a test that failed."""
    words = (b"array.runner", b"job.sbatch")
    runners = [
        pid for pid, text in _processes("cmdline") if os.fsencode(place) in text and any(word in text for word in words)
    ]
    points = [pid for pid, text in _processes("environ") if b"SLURMOPT_SWEEP=" + os.fsencode(place) in text]
    for pid in [*runners, *points]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _processes(name: str) -> Iterator[tuple[int, bytes]]:
    """All processes, with a file of /proc."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                yield int(entry.name), (entry / name).read_bytes()


def _at(path: Path) -> float:
    return float(json.loads(path.read_text())["at"])


def usable_cpus() -> int:
    return len(os.sched_getaffinity(0))
