"""Commands as the launch reads them: which program starts the ranks, and whether it is there."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from slurmopt.config.environment import Container, Environment
from slurmopt.config.schema import Settings
from slurmopt.config.task import Task
from slurmopt.config.task_command.launchers import of_command
from slurmopt.config.task_command.startable import check_command, with_per
from slurmopt.config.task_command.words import split_words
from slurmopt.errors import ConfigError

UNIVERSITY = """#!/bin/bash
#SBATCH --nodes=2
# srun is explained at https://example.org
module load python
export MASTER_ADDR=$(scontrol show hostnames | head -n 1)
srun --label \\
  torchrun --nnodes 2 train.py
"""
TORCHTITAN = """#!/usr/bin/bash
set -ex
NGPU=${NGPU:-"8"}
PYTORCH_ALLOC_CONF="expandable_segments:True" \\
torchrun --nproc_per_node=${NGPU} -m torchtitan.train "$@"
"""


@pytest.mark.parametrize(
    ("command", "per"),
    [
        ("python train.py", "rank"),
        ("./train --launcher torchrun", "rank"),
        ("python train.py torchrun srun", "rank"),
        ("python -m mypackage.train", "rank"),
        ("torchrun train.py", "node"),
        ("/opt/env/bin/torchrun --standalone train.py", "node"),
        ("python -u -m torch.distributed.run train.py", "node"),
        ("uv run torchrun train.py", "node"),
        ("numactl --interleave=all torchrun train.py", "node"),
        ("accelerate launch train.py", "node"),
        ("conda run -n deepspeed python train.py", "rank"),
        ("conda run -n accelerate torchrun train.py", "node"),
        ("conda run --no-capture-output -n torchrun accelerate launch train.py", "node"),
        ("conda run -n deepspeed bash -c 'python train.py'", "rank"),
        ("micromamba run --name srun deepspeed train.py", "node"),
        ("uv run --with accelerate --extra deepspeed python train.py", "rank"),
        ("uv run --with deepspeed -m torch.distributed.run train.py", "node"),
        ("uv run python -m torch.distributed.run train.py", "node"),
        ("uv run train.py torchrun", "rank"),
        ("env OMP_NUM_THREADS=1 torchrun train.py", "node"),
        ("env -u srun LAUNCHER=/opt/bin/srun python train.py", "rank"),
        ("env A=1 uv run torchrun train.py", "node"),
        ("nsys profile -o deepspeed python train.py", "rank"),
        ("nsys profile -t cuda,nvtx -o out torchrun train.py", "node"),
        ("numactl -m 0 torchrun train.py", "node"),
        ("numactl -m 0 python -m torch.distributed.launch train.py", "node"),
        ("apptainer exec --nv /images/deepspeed python train.py", "rank"),
        ("apptainer exec --nv /images/deepspeed torchrun train.py", "node"),
        ("conda run -n mine python solve deepspeed", "rank"),
        ("deepspeed train.py --launcher slurm", "node"),
        ("deepspeed --module train --launcher slurm", "node"),
        ("accelerate test", "rank"),
        ("python3 -m accelerate.commands.launch train.py", "node"),
        ("deepspeed train.py --deepspeed", "node"),
        ("deepspeed --launcher slurm train.py", "job"),
        ("srun python train.py", "job"),
        ("srun --label torchrun train.py", "job"),
        ("mpirun -np 4 ./solve", "job"),
        ("bash -c 'cd here && torchrun train.py'", "node"),
        ("bash -c 'echo srun; python train.py'", "rank"),
        ("bash university.sh", "job"),
        ("./university.sh --lr 0.1", "job"),
        ("./torchtitan.sh", "node"),
        ("./plain.sh", "rank"),
        ("./binary", "rank"),
        ("./nowhere.sh", "rank"),
    ],
)
def test_how_often_a_command_runs_follows_from_what_it_starts(tmp_path: Path, command: str, per: str) -> None:
    for name, text in (("university", UNIVERSITY), ("torchtitan", TORCHTITAN), ("plain", "#!/bin/sh\necho srun it\n")):
        (tmp_path / f"{name}.sh").write_text(text)
    (tmp_path / "binary").write_bytes(b"\x7fELF\0srun \xff")
    found = of_command(split_words(command), tmp_path)
    assert (found.per if found else "rank") == per
    settings = with_per(Settings(task=Task(command=split_words(command))), tmp_path)
    assert settings.task.per == per


def test_what_the_user_says_is_not_decided_again(tmp_path: Path) -> None:
    settings = with_per(Settings(task=Task(command=["torchrun", "train.py"], per="rank")), tmp_path)
    assert settings.task.per == "rank"


@pytest.mark.parametrize(("per", "key"), [("auto", "task.command"), ("job", "task.per")])
def test_a_container_has_no_srun(tmp_path: Path, per: str, key: str) -> None:
    environment = Environment(container=Container(image="/images/torch.sif"))
    settings = Settings(task=Task(command=["srun", "python", "train.py"], per=per), environment=environment)
    with pytest.raises(ConfigError, match=f"^{key}: .*leave srun out"):
        with_per(settings, tmp_path)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("python trian.py", "there is no 'trian.py'"),
        ("torchrun --nproc_per_node 8 trian.py", "there is no 'trian.py'"),
        ("bash trian.sh", "there is no 'trian.sh'"),
        ("./trian.sh", "there is no './trian.sh'"),
        ("train.py --lr 0.1", "write 'task.command=python train.py --lr 0.1'"),
        ("run", "write task.command=./run"),
        ("./data.sh", "not executable; chmod +x it, or write 'task.command=bash ./data.sh'"),
        ("nosuchprogram train.py", "no program 'nosuchprogram' on PATH"),
    ],
)
def test_what_cannot_start_is_told_before_the_queue(tmp_path: Path, command: str, said: str) -> None:
    for name in ("train.py", "data.sh", "run"):
        (tmp_path / name).write_text("")
    settings = Settings(task=Task(command=split_words(command)))
    with pytest.raises(ConfigError) as error:
        check_command(settings, tmp_path)
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("command", "environment"),
    [
        ("python train.py trian.py", {}),
        ("python -m trian", {}),
        ("python -c 'print()' trian.py", {}),
        ("python ${oc.env:HERE}/trian.py", {}),
        ("/only/there/python /only/there/train.py", {}),
        ("cat trian.py", {}),
        ("python trian.py", {"setup": ["cd elsewhere"]}),
        ("python trian.py", {"container": Container(image="/images/torch.sif")}),
        ("nosuchprogram", {"modules": ["nosuch/1.0"]}),
    ],
)
def test_what_the_launch_cannot_tell_is_let_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, environment: dict[str, object]
) -> None:
    (tmp_path / "python").symlink_to(sys.executable)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    (tmp_path / "train.py").write_text("")
    task = Task(command=split_words(command))
    check_command(Settings(task=task, environment=Environment(**environment)), tmp_path)  # type: ignore[arg-type]


def test_the_word_true_is_a_program(tmp_path: Path) -> None:
    check_command(Settings(task=Task(command=[True])), tmp_path)
