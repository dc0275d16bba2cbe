"""The job script, held whole for a dozen configs, and run by a real bash where words are hostile."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import slurmopt
from slurmopt.config.checkpoint import Checkpoint
from slurmopt.config.environment import Container, Environment
from slurmopt.config.launch import Launch
from slurmopt.config.network import Network
from slurmopt.config.resources import Resources
from slurmopt.config.restart import Restart
from slurmopt.config.schema import Settings
from slurmopt.config.storage import Storage
from slurmopt.config.sweep import Sweep
from slurmopt.config.task import Task
from slurmopt.config.tiers import Scratch, Shared
from slurmopt.errors import ConfigError
from slurmopt.grid import submissions
from slurmopt.grid.point_ranges import Ranges
from slurmopt.grid.submissions import Submission
from slurmopt.restart.causes import Budgets
from slurmopt.run_folder import supervisor_file
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.process import module_start
from slurmopt.run_folder.supervisor_file import sha256
from slurmopt.run_folder.sweep_layout import SweepFolder
from slurmopt.slurm.script.job import Array, Job
from slurmopt.slurm.script.quoting import directive, shell, shell_deferred
from slurmopt.slurm.script.render import render, supervisor

GOLDEN = Path(__file__).parent.parent / "golden"
FUNCTION = Task(_target_="train.main")
TORCHRUN = Task(command=["torchrun", "train.py", "--lr", 0.1], per="node")

CASES: dict[str, dict[str, object]] = {
    "function": {"task": FUNCTION},
    "command": {"task": Task(command=["python", "train.py", "--name", "two words", "--key", "${oc.env:KEY}"])},
    "two_nodes_of_gpus": {
        "task": FUNCTION,
        "resources": Resources(
            nodes=2, gpus_per_node=8, gpu_type="h100", cpus_per_task=12, memory="0", time="1-12", exclusive=True
        ),
    },
    "torchrun": {"task": TORCHRUN, "resources": Resources(nodes=4, gpus_per_node=8, cpus_per_task=6, time="2h")},
    "elastic": {
        "task": FUNCTION,
        "resources": Resources(nodes="2-4", gpus_per_node=8, cpus_per_task=12, time="1-12"),
    },
    "everything_slurm_has": {
        "task": FUNCTION,
        "resources": Resources(
            time="90m", partition="main,short", account="physics", qos="high", constraint="a100&nvlink",
            nodelist="node[1-2]", exclude="node3", reservation="class", licenses="matlab:2", memory_per_cpu="2GB",
            mail_user="ada@example.org", mail_type="END,FAIL", comment="for the paper",
            extra={"switches": "1@10:00", "contiguous": True, "spread-job": False, "nice": 100},
        ),
    },
    "surroundings": {
        "task": FUNCTION,
        "environment": Environment(
            modules=["cuda/12.4", "gcc"],
            setup=["source /opt/env/bin/activate", "ulimit -n 65536"],
            variables={"OMP_NUM_THREADS": 8, "WANDB_API_KEY": "${oc.env:WANDB_API_KEY}", "NOTE": "a 'b' $(c)"},
        ),
        "network": Network(variables={"NCCL_SOCKET_IFNAME": "^docker,lo,veth"}),
    },
    "pyxis": {
        "task": FUNCTION,
        "resources": Resources(nodes=2, gpus_per_node=4),
        "checkpoint": Checkpoint(
            scratch=Scratch(path="${oc.env:TMPDIR,/local}/ckpt"), shared=Shared(path="/fsx/a b/ckpt")
        ),
        "network": Network(variables={"NCCL_SOCKET_IFNAME": "^docker,lo,veth"}),
        "environment": Environment(
            container=Container(
                image="nvcr.io#nvidia/pytorch:25.01-py3",
                mounts=["/data:/data:ro"],
                options=["--no-container-mount-home"],
            )
        ),
    },
    "apptainer": {
        "task": Task(command=["python3", "train.py"]),
        "resources": Resources(gpus_per_node=4),
        "environment": Environment(
            container=Container(runtime="apptainer", image="/images/torch.sif"), variables={"WANDB_MODE": "offline"}
        ),
        "checkpoint": Checkpoint(shared=Shared(path="/fsx/ckpt")),
    },
    "staged": {
        "task": FUNCTION,
        "resources": Resources(nodes=2, gpus_per_node=4),
        "checkpoint": Checkpoint(scratch=Scratch(path="${oc.env:TMPDIR,/local}/ckpt")),
        "storage": Storage(
            stage={
                "images": "/fsx/a b/images",
                "more": {"source": "s3://bucket/more", "into": "/nvme/it's", "keep": True},
                "own": {"source": "${oc.env:DATA}/own", "verify": "checksum"},
            }
        ),
        "environment": Environment(container=Container(image="torch.sqsh")),
    },
    "another_python": {
        "task": Task(command=["./train"], python="/opt/other/bin/python"),
        "restart": Restart(forward="USR2"),
    },
    "hostile": {
        "task": Task(command=["echo", "$(touch x)", "`id`", "a\nb", "'", '"', "\\", "%j", ""]),
        "resources": Resources(comment="it's #1 \"quoted\"", partition="a b"),
    },
    "local": {"task": FUNCTION, "resources": Resources(tasks_per_node=2, time="10m")},
    "submitit": {"task": FUNCTION, "resources": Resources(nodes=2)},
    "lead": {"task": FUNCTION, "resources": Resources(time="4h"), "restart": Restart(lead="15m")},
}  # fmt: skip


@pytest.mark.parametrize("path", ["/data/a,b", "/data/a:b", "${oc.env:TMPDIR,/a,b}"])
def test_a_tier_that_cannot_be_mounted_in_the_container_is_refused(path: str) -> None:
    settings = Settings(
        task=FUNCTION,
        environment=Environment(container=Container(image="a.sqsh")),
        checkpoint=Checkpoint(scratch=Scratch(path=path)),
    )
    with pytest.raises(ConfigError, match=r"checkpoint\.scratch\.path: .* no comma or colon"):
        render(dataclasses.replace(job("function"), settings=settings))


def job(name: str) -> Job:
    path = Path("/home/ada/ru%n $(s)/hostile/1") if name == "hostile" else Path(f"/home/ada/runs/{name}/1")
    return Job(
        name='a "name" $(touch x) %j' if name == "hostile" else name,
        folder=RunFolder(path),
        settings=Settings(**CASES[name]),  # type: ignore[arg-type]
        workdir=Path("/home/ada/project"),
        python="/opt/python/bin/python",
        version="1.2.3",
        made_from=f"+experiment={name}",
        local=name == "local",
        submitit=name == "submitit",
    )


@pytest.mark.parametrize("name", CASES)
def test_golden(name: str, request: pytest.FixtureRequest) -> None:
    package = str(Path(slurmopt.__file__).parent)
    text = render(job(name)).replace(package, "/PACKAGE")
    text = text.replace(" ".join(map(shell, module_start())), "-P -m")  # as Python has it since 3.11
    text = text.replace(sha256(supervisor()), "SHA-256-OF-SUPERVISOR")  # else each change of that would be one of all
    golden = GOLDEN / f"{name}.sbatch"
    if request.config.getoption("--update-golden"):
        golden.write_text(text)
    assert text == golden.read_text()
    assert len(text.splitlines()) <= 80, "the script is for people to read; what all jobs share is in supervisor.sh"


@pytest.mark.parametrize("name", CASES)
def test_bash_can_read_it_and_nothing_of_the_config_runs(name: str, tmp_path: Path) -> None:
    script = render(job(name))
    assert "set -x" not in script
    for needed in ("--requeue", "--open-mode=append", "--signal=B:USR1@"):
        assert f"#SBATCH {needed}" in script
    subprocess.run(["bash", "-n"], input=script, text=True, check=True, cwd=tmp_path)
    assert not (tmp_path / "x").exists()


def test_hostile_words_reach_the_task_as_they_are(tmp_path: Path) -> None:
    """The variable of the rendered script, as bash hands it to a rank, which reads it."""
    line = next(line for line in render(job("hostile")).splitlines() if line.startswith("export SLURMOPT_COMMAND="))
    program = "import json; from slurmopt.job.rank_args import parse; print(json.dumps(parse(['run']).command))"
    command = f"{line}\nexec {sys.executable} -c {json.dumps(program)}"
    done = subprocess.run(["bash", "-c", command], check=True, cwd=tmp_path, capture_output=True)
    assert json.loads(done.stdout) == CASES["hostile"]["task"].command  # type: ignore[attr-defined]
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("value", "environment", "expected"),
    [
        ("${oc.env:KEY}", {"KEY": "a b $(touch x)"}, "a b $(touch x)"),
        ("pre'${oc.env:KEY}post", {"KEY": "k"}, "pre'kpost"),
        ('${oc.env:NONE,de"f `$x}', {}, 'de"f `$x'),
        ("", {}, ""),
        ("${oc.env:A}${oc.env:B}", {"A": "1", "B": "2"}, "12"),
    ],
)
def test_a_variable_of_the_jobs_environment(value: str, environment: dict[str, str], expected: str) -> None:
    line = f'x={shell_deferred(value, "k")}; printf %s "$x"'
    done = subprocess.run(
        ["bash", "-c", line], env={"PATH": "/bin:/usr/bin", **environment}, capture_output=True, text=True
    )
    assert (done.stdout, done.returncode) == (expected, 0)


def test_a_missing_variable_stops_the_job_and_names_the_key() -> None:
    line = f"x={shell_deferred('${oc.env:NO_SUCH}', 'environment.variables.X')}; echo on"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True)
    assert done.returncode != 0
    assert "environment.variables.X needs NO_SUCH" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("task", "more", "ranks"),
    [
        (FUNCTION, {}, "$((SLURM_JOB_NUM_NODES * 8))"),
        (TORCHRUN, {}, "$((SLURM_JOB_NUM_NODES * 1))"),
        (FUNCTION, {"local": True}, "16"),
    ],
)
def test_of_a_range_of_nodes_the_job_counts_those_that_it_has(task: Task, more: dict[str, bool], ranks: str) -> None:
    """On this machine it is the least of them."""
    settings = Settings(task=task, resources=Resources(nodes="2-4", tasks_per_node=8))
    script = render(dataclasses.replace(job("function"), settings=settings, **more))  # type: ignore[arg-type]
    assert f"\nslurmopt_ranks={ranks} " in script
    assert f"\nexport NNODES={'2' if more else '$SLURM_JOB_NUM_NODES'}\n" in script
    assert (f"--ntasks={ranks} " in script) is not bool(more)
    assert "#SBATCH --ntasks-per-node" not in script, "Slurm would keep the first attempt's number of tasks"


def test_true_is_the_word_true() -> None:
    settings = Settings(task=Task(command=["true", True, 1, 0.1]))
    assert """SLURMOPT_COMMAND='["true", "true", "1", "0.1"]'""" in render(
        dataclasses.replace(job("function"), settings=settings)
    )


def test_a_directive_is_one_line_whatever_is_in_it() -> None:
    assert directive("job-name", "a\nb#c") == '--job-name="a b#c"'


def test_the_same_config_gives_the_same_text() -> None:
    assert render(job("surroundings")) == render(job("surroundings"))


def test_a_template_of_the_users_own_can_build_on_the_shipped_one(tmp_path: Path) -> None:
    mine = tmp_path / "mine.sbatch.j2"
    mine.write_text('{% extends "job.sbatch.j2" %}\n{% block environment %}\n# mine\n{{ super() }}{% endblock %}')
    settings = Settings(task=FUNCTION, launch=Launch(template=str(mine)))
    plain = job("function")
    assert "# mine\n" in render(dataclasses.replace(plain, settings=settings))


def of_sweep(path: Path, packed: bool, **groups: object) -> str:
    settings = Settings(task=FUNCTION, sweep=Sweep(per_task=4, side_by_side=2), **groups)  # type: ignore[arg-type]
    made = dataclasses.replace(job("function"), folder=RunFolder(path), settings=settings)
    return render(dataclasses.replace(made, sweep=Array(packed=packed, side_by_side=2)))


@pytest.mark.parametrize(
    ("resources", "share"),
    [
        (Resources(memory="8G"), 4 << 30),
        (Resources(memory_per_cpu="1G", cpus_per_task=3, tasks_per_node=2), 3 << 30),
        (Resources(memory_per_gpu="6G", gpus_per_node=4), 12 << 30),
        (Resources(memory="0"), None),
        (Resources(memory_per_cpu="1G", exclusive=True), None),  # it gets all of the node's CPUs
        (Resources(), None),
    ],
)
def test_the_parent_of_points_is_told_what_each_may_use(resources: Resources, share: int | None) -> None:
    path = Path("/home/ada/runs/many/1")
    script = of_sweep(path, packed=True, resources=resources, checkpoint=Checkpoint(deadline="90s"))
    words = next(line for line in script.splitlines() if "-m slurmopt.job.pack" in line).split()
    told = words[words.index("--memory") + 1] if "--memory" in words else None
    assert told == (None if share is None else str(share))
    assert words[words.index("--deadline") + 1] == "90"


def test_an_array_task_of_which_points_failed_does_not_come_back_for_that() -> None:
    budgets = Restart(budgets=Budgets(user_error=3))
    script = of_sweep(Path("/home/ada/runs/many/1"), packed=True, restart=budgets)
    word = next(line for line in script.splitlines() if line.startswith("slurmopt_policy="))
    assert '"user_error":0' in word
    assert '"user_error":3' in script  # of each point


@pytest.mark.parametrize(("submission", "point", "started"), [(0, 4, True), (0, 17, False), (1, 17, True)])
def test_an_array_task_leaves_alone_what_a_newer_array_job_has(
    tmp_path: Path, submission: int, point: int, started: bool
) -> None:
    """The script up to where it would make the point's folder, by a real bash."""
    sweep = SweepFolder(tmp_path / "it's $(one)")
    sweep.path.mkdir()
    mine = Submission(number=0, points=Ranges.parse("0-19"), per_task=1, packed=False, job="7", token="slurmopt:a")
    newer = Submission(number=1, points=Ranges.parse("3,9,15-17,19"), per_task=1, packed=False, job="8", token="b")
    submissions.write(sweep.sweep_file, 20, [mine, newer])
    supervisor_file.write(sweep.run, supervisor())
    script = of_sweep(sweep.path, packed=False).partition('slurmopt_begin "$@"')[0]
    script += 'slurmopt_make_folder() { echo started; exit 0; }\nslurmopt_begin "$@"'
    words = [str(submission), str((mine, newer)[submission].points), "1"]
    task = (mine, newer)[submission].task_of(point)
    environment = {"SLURM_ARRAY_TASK_ID": str(task), "PATH": os.environ["PATH"]}
    done = subprocess.run(
        ["bash", "-s", *words], input=script, env=environment, capture_output=True, text=True, check=True
    )
    assert (done.stdout == "started\n") is started, done.stderr
    assert ("a newer array job has it" in done.stderr) is not started
