"""The words after `slurmopt launch`: options, overrides, and what somebody meant by anything else."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurmopt import launch
from slurmopt.errors import InputError
from slurmopt.launching import arguments


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two experiments, a script and a batch script."""
    (tmp_path / "conf" / "experiment" / "vision").mkdir(parents=True)
    for name in ("mine", "vision/large"):
        (tmp_path / "conf" / "experiment" / f"{name}.yaml").write_text("# @package _global_\nlr: 0.1\n")
    (tmp_path / "train.py").write_text("")
    (tmp_path / "job.sbatch").write_text("#!/bin/bash\n#SBATCH -N 2\nsrun python train.py\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("typed", "overrides"),
    [
        (["+experiment=mine", "lr=2", "~data"], ["+experiment=mine", "lr=2", "~data"]),
        (["--local", "+experiment=mine", "--dry-run", "lr=2"], ["lr=2", "launch.backend=local", "launch.dry_run=true"]),
        (["--backend", "submitit"], ["launch.backend=submitit"]),
        (["--name", "a, b"], ["launch.name='a, b'"]),
        (["--name=1"], ["launch.name='1'"]),
        (["--wait"], ["launch.wait=true"]),
        (["--no-wait"], ["launch.wait=false"]),
        (["--json", "--folder", "/there"], ["launch.folder=/there", "launch.json=true"]),
        (["lr=-1"], ["lr=-1"]),
    ],
)
def test_options_stand_for_keys(typed: list[str], overrides: list[str]) -> None:
    assert [word for word in arguments.parse(typed).overrides if word != "+experiment=mine"] == [
        word for word in overrides if word != "+experiment=mine"
    ]


@pytest.mark.parametrize(
    ("typed", "shown"),
    [
        (["--cfg", "job", "--local"], ["--cfg", "job", "launch.backend=local"]),
        (["-c", "job", "-p", "task"], ["--cfg", "job", "--package", "task"]),
        (["--info"], ["--info", "all"]),
        (["--hydra-help"], ["--hydra-help"]),
        (["-m", "--cfg", "job", "lr=1,2"], ["--cfg", "job", "-m", "lr=1,2"]),
        (["-p", "task"], []),
    ],
)
def test_what_hydra_shows(typed: list[str], shown: list[str]) -> None:
    assert arguments.parse(typed).shown_by_hydra == shown


def test_the_folder_of_the_configs_has_a_long_and_a_short_option() -> None:
    assert arguments.parse(["--config-dir", "there"]).config_dir == "there"
    assert arguments.parse(["-cd", "there"]).config_dir == "there"


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("mine", "to launch that experiment: slurmopt launch +experiment=mine"),
        ("--local mine lr=3", "to launch that experiment: slurmopt launch --local +experiment=mine lr=3"),
        ("conf/experiment/vision/large.yaml", "to launch that experiment: slurmopt launch +experiment=vision/large"),
        ("mien", "'mien' is not an override (did you mean +experiment=mine?); valid: key=value"),
        ("no-such-word", "'no-such-word' is not an override; valid: key=value"),
        ("+experiment=mine lr=0.1,0.2", "lr: has several values; add -m for a sweep; for one list lr=[0.1,0.2]"),
        ("+experiment=mine,other", "experiment: has several values; add -m for a sweep"),
        ("seed=range(3)", "seed: has several values; add -m for a sweep"),
        ("+experiment=mine lr = 3", "'lr' is not an override; write it without spaces: lr=3"),
        ("+experiment=mine lr =3", "'lr' is not an override; write it without spaces: lr=3"),
        ("+experiment=mine --lr 0.1", "--lr: unknown option; a key of the config has no dashes: lr=0.1"),
        ("--experiment=mine", "--experiment=mine: unknown option; a key of the config has no dashes: +experiment=mine"),
        ("-x", "-x: unknown option; see slurmopt launch --help"),
        ("--backend slurm", "invalid choice: 'slurm'"),
        ("job.sbatch", "'job.sbatch' is a batch script; make an experiment of it: slurmopt import job.sbatch"),
        ("train.py", "to run a command: slurmopt run -- python train.py"),
        ("python train.py --lr 0.1", "to run a command: slurmopt run -- python train.py --lr 0.1"),
        ("resources.nodes=2 sh x lr=1", "to run a command: slurmopt launch resources.nodes=2 'task.command=sh x lr=1'"),
        ("--cfg job job", "'job' is not an override"),
    ],
)
def test_a_mistake_is_answered_with_what_was_meant(
    project: Path, monkeypatch: pytest.MonkeyPatch, typed: str, meant: str
) -> None:
    (project / "bin").mkdir()
    for program in ("python", "sh"):
        (project / "bin" / program).symlink_to("/bin/sh")
    monkeypatch.setenv("PATH", str(project / "bin"))
    with pytest.raises(InputError) as error:
        arguments.parse(typed.split())
    assert meant in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("word", ["a=[1,2]", "a='1,2'", 'a="1,2"', r"a=1\,2", "a={b:1,c:2}", "a='range(3)'", "a=f(1)"])
def test_one_value_with_commas_is_no_sweep(word: str) -> None:
    assert arguments.parse([word]).overrides == [word]


def test_the_help_of_a_launch_fits_a_screen(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert launch.main(["--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    assert any(line.startswith("experiments here  mine") for line in lines)
