"""`hydra/launcher=slurmopt` on the local backend: the jobs and the returned values of Hydra's own launcher."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import hydra_application
import pytest

LOCAL = ("hydra/launcher=slurmopt", "hydra.launcher.backend=local", "hydra.launcher.monitor.sampler=false")


class Application:
    """The application's folder, in which the user types."""

    def __init__(self, path: Path) -> None:
        self.path = path
        own = hydra_application.place(path)
        paths = [own["PYTHONPATH"], os.environ.get("PYTHONPATH", "")]
        self.environment = {**os.environ, **own, "PYTHONPATH": ":".join(filter(None, paths))}

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        argv = [*hydra_application.UNTRACED, sys.executable, "source/app.py", "-m", *words]
        return subprocess.run(argv, cwd=self.path, env=self.environment, capture_output=True, text=True, timeout=120)

    def seen(self, folder: str) -> dict[str, dict[str, Any]]:
        """Job folder → what the job saw, without where that was."""
        jobs = {path.parent.name: json.loads(path.read_text()) for path in (self.path / folder).glob("*/seen.json")}
        return {name: {key: job[key] for key in job if key not in ("output", "cwd")} for name, job in jobs.items()}


@pytest.fixture
def application(tmp_path: Path) -> Application:
    return Application(tmp_path)


def test_jobs_on_this_machine_see_what_hydras_own_launcher_shows_them(application: Application) -> None:
    words = ("lr=0.1,0.2", "db=mysql,postgres", "seed=3")
    for folder, launcher in (("theirs", ()), ("ours", LOCAL)):
        done = application.run(*words, f"hydra.sweep.dir={folder}", *launcher)
        assert done.returncode == 0, done.stderr
    assert len(application.seen("ours")) == 4
    assert application.seen("ours") == application.seen("theirs")


def test_a_sweeper_gets_the_values_of_jobs_on_this_machine(application: Application) -> None:
    best = []
    for folder, launcher in (("theirs", ()), ("ours", (*LOCAL, "hydra.launcher.per_task=2"))):
        done = application.run("hydra/sweeper=best", f"hydra.sweep.dir={folder}", *launcher)
        assert done.returncode == 0, done.stderr
        best.append(json.loads((application.path / "best.json").read_text()))
    assert best[0] == best[1]


def test_a_job_that_fails_on_this_machine_fails_the_multirun(application: Application) -> None:
    done = application.run("lr=0.1,0.2", "fail=value", *LOCAL)
    assert done.returncode == 1
    assert "2 of 2 jobs failed" in done.stderr
