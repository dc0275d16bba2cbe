"""Run folders made by hand, as launch and job would leave them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slurmopt.run_folder import events
from slurmopt.run_folder.heartbeat import Heartbeat
from slurmopt.run_folder.layout import RunFolder


class Made:
    """One run under the test's `runs/`."""

    def __init__(self, base: Path, name: str, run_id: str) -> None:
        self.folder = RunFolder(base / name / run_id)
        self.folder.make()
        self.event("created", name=name, id=run_id)

    def event(self, word: str, **fields: Any) -> Made:
        events.append(self.folder.events, word, **fields)
        return self

    def submitted(self, job: str = "7", **fields: Any) -> Made:
        backend = fields.pop("backend", "sbatch")
        self.event("submitting", token=f"t{job}", backend=backend)
        return self.event("submitted", token=f"t{job}", backend=backend, job=job, **fields)

    def attempt(self, number: int = 0, job: str = "7", **logs: str) -> Made:
        """Starts an attempt; `rank_0="text"` makes the log of rank 0."""
        self.folder.rank_log(number, 0).parent.mkdir(parents=True)
        for rank, text in logs.items():
            self.folder.rank_log(number, int(rank.removeprefix("rank_"))).write_text(text)
        return self.event("attempt", attempt=number, job=job, nodes="node[1-2]")

    def end(self, outcome: str, number: int = 0, **fields: Any) -> Made:
        return self.event("end", attempt=number, outcome=outcome, **{"exit_code": 0, "rank": None, **fields})

    def beat(self, number: int = 0, rank: int = 0, ago: float = 0.0, **fields: Any) -> Made:
        path = self.folder.heartbeat(number, rank)
        path.parent.mkdir(parents=True, exist_ok=True)
        Heartbeat(rank=rank, world_size=2, node="node1", pid=1, **fields).write(path)
        if ago:
            text = path.read_text().replace(f'"time": {_time_of(path)}', f'"time": {time.time() - ago}')
            path.write_text(text)
        return self


def _time_of(path: Path) -> str:
    return path.read_text().split('"time": ')[1].split(",")[0]


@pytest.fixture
def make_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Made]:
    """Makes runs in `runs/` of the folder that the test stands in, where no Slurm is to be found."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", _without_slurm(tmp_path))

    def make(name: str = "mine", run_id: str = "20261121-120000-aaaa") -> Made:
        return Made(tmp_path / "runs", name, run_id)

    return make


def _without_slurm(tmp_path: Path) -> str:
    """A PATH on which no `squeue` is."""
    tools = tmp_path / ".tools"
    tools.mkdir()
    for tool in ("bash", "env", "sleep"):
        found = next(Path(folder) / tool for folder in os.environ["PATH"].split(":") if (Path(folder) / tool).exists())
        (tools / tool).symlink_to(found)
    return str(tools)
