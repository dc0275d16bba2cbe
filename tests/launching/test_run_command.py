"""`slurmopt run`: a command and options like those of sbatch, without a config."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from json_answer import data_of

from slurmopt import cli
from slurmopt.commands import run
from slurmopt.launching.run_command import name_of, overrides_of
from slurmopt.launching.run_plan import plan
from slurmopt.run_folder.variables import fill
from slurmopt.slurm.script.step import command as command_json

SHOW = "import json, os, sys; print(json.dumps([*sys.argv[1:], os.environ.get('WORLD_SIZE')]))"
WORDS = st.lists(
    st.text(st.characters(codec="utf-8", exclude_categories=("Cs",), exclude_characters="\0"), max_size=12)
    | st.sampled_from(
        [r"\${A}", "${A}", r"a\\${b:c}", "{lr}", "$(id)", "a=b,c", "[1,2]", "'", r"x\'", "it's \\", "~", "--"]
    )
)


def of(*options: str, command: str = "python train.py", nodes: int | str | None = None) -> list[str]:
    args = run.parser().parse_args([*options, "--", *command.split()])
    return overrides_of(args, command.split(), nodes if nodes is not None else args.nodes)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "train.py").write_text("")
    (tmp_path / "job.sh").write_text("#!/bin/bash\n#SBATCH -N 2\nsrun python train.py\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("options", "keys"),
    [
        ("-G 1 -t 4h", ["gpus_per_node=1", "time='4h'"]),
        ("-N 2 -G 16", ["nodes='2'", "gpus_per_node=8"]),
        ("-N 2-4 --gpus-per-node h100:8", ["nodes='2-4'", "gpus_per_node=8", "gpu_type=h100"]),
        ("-N 2 -n 8 -c 4", ["nodes='2'", "tasks_per_node=4", "cpus_per_task=4"]),
        ("-p gpu,debug -A lab -q high", ["partition='gpu,debug'", "account=lab", "qos=high"]),
        ("--mem 80G --exclusive", ["memory='80G'", "exclusive=true"]),
        ("-w node[1-2] -x node3 -C a100|h100", ["nodelist='node[1-2]'", "exclude=node3", "constraint='a100|h100'"]),
    ],
)
def test_options_mean_what_they_mean_for_sbatch(options: str, keys: list[str]) -> None:
    made = {word for word in of(*options.split()) if word.startswith("resources.")}
    assert made == {f"resources.{key}" for key in keys}


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(words=WORDS)
def test_every_word_reaches_the_command_as_it_was_typed(words: list[str], folder: Path) -> None:
    args = run.parser().parse_args(["--", "true"])
    planned = plan([*overrides_of(args, ["true", *words], None), "launch.backend=local", "launch.check=false"])
    arrived = [fill(word, {}) for word in json.loads(command_json(planned.job) or "")]
    assert arrived == ["true", *words]
    assert planned.stored["task"]["command"][0] == "true"


def test_a_value_of_the_environment_is_resolved_on_each_rank() -> None:
    assert "task.command=[echo,'${oc.env:HOME}']" in of(command="echo ${oc.env:HOME}")


def test_an_axis_stands_where_the_command_has_its_key() -> None:
    words = of(
        "--array", "lr=1e-4,3e-4", "--array", "resources.nodes=1,2", command=r"t.py --lr={lr} {x} ${lr} \{lr} ${x}"
    )
    assert words[-2:] == ["+lr=1e-4,3e-4", "resources.nodes=1,2"]
    assert r"task.command=[t.py,'--lr=${lr}','{x}','${lr}','\\${lr}','\${x}']" in words


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("python train.py --lr 0.1", "train"),
        ("torchrun --nproc-per-node 8 src/pretrain.py", "pretrain"),
        ("python -m package.train", "package.train"),
        ("bash -x scripts/go.sh", "go"),
        ("/opt/bin/solve --fast", "solve"),
    ],
)
def test_a_run_is_named_after_what_it_runs(command: str, name: str) -> None:
    assert name_of(command.split()) == name
    assert f"launch.name={name}" in of(command=command)
    assert not any(word.startswith("launch.name=") for word in of("--name", "mine", command=command))


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("run", "run: no command; valid: slurmopt run -G 1 -- python train.py"),
        ("run -N 3 -G 8 -- true", "-G 8 are not the same number of GPUs on each of 3 nodes; valid: a multiple of 3"),
        ("run -N 2-4 -G 8 -- true", "-G is a total, and -N is a range; give --gpus-per-node"),
        ("run -N 2 -n 3 -- true", "-n 3 are not the same number of ranks on each of 2 nodes"),
        ("run -G x -- true", "argument -G/--gpus: 'x' is not valid; valid: a number such as 8, or h100:8"),
        ("run --array 0-9 -- true", "--array '0-9' is not an axis; valid: --array 'lr=1e-4,3e-4'"),
        ("run --array lr=1,2 -- true", "the command has no {lr}, so all points of --array lr=… would be the same"),
        ("run --lr 0.1 python train.py", "--lr: unknown option; options of the command go behind it"),
        ("run 'python train.py --lr 1'", "the command is one word, 'python train.py --lr 1'; leave out its quotes"),
        (
            "run -- bash job.sh",
            "the #SBATCH lines of 'job.sh' would not count; make an experiment of it: slurmopt import",
        ),
        ("run --local -- python trian.py", "task.command: there is no 'trian.py'"),
        ("run --local -- train.py", "'train.py' is a file in"),
        ("run --local --set lr -- true", "'lr' is not an override"),
        ("run --local -t soon -- true", "resources.time: not a time: 'soon'"),
    ],
)
def test_a_mistake_is_one_line(typed: str, said: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(shlex.split(typed)) == 2
    output = capsys.readouterr()
    assert said in output.err
    assert len(output.err.splitlines()) == 1
    assert output.out == ""
    assert not (folder / "runs").exists()


def test_a_run_on_this_machine(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    words = ["--lr", "${HOME} it's", r"\${A}", "--", "-n"]
    assert cli.main(["run", "--local", "-n", "2", sys.executable, "-c", SHOW, *words]) == 0
    (made,) = (folder / "runs").glob("*/*")
    assert json.loads((made / "logs" / "attempt-0" / "rank-1.log").read_text()) == [*words, "2"]
    assert "finished" in capfd.readouterr().out


def test_the_exit_status_is_that_of_the_run(folder: Path) -> None:
    assert cli.main(["run", "--local", "--", "false"]) == 1


def test_total_gpus_are_spread_over_the_fewest_nodes_that_have_them(project: Any) -> None:
    command = ["--", sys.executable, "-c", SHOW]
    script = project.slurmopt("run", "-G", "12", "-t", "1", "--dry-run", *command)
    assert "12 GPUs: 2 nodes with 6 each; -N chooses" in script.stderr
    assert "#SBATCH --nodes=2\n" in script.stdout
    assert "#SBATCH --gpus-per-node=6\n" in script.stdout
    answer = data_of(project.slurmopt("run", "-G", "2", "-t", "1", "--wait", "--json", *command, "a b").stdout)
    log = Path(answer["run"]) / "logs" / "attempt-0" / "rank-1.log"
    assert json.loads(log.read_text().splitlines()[-1]) == ["a b", "2"]


def test_an_array_is_a_sweep_of_the_command(project: Any) -> None:
    array = ["--array", "lr=1e-4,3e-4", "--array", "seed=range(2)"]
    command = ["--", sys.executable, "-c", SHOW, "--lr={lr}", "{seed}", r"\{seed} ${x}"]
    project.slurmopt("run", "-t", "1", "--wait", *array, *command)
    (sweep,) = (project.path / "runs").glob("*/*")
    lines = [project.slurmopt("logs", f"{sweep}/{number}").stdout.splitlines()[-1] for number in range(4)]
    assert [json.loads(line)[:3] for line in lines] == [
        [f"--lr={lr}", seed, rf"\{seed} ${{x}}"] for lr in ("0.0001", "0.0003") for seed in ("0", "1")
    ]
