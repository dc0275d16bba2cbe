"""A third-party Hydra application under `hydra/launcher=slurmopt`, on a real Slurm, beside Hydra's own launcher."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import hydra_application
import pytest
from private_cluster import wait_until

OURS = ("hydra/launcher=slurmopt", "hydra.launcher.resources.time=5m")
PENDING = "+hydra.launcher.resources.extra.begin=now+9999"


class Application:
    """The application's folder, in which the user types."""

    def __init__(self, project: Any) -> None:
        self.project = project
        self.path: Path = project.path
        self.environment = {
            **hydra_application.place(self.path),
            "XDG_CACHE_HOME": str(self.path / "cache"),
            "XDG_STATE_HOME": str(self.path / "state"),
        }
        subprocess.run(["chown", "-R", project.user, self.path], check=True)

    def run(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        argv = [*(() if check else hydra_application.UNTRACED), sys.executable, "source/app.py", "-m", *words]
        return self.project.run(argv, env=self.environment, check=check, timeout=120)  # type: ignore[no-any-return]

    def seen(self, folder: str) -> dict[str, dict[str, Any]]:
        """Job folder → what the job saw, and what Hydra stored of it."""
        return {path.parent.name: _seen(path.parent) for path in (self.path / folder).glob("*/seen.json")}

    def notes(self) -> list[dict[str, Any]]:
        """What the callbacks wrote since the last time."""
        file = self.path / "notes.jsonl"
        found = [json.loads(line) for line in file.read_text().splitlines()]
        file.unlink()
        return found

    def sweep(self, folder: str) -> Path:
        (path,) = (self.path / folder / ".slurmopt" / "app").iterdir()
        return path


def _seen(folder: Path) -> dict[str, Any]:
    seen: dict[str, Any] = json.loads((folder / "seen.json").read_text())
    assert Path(seen.pop("output")) == Path(seen.pop("cwd")) == folder
    stored = {name: (folder / ".hydra" / name).read_text() for name in ("config.yaml", "overrides.yaml")}
    return {**seen, **stored, "log": (folder / "app.log").exists()}


@pytest.fixture
def application(project: Any) -> Application:
    return Application(project)


def test_jobs_see_what_hydras_own_launcher_shows_them(application: Application) -> None:
    words = ("lr=0.1,0.2", "db=mysql,postgres", "seed=3", "fail=pools", r"note='$(touch pwned) \'${lr}\' %j;'")
    application.run(*words, "hydra.sweep.dir=theirs")
    expected = application.notes()
    application.run(*words, "hydra.sweep.dir=ours", *OURS)
    theirs, ours = application.seen("theirs"), application.seen("ours")
    assert len(ours) == 4
    assert ours == theirs
    assert {job["copied"] for job in ours.values()} == {"from the launch"}
    assert all(job["typed"] and job["pickled"] and job["pools"] for job in ours.values())
    notes = application.notes()
    assert sorted(map(str, notes)) == sorted(map(str, expected))
    assert (notes[0], notes[-1]) == ({"event": "multirun start"}, {"event": "multirun end"})
    assert not list(application.path.rglob("pwned"))
    table = application.project.slurmopt("results", str(application.sweep("ours")), "--csv").stdout
    assert "0.2,postgres" in table


def test_a_sweeper_that_needs_values_gets_them(application: Application) -> None:
    application.run("hydra/sweeper=best", "hydra.sweep.dir=theirs")
    expected = json.loads((application.path / "best.json").read_text())
    application.run("hydra/sweeper=best", "hydra.sweep.dir=ours", *OURS, "hydra.launcher.per_task=2")
    assert json.loads((application.path / "best.json").read_text()) == expected
    assert [job["num"] for job in expected] == [0, 1, 2]
    assert all(job["own class"] for job in expected)


def test_of_packed_jobs_each_fails_for_itself(application: Application) -> None:
    packing = ("hydra.launcher.per_task=6", "hydra.launcher.side_by_side=2", "hydra/sweeper=slurmopt")
    done = application.run("fail=no,value,own,kill,exit,generator", *OURS, *packing, check=False)
    assert done.returncode == 1
    assert "3 of 6 jobs failed" in done.stderr
    assert "ValueError: lr 0.1 is no good" in done.stderr
    assert 'app.py", line' in done.stderr
    assert "job 2: the function's OutOfIdeas cannot go back" in done.stderr
    ended = {note["num"]: note["status"] for note in application.notes() if note["event"] == "job end"}
    assert ended == {0: "COMPLETED", 1: "FAILED", 2: "FAILED", 5: "COMPLETED"}
    assert [seen["num"] for seen in application.seen("out").values()] == [0]
    failures = application.project.slurmopt("status", str(application.sweep("out"))).stdout
    assert "3 finished · 2 failed · 1 killed" in failures


def test_not_waiting_returns_at_once_and_refuses_who_needs_values(application: Application) -> None:
    unwaited = ("hydra.launcher.wait=false", PENDING, *OURS)
    refused = application.run("hydra/sweeper=best", *unwaited, check=False)
    assert refused.returncode == 1
    assert refused.stderr.startswith("hydra.launcher.wait: false does not go with hydra_plugins.best_sweeper")
    assert not (application.path / "out" / ".slurmopt").exists()
    done = application.run("lr=1,2", *unwaited)
    sweep = application.sweep("out").relative_to(application.path)
    assert f"slurmopt cancel {sweep}" in done.stderr
    assert application.project.run(["squeue", "-h", "-r"]).stdout.count("\n") == 2


def test_launcher_options_reach_the_environment_through_keys_of_the_application(application: Application) -> None:
    application.environment |= {"OUT": str(application.path / "scratch"), "PARTITION": "main", "MINUTES": "5"}
    words = ("hydra.sweep.dir=${oc.env:OUT}/mine", "+part=${oc.env:PARTITION}", "+minutes=${oc.env:MINUTES}")
    options = (
        "hydra.launcher.resources.partition=${part}",
        "hydra.launcher.resources.time=${minutes}m",
        "hydra.launcher.resources.nodes=${oc.decode:'1'}",
        "+hydra.launcher.environment.variables={WHERE:'${hydra.sweep.dir}'}",
    )
    application.run("seed=3,4", *words, "hydra/launcher=slurmopt", *options)
    assert [job["twice"] for _, job in sorted(application.seen("scratch/mine").items())] == [6, 8]
    sweep = application.sweep("scratch/mine")
    stored = (sweep / "config.yaml").read_text()
    assert "partition: ${oc.env:PARTITION}" in stored
    assert "WHERE: ${oc.env:OUT}/mine" in stored
    script = (sweep / "job.sbatch").read_text()
    assert "#SBATCH --partition=main" in script
    assert "#SBATCH --time=00:05:00" in script
    hidden = "+hydra.launcher.environment.variables={KEY:'${oc.decode:${part}}'}"
    refused = application.run("seed=3,4", *words, *OURS, hidden, check=False)
    assert refused.returncode == 1
    assert refused.stderr.startswith("hydra.launcher.environment.variables.KEY: uses oc.env inside another resolver")


def test_a_snapshot_keeps_code_and_configs_as_they_were(application: Application) -> None:
    application.run("seed=3,4", "hydra.launcher.environment.snapshot=copy", "hydra.launcher.wait=false", PENDING, *OURS)
    (application.path / "source" / "neighbour.py").write_text("raise SystemExit('edited')\n")
    (application.path / "source" / "conf" / "db" / "mysql.yaml").write_text("port: 1\n")
    job = application.project.run(["squeue", "-h", "-o", "%F"]).stdout.split()[0]
    application.project.run(["scontrol", "update", f"JobId={job}", "StartTime=now"])
    wait_until(lambda: len(application.seen("out")) == 2, 60, "both have run")
    assert [(job["twice"], job["port"]) for _, job in sorted(application.seen("out").items())] == [(6, 3306), (8, 3306)]


def test_ctrl_c_lets_go_of_the_jobs(application: Application) -> None:
    argv = [sys.executable, "source/app.py", "-m", "lr=1,2", PENDING, *OURS]
    environment = {**application.project.environment(), **application.environment}
    options = {"cwd": application.path, "env": environment, "user": application.project.user, "text": True}
    waiting = subprocess.Popen(argv, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, **options)
    assert waiting.stderr is not None
    assert any("2 pending" in line for line in waiting.stderr)
    os.kill(waiting.pid, signal.SIGINT)
    said = waiting.communicate(timeout=180)[1]
    assert waiting.returncode == 130
    assert (
        f"interrupted; the jobs continue; slurmopt status {application.sweep('out').relative_to(application.path)}"
        in said
    )
    assert application.project.run(["squeue", "-h", "-r"]).stdout.count("\n") == 2


def test_what_slurmopt_refuses_is_one_line_in_hydras_words(application: Application) -> None:
    refused = application.run("lr=1,2", *OURS, "hydra.launcher.resources.nodes=9", check=False)
    assert refused.returncode == 1
    assert refused.stderr.startswith("hydra.launcher.resources.nodes: 9 are more than")
    assert "Traceback" not in refused.stderr
    assert not (application.path / "out" / ".slurmopt").exists()
    script = application.run("lr=1,2", *OURS, "hydra.launcher.dry_run=true").stdout
    assert script.startswith("#!/bin/bash")
    assert "--time=" in script
    assert not (application.path / "out" / ".slurmopt").exists()
