"""Twenty mistakes that people make most often, and the line that each of them gets: what is wrong, and what to type."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
from json_answer import data_of

from slurmopt import cli

TRAIN = "import time\n\ndef main(config):\n    time.sleep(config.get('seconds', 0))\n"
MISTAKES = [
    ("launch mine", "'mine' is not an override; to launch that experiment: slurmopt launch +experiment=mine"),
    ("launch conf/experiment/mine.yaml", "to launch that experiment: slurmopt launch +experiment=mine"),
    (
        "launch +experiment=mien",
        "there is no config 'experiment/mien' (did you mean 'mine'?); available: bare, bench_collectives, mine",
    ),
    ("launch experiment=mine", "use +experiment=mine"),
    ("launch +experiment=bare", "its first line must be: # @package _global_"),
    ("launch +experiment=mine lr=0.1,0.2", "lr: has several values; add -m for a sweep"),
    ("launch +experiment=mine --lr 0.1", "--lr: unknown option; a key of the config has no dashes: lr=0.1"),
    ("launch +experiment=mine lr = 0.1", "'lr' is not an override; write it without spaces: lr=0.1"),
    ("launch +experiment=mine learning_rate=1", "learning_rate: no such key; to add one of your own write +learning"),
    ("launch +experiment=mine resources.gpus=8", "resources.gpus: unknown key (did you mean 'gpus_per_node'?)"),
    ("launch +experiment=mine resources.time=2days", "resources.time: not a time: '2days'; valid are minutes,"),
    ("launch python train.py", "'python' is not an override; to run a command: slurmopt run -- python train.py"),
    ("launch job.sbatch", "'job.sbatch' is a batch script; make an experiment of it: slurmopt import job.sbatch"),
    ("launch 'task.command=python train.py && date'", "slurmopt run -- bash -c 'python train.py && date'"),
    ("run -- python trian.py", "task.command: there is no 'trian.py' in {folder} (did you mean 'train.py'?)"),
    ("run -- python train.py '|' tee log", "'|' is an operator of a shell, and no shell runs the command; write: bash"),
    ("run --lr 0.1 python train.py", "--lr: unknown option; options of the command go behind it: slurmopt run"),
    ("run 'python train.py --lr 1'", "the command is one word, 'python train.py --lr 1'; leave out its quotes"),
    ("run -N 3 -G 8 -- python train.py", "-G 8 are not the same number of GPUs on each of 3 nodes; valid: a multiple"),
    ("statsu", "no command 'statsu' (did you mean 'status'?)"),
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project as people have it."""
    experiments = tmp_path / "conf" / "experiment"
    experiments.mkdir(parents=True)
    (experiments / "mine.yaml").write_text("# @package _global_\ntask: {_target_: train.main}\nlr: 0.1\n")
    (experiments / "bare.yaml").write_text("task: {_target_: train.main}\nlr: 0.1\n")
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "job.sbatch").write_text("#!/bin/bash\n#SBATCH -N 2\nsrun python train.py\n")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(sys.executable)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setenv("SLURMOPT_FOLDER", str(tmp_path / "runs"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(("typed", "answer"), MISTAKES, ids=[typed for typed, _ in MISTAKES])
def test_a_typical_mistake_gets_one_line(
    typed: str, answer: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = shlex.split(typed)
    local = ["--local"] if words[0] in ("launch", "run") else []
    assert cli.main([words[0], *local, *words[1:]]) == 2
    said = capsys.readouterr()
    assert answer.replace("{folder}", str(folder)) in said.err.replace(" --local ", " ")
    assert len(said.err.splitlines()) == 1
    assert said.out == ""
    assert not (folder / "runs").exists()


def test_a_finished_run_is_retried_only_when_it_is_meant(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", "--local", "--", "true"]) == 0
    capsys.readouterr()
    assert cli.main(["retry"]) == 2
    assert "has finished, so there is nothing to retry; to let it go on all the same, add --again" in (
        capsys.readouterr().err
    )


def test_a_time_limit_that_the_last_run_exceeded(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["launch", "--local", "+experiment=mine", "+seconds=3", "resources.time=5m"]) == 0
    assert "took: at the limit" not in capsys.readouterr().err
    words = ["launch", "--local", "+experiment=mine", "resources.time=2s", "restart.lead=1s", "--dry-run"]
    assert cli.main(words) == 0
    assert "resources.time: 2s is less than the " in capsys.readouterr().err


def test_a_secret_that_is_not_set_where_the_job_is_launched(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HF_TOKEN", raising=False)
    words = ["launch", "--local", "+experiment=mine", "--dry-run", "+environment.variables.HF_TOKEN=${oc.env:HF_TOKEN}"]
    assert cli.main(words) == 0
    assert "environment.variables: HF_TOKEN is not set here: export before you launch" in capsys.readouterr().err
    assert cli.main([*words, "environment.setup=['export HF_TOKEN=x']"]) == 0
    assert "HF_TOKEN is not set" not in capsys.readouterr().err
    monkeypatch.setenv("HF_TOKEN", "x")
    assert cli.main(words) == 0
    assert "HF_TOKEN is not set" not in capsys.readouterr().err


def test_what_the_cluster_is_asked_for(project: Any) -> None:
    words = ["run", "-p", "main", "--dry-run", "-G", "8", "-n", "2", "--mem", "80", "--", "true"]
    said = project.slurmopt(*words).stderr
    assert "resources.tasks_per_node: 2 for 8 GPUs on each node: GPUs that no rank chooses itself stay idle" in said
    assert "resources.memory: 80 is 80 MB, as in Slurm; write 80G if gigabytes are meant" in said
    many = project.slurmopt("run", "-p", "main", "-G", "8", "-c", "999", "--", "true", check=False)
    assert many.returncode == 2
    assert "resources.cpus_per_task: 7992 CPUs a node is more than any node of partition main has" in many.stderr
    assert data_of(project.slurmopt("list", "--json").stdout) == []
