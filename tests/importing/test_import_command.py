"""`slurmopt import`: which experiment a batch script becomes, and that nothing of the script is executed."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from json_answer import data_of

from slurmopt.cli import main
from slurmopt.config.composition.compose import compose
from slurmopt.config.composition.settings import settings
from slurmopt.config.schema import Settings
from slurmopt.sweeps.definition.describe import describe_sweep

SCRIPTS = Path(__file__).parent / "scripts"
DDP_HEAD = """#SBATCH --nodes=2 --ntasks-per-node=1 --gpus-per-node=4 --cpus-per-task=32
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_PORT=$((10000 + SLURM_JOB_ID % 10000))
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def take(capsys: pytest.CaptureFixture[str], body: str, first: str = "#!/bin/bash") -> dict[str, Any]:
    """The JSON of the import of a script in the current folder, as the experiment `mine`; the files are written."""
    Path("job.sbatch").write_text(f"{first}\n{body}", newline="")
    for path in (Path("conf/experiment") / name for name in ("mine.yaml", "mine.sh", "mine.csv", "mine.jsonl")):
        path.unlink(missing_ok=True)
    status = main(["import", "job.sbatch", "--name", "mine", "--json"])
    shown = capsys.readouterr()
    assert status == 0, shown.err
    answer: dict[str, Any] = data_of(shown.out)
    assert {name: Path(name).read_text() for name in answer["files"]} == answer["files"]
    return answer


def composed(*overrides: str) -> Settings:
    return settings(compose(["+experiment=mine", *overrides]))


def points_of(key: str = "task.command", count: int | None = None) -> list[Any]:
    """The commands of the sweep's points, with the values of each."""
    points = describe_sweep(["+experiment=mine"]).points
    assert count is None or len(points) == count
    return [
        points.config(number, Path("/runs"))[key.partition(".")[0]][key.partition(".")[2]]
        for number in range(len(points))
    ]


def became(answer: dict[str, Any], line: int) -> list[tuple[str, str]]:
    return [(item["became"], item["to"]) for item in answer["lines"] if item["line"] == line]


@pytest.mark.parametrize(
    ("directives", "expected"),
    [
        ("-N2 -n 8 -c4", {"nodes": 2, "tasks_per_node": 4, "cpus_per_task": 4}),
        ("--nodes=2-4 --ntasks-per-node 2", {"nodes": "2-4", "tasks_per_node": 2}),
        ("--ntasks=8 --ntasks-per-node=4", {"nodes": 2, "tasks_per_node": 4}),
        ("--gres=gpu:a100:4,nvme:1", {"gpus_per_node": 4, "gpu_type": "a100", "extra": {"gres": "nvme:1"}}),
        ("--gres=gpu", {"gpus_per_node": 1, "tasks_per_node": None}),
        ("-G 8 -N 2", {"gpus_per_node": 4, "tasks_per_node": 1}),
        ("--gpus=h100:2", {"gpus_per_node": 2, "gpu_type": "h100"}),
        ("--gpus-per-task=1 --ntasks=4", {"gpus_per_node": 4, "tasks_per_node": None}),
        ("--mem=80G", {"memory": "80G"}),
        ("--mem=0 --mem-per-cpu=2000", {"memory": None, "memory_per_cpu": "2000"}),
        ("--mem-per-gpu=40GB", {"memory_per_gpu": "40GB"}),
        ("-t 90", {"time": "90"}),
        ("-t 90:00", {"time": "90:00"}),
        ("--time=1-12", {"time": "1-12"}),
        ("--time=2-01:30:00 # two days", {"time": "2-01:30:00"}),
        ("--time=UNLIMITED", {"time": None}),
        (
            "-p a,b -A acc -q high -C 'a100&ib' -w n1 -x n2",
            {"partition": "a,b", "account": "acc", "constraint": "a100&ib"},
        ),
        ("--exclusive --mail-user=a@b.c --mail-type=END,FAIL", {"exclusive": True, "mail_type": "END,FAIL"}),
        (
            "--switches=1 --contiguous --hint=nomultithread",
            {"extra": {"switches": "1", "contiguous": True, "hint": "nomultithread"}},
        ),
        ("-J x -o %j.out -e %j.err --open-mode=append --requeue --signal=B:TERM@60", {"extra": {}}),
        ("--cpus=3", {"cpus_per_task": None}),
        ("--cpus-per-t=3", {"cpus_per_task": 3}),
    ],
)
def test_directives_become_resources(
    folder: Path, capsys: pytest.CaptureFixture[str], directives: str, expected: dict[str, Any]
) -> None:
    take(capsys, f"#SBATCH {directives}\nsrun hostname-of-mine\n")
    held = composed().resources
    assert {key: getattr(held, key) for key in expected} == expected


def test_what_sbatch_ignores_is_said_with_its_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = take(capsys, "##SBATCH -N 2\n# SBATCH -N 3\n#SBATCH --ntask=4\npython x.py\n#SBATCH -N 4\n")
    assert composed().resources.nodes == 1
    assert [became(answer, line)[0][0] for line in (2, 3, 4, 6)] == ["left out"] * 4
    assert "did you mean 'ntasks'" in became(answer, 4)[0][1]


def test_a_signal_for_the_program_is_forwarded(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    take(capsys, "#SBATCH --signal=SIGUSR1@90 -t 1:00:00\nsrun python x.py\n")
    assert (composed().restart.forward, composed().restart.lead) == ("USR1", "90s")


def test_modules_environments_and_variables(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = take(
        capsys,
        "module purge\nmodule load cuda/12.4 gcc\nROOT=$HOME/lab\nsource $ROOT/venv/bin/activate\n"
        'eval "$(conda shell.bash hook)"\nconda activate lab\nexport A=1 B="x y" C=$HOME/c\n'
        'export PYTHONPATH=$PWD:${PYTHONPATH:-}\nexport WANDB_API_KEY=0123secret\nmkdir -p "out dir"\npython x.py $C\n',
    )
    held = composed()
    assert held.environment.modules == ["cuda/12.4", "gcc"]
    assert held.environment.setup == [
        "ROOT=$HOME/lab",
        "source $ROOT/venv/bin/activate",
        'eval "$(conda shell.bash hook)"',
        "conda activate lab",
        "export PYTHONPATH=$PWD:$PYTHONPATH",
        'mkdir -p "out dir" || true',
    ]
    key = "${oc.env:WANDB_API_KEY}"
    assert held.environment.variables == {"A": "1", "B": "x y", "C": "${oc.env:HOME}/c", "WANDB_API_KEY": key}
    assert held.task.command == ["python", "x.py", "${oc.env:C}"]
    assert "0123secret" not in json.dumps(answer)


def test_a_plain_line_runs_once_on_one_gpu_or_four(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    take(capsys, "#SBATCH --gres=gpu:4\nLR=0.1\npython train.py --lr=$LR --out 'a b' \"it's\"\n")
    held = composed("lr=0.5")
    assert held.task.command == ["python", "train.py", "--lr=0.5", "--out", "a b", "it's"]
    assert (held.resources.ranks_per_node, held.task.distributed) == (1, "off")
    take(capsys, "#SBATCH -n 4\npython train.py\n")
    assert (composed().task.per, composed().resources.ranks_per_node) == ("job", 4)


def test_srun_starts_ranks_unless_it_has_options_of_its_own(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    head = "#SBATCH --nodes=2 --ntasks-per-node=4 --gpus-per-node=4\n"
    take(capsys, head + "srun -l --kill-on-bad-exit=1 --ntasks=$SLURM_NTASKS python train.py\n")
    assert composed().task.command == ["python", "train.py"]
    answer = take(capsys, head + "srun --mpi=pmix -n 2 python train.py\n")
    assert composed().task.command == ["srun", "--mpi=pmix", "-n", "2", "python", "train.py"]
    assert "srun is kept for its own --mpi=pmix, -n 2" in became(answer, 3)[0][1]
    take(capsys, "#SBATCH --nodes=2 --ntasks=3\nsrun python x.py\n")
    assert composed().task.command == ["srun", "--ntasks=3", "python", "x.py"]


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (
            "srun torchrun --nnodes $SLURM_NNODES --nproc-per-node=4 --rdzv_id=$RANDOM --rdzv_backend=c10d "
            "--rdzv_endpoint=$MASTER_ADDR:$MASTER_PORT --max_restarts 0 train.py --nnodes x",
            ["torchrun", "--max_restarts", "0", "train.py", "--nnodes", "x"],
        ),
        (
            "srun python -m torch.distributed.run --nproc_per_node gpu --nnodes 2 --node_rank $SLURM_NODEID -m a.b",
            ["python", "-m", "torch.distributed.run", "-m", "a.b"],
        ),
        (
            "srun accelerate launch --multi_gpu --num_processes 8 --num_machines 2 --machine_rank $SLURM_NODEID "
            "--main_process_ip $MASTER_ADDR --mixed_precision bf16 train.py",
            ["accelerate", "launch", "--mixed_precision", "bf16", "train.py"],
        ),
        (
            "deepspeed --hostfile h --num_gpus 4 train.py --deepspeed d.json",
            ["deepspeed", "train.py", "--deepspeed", "d.json"],
        ),
    ],
)
def test_launchers_lose_the_flags_that_slurmopt_sets(
    folder: Path, capsys: pytest.CaptureFixture[str], command: str, expected: list[str]
) -> None:
    take(capsys, DDP_HEAD + command + "\n")
    held = composed()
    assert held.task.command == expected
    assert (held.task.per, held.resources.nodes, held.resources.ranks_per_node) == ("auto", 2, 4)
    assert held.resources.cpus_per_task == 8  # of the 32 for each launcher
    assert not {"MASTER_ADDR", "MASTER_PORT"} & set(held.environment.variables)


def test_the_usual_idioms_of_arrays_become_axes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = take(
        capsys,
        "#SBATCH --array=0-5%2\nLRS=(1e-3 1e-4 1e-5)\nSEEDS=(7 8)\nlr=${LRS[$((SLURM_ARRAY_TASK_ID / 2))]}\n"
        "seed=${SEEDS[SLURM_ARRAY_TASK_ID % 2]}\npython t.py --lr $lr --seed $seed\n",
    )
    assert "lr: 1e-3,1e-4,1e-5\n      seed: 7,8\n" in answer["files"]["conf/experiment/mine.yaml"]
    assert points_of(count=6)[3] == ["python", "t.py", "--lr", 0.0001, "--seed", 8]
    assert composed().sweep.at_once == 2
    assert answer["next"] == "slurmopt launch -m +experiment=mine"


def test_values_in_a_file_name_stay_as_they_are_written(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    take(
        capsys,
        "#SBATCH --array=1-2\nL=(0 1e-3 010)\nlr=${L[SLURM_ARRAY_TASK_ID]}\npython t.py out/$lr-$SLURM_ARRAY_TASK_ID\n",
    )
    assert points_of(count=2) == [["python", "t.py", "out/1e-3-1"], ["python", "t.py", "out/010-2"]]


def test_lines_of_a_file_become_points(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "params.txt").write_text("--lr 1e-3 --tag a\n--lr 1e-4 --tag b\n--lr 1e-4 --tag a,'\"b\n")
    body = '#SBATCH --array=1-3\nARGS=$(sed -n "${SLURM_ARRAY_TASK_ID}p" params.txt)\n'
    take(capsys, body + "python t.py $ARGS --all\n")
    assert points_of(count=3)[2] == ["python", "t.py", "--lr", "1e-4", "--tag", "a,'\"b", "--all"]
    take(capsys, body + 'python t.py "$ARGS"\n')
    assert points_of(count=3)[0] == ["python", "t.py", "--lr 1e-3 --tag a"]
    take(capsys, '#SBATCH --array=1-3\npython t.py $(awk "NR==$SLURM_ARRAY_TASK_ID" params.txt)\n')
    assert composed().task.command[:1] == ["bash"]  # kept: the words of a line are only known to a shell


def test_a_seed_of_the_task_is_a_key_by_its_name_and_part_of_a_file_name(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    body = "export SEED=$((SLURM_ARRAY_TASK_ID+10))\n"
    take(capsys, f"#SBATCH --array=1-2\n{body}python t.py out/${{SEED}}_$SLURM_ARRAY_TASK_ID.json\n")
    assert points_of(count=2) == [["python", "t.py", "out/11_1.json"], ["python", "t.py", "out/12_2.json"]]
    assert [value["SEED"] for value in points_of("environment.variables", 2)] == [11, 12]
    assert "seed: 11" in (folder / "conf/experiment/mine.yaml").read_text()


def test_a_secret_in_a_script_that_is_kept_is_told_and_its_copy_is_private(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = take(capsys, "export WANDB_API_KEY=0123secret\npython x.py | tee log\n")
    script = "conf/experiment/mine.sh"
    (warning,) = answer["warnings"]
    assert warning == f"{script} has a secret in line 2: take it out there, and export it where you launch"
    assert (folder / script).stat().st_mode & 0o077 == 0
    assert (folder / "conf/experiment/mine.yaml").stat().st_mode & 0o400


def test_a_program_that_reads_the_task_itself_gets_its_number(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    take(capsys, "#SBATCH --array=3,5-9:2\npython t.py\n")
    variables = [value["SLURM_ARRAY_TASK_ID"] for value in points_of("environment.variables", 4)]
    assert variables == [3, 5, 7, 9]


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("trap 'scontrol requeue $SLURM_JOB_ID' USR1\npython x.py &\nwait\n", "line 3 has trap"),
        ("for i in 1 2; do srun echo $i; done\n", "line 3 has a loop"),
        ("cat > a.json <<END\n{}\nEND\npython x.py\n", "line 3 has a here-document"),
        ("f() { python x.py; }\nf\n", "line 3 has a function"),
        ("if [ -e x ]; then python x.py; fi\n", "line 3 has if"),
        ("python x.py | tee log\n", "line 3 has a pipe"),
        ("python a.py\npython b.py\n", "lines 3 and 4 are two commands"),
        ("python x.py > log.txt 2>&1\n", "line 3 has a redirection"),
        ("python x.py *.json\n", "line 3: *.json needs a shell"),
        ("python x.py '${lr}'\n", "line 3: it has a text with ${"),
        ("N=$(wc -l < f)\npython x.py $N\n", "line 4: $N: the output of wc -l < f"),
        ("eval $CMD\n", "line 3 has eval"),
        ("python x.py $1\n", "line 3: $1 is known only in the batch shell"),
        ("echo only\n", "there is no command that could be the training"),
        ("python 'x\n", "line 3 has"),
    ],
)
def test_a_complicated_script_is_kept_and_runs_once(
    folder: Path, capsys: pytest.CaptureFixture[str], body: str, why: str
) -> None:
    answer = take(capsys, body, "#!/bin/bash\n#SBATCH -N 2 --gres=gpu:4 --array=2-3")
    assert answer["kept"].startswith(why)
    assert answer["files"]["conf/experiment/mine.sh"] == (folder / "job.sbatch").read_text()
    held = composed()
    assert (held.task.command, held.task.per) == (["bash", "conf/experiment/mine.sh"], "job")
    assert (held.resources.nodes, held.resources.gpus_per_node, held.resources.ranks_per_node) == (2, 4, 1)
    variables = points_of("environment.variables", 2)
    assert [(value["SLURM_ARRAY_TASK_ID"], value["SLURM_ARRAY_TASK_MAX"]) for value in variables] == [
        (2, "3"),
        (3, "3"),
    ]


def test_nothing_of_a_hostile_script_is_executed_or_becomes_an_interpolation(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    touch = f"touch {folder}/pwned"
    take(
        capsys,
        f"#SBATCH -p 'gpu$({touch})' --comment='`{touch}`;$(id)'\nexport A='$({touch})' B=\"`{touch}`\"\n"
        f"X='; {touch} #'\nY=$({touch})\nexport Z=\"$X\"\npython x.py \"$X\" '$({touch})' --y=\"$X\" '\\' 'a\\\\b'\n",
    )
    held = composed()
    assert held.task.command == ["python", "x.py", f"; {touch} #", f"$({touch})", f"--y=; {touch} #", "\\", "a\\\\b"]
    assert held.environment.variables == {"A": f"$({touch})", "Z": f"; {touch} #"}
    assert held.environment.setup == [f'export B="`{touch}`"']  # it runs in the job, as under sbatch
    assert not (folder / "pwned").exists()


def test_files_that_are_no_batch_scripts_are_one_line_and_status_2(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "py.sbatch").write_text("#!/usr/bin/env python3\nprint()\n")
    (folder / "none.sbatch").write_text("python x.py\n")
    (folder / "empty.sbatch").write_text("")
    (folder / "binary.sbatch").write_bytes(b"#!/bin/bash\n\0\1")
    (folder / "latin.sbatch").write_bytes("#!/bin/bash\n# für\n".encode("latin-1"))
    (folder / "dos.sbatch").write_bytes(b"#!/bin/bash\r\n#SBATCH -N 1\r\n")
    (folder / "big.sbatch").write_text("#!/bin/bash\n" + "# x\n" * 400_000)
    (folder / "het.sbatch").write_text("#!/bin/bash\n#SBATCH -N 1\n#SBATCH hetjob\n#SBATCH -N 2\npython x.py\n")
    (folder / "word.sbatch").write_text("#!/bin/bash\n#SBATCH -N two\npython x.py\n")
    (folder / "quote.sbatch").write_text("#!/bin/bash\n#SBATCH --comment='a\npython x.py\n")
    (folder / "folder.sbatch").mkdir()
    os.mkfifo(folder / "fifo.sbatch")
    names = sorted(path.name for path in folder.glob("*.sbatch"))
    for name in [*names, "missing.sbatch", "a\nb"]:
        assert main(["import", name]) == 2, name
        shown = capsys.readouterr()
        assert (shown.out, shown.err.count("\n")) == ("", 1), name
        assert shown.err.startswith("slurmopt: error: "), name
    assert len(names) == 12
    assert not (folder / "conf").exists()


def test_an_existing_experiment_is_not_overwritten(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "conf" / "experiment").mkdir(parents=True)
    (folder / "conf" / "experiment" / "job.sh").symlink_to("nowhere")
    (folder / "job.sbatch").write_text("#!/bin/bash\nfor i in 1; do :; done\n")
    assert main(["import", "job.sbatch"]) == 2
    assert "conf/experiment/job.sh exists already" in capsys.readouterr().err
    assert not (folder / "conf" / "experiment" / "job.yaml").exists()


def test_a_dry_run_writes_nothing_and_shows_the_experiment(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copy(SCRIPTS / "ddp.sbatch", folder)
    assert main(["import", "ddp.sbatch", "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert "   20  srun torchrun" in shown
    assert "      command: torchrun ddp.py --steps ${steps} --out weights.json" in shown
    assert "next     slurmopt launch +experiment=ddp" in shown
    assert not (folder / "conf").exists()


def test_the_example_of_the_page_becomes_the_experiment_of_the_page(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (SCRIPTS.parents[2] / "docs" / "from-sbatch.md").read_text()
    script, config = (
        re.findall(rf"^```{kind}\n(.*?)^```", page, re.DOTALL | re.MULTILINE)[0] for kind in ("bash", "yaml")
    )
    (folder / "job.sbatch").write_text(script)
    assert main(["import", "job.sbatch"]) == 0
    shown = capsys.readouterr().out
    said = re.findall(r"^```console\n\$ .*?\n(.*?)^```", page, re.DOTALL | re.MULTILINE)[0].splitlines()
    assert [line for line in said if line.strip() != "…" and line not in shown.splitlines()] == []
    assert (folder / "conf" / "experiment" / "finetune.yaml").read_text() == config
    assert len(describe_sweep(["+experiment=finetune"]).points) == 3
