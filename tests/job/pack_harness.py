"""A sweep folder and a real parent in it, for the tests of packed points."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from job.harness import DEADLINE, REPOSITORY

from slurmopt.grid import points_file
from slurmopt.grid.axes import Axis, Column
from slurmopt.grid.base_configs import Base
from slurmopt.grid.points import Points
from slurmopt.grid.records import readable
from slurmopt.restart.policy import Policy
from slurmopt.run_folder import events
from slurmopt.run_folder.access.files import replace_text
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.sweep_layout import SweepFolder


@dataclass
class Packer:
    """Starts attempts of one array task, as the batch shell would."""

    sweep: SweepFolder
    code: Path
    environment: dict[str, str] = field(default_factory=dict)
    attempt: int = 0
    count: int = 0
    output: str = ""
    submission: int = 0

    @property
    def task(self) -> RunFolder:
        return self.sweep.task(self.submission, 0)

    def points(self, count: int, config: dict[str, Any] | None = None, axis: str = "n", kind: str = "grid") -> None:
        """`count` points, whose key `axis` is 0, 1, …"""
        self.count = count
        task = {"_target_": "train.main", "command": None}
        base = Base(picks=[], config={axis: 0, "task": task, **(config or {})}, choices={})
        axes = [Axis((Column(key=axis, values=range(count)),))]
        points_file.save(Points(axes=axes, bases=[base], hydra=[{}], kind=kind), self.sweep.points_file)

    def module(self, text: str) -> None:
        """Writes the user's module; the parent finds it in its working directory."""
        (self.code / "train.py").write_text(text)

    def start(self, *words: str, task: tuple[str, ...] = ("--function", "train.main")) -> subprocess.Popen[str]:
        for part in (self.task.logs, self.task.heartbeats):
            (part / f"attempt-{self.attempt}").mkdir(parents=True, exist_ok=True)
        events.append(self.task.events, "attempt", attempt=self.attempt, job="7_0")
        own = [str(self.sweep.path), str(self.submission), f"0-{self.count - 1}", str(self.count)]
        if "--policy" not in words:
            words = ("--policy", Policy().to_json_arg(), *words)
        if "--heartbeat" not in words:
            words = (*words, "--heartbeat", "0.3")
        return subprocess.Popen(
            [sys.executable, "-m", "slurmopt.job.pack", *own, *words, *task],
            cwd=self.code,
            env=self._environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *words: str, task: tuple[str, ...] = ("--function", "train.main")) -> int:
        return self.finish(self.start(*words, task=task))

    def finish(self, process: subprocess.Popen[str]) -> int:
        """The parent's exit status; the next start is another attempt of the array task."""
        self.output = process.communicate(timeout=DEADLINE)[0]
        self.attempt += 1
        return process.returncode

    def _environment(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM", "PET_")) and k != "RANK"}
        ours = {"PYTHONPATH": str(REPOSITORY), "PYTHONUNBUFFERED": "1"}
        ours |= {"SLURMOPT_RUN_FOLDER": str(self.task.path), "SLURMOPT_ATTEMPT": str(self.attempt)}
        ours |= {"SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "0", "SLURM_JOB_NODELIST": "node1"}
        return kept | ours | self.environment

    def run_of(self, point: int) -> RunFolder:
        """The point's folder, or what it was."""
        return readable(self.sweep.point(point))

    def take_out(self, point: int, task: str) -> RunFolder:
        """As if `task` had been killed before it archived an ended point."""
        archived, run = self.run_of(point), self.sweep.packed_point(point, task)
        shutil.copytree(archived.kept, run.kept)
        lines = (self.task.path / "points.jsonl").read_text().splitlines(keepends=True)
        others = [line for line in lines if json.loads(line)["point"] != point]
        replace_text(self.task.path / "points.jsonl", "".join(others))
        return run

    def log(self, point: int, attempt: int = 0, rank: int = 0) -> str:
        path = self.run_of(point).rank_log(attempt, rank)
        return path.read_text(errors="replace") if path.exists() else ""

    def events(self, point: int, word: str = "end") -> list[dict[str, Any]]:
        return [event for event in events.read(self.run_of(point).events) if event["event"] == word]

    def end(self, point: int) -> dict[str, Any]:
        """The point's last `end`."""
        return self.events(point)[-1]

    def outcome(self) -> dict[str, Any]:
        """The parent's own, of its last attempt."""
        from slurmopt.run_folder import heartbeat

        beat = heartbeat.read(self.task.heartbeat(self.attempt - 1, 0))
        assert beat is not None
        assert beat.outcome is not None, self.output
        return beat.outcome

    def told(self, state: str = "ended") -> list[dict[str, Any]]:
        """What the array task's journal tells of its points."""
        found = [event for event in events.read(self.task.events) if event["event"] == "point"]
        return [event for event in found if event["state"] == state]


def lines(text: str, *, of: Callable[[str], bool]) -> list[str]:
    return [line for line in text.splitlines() if of(line)]
