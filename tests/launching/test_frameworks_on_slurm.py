"""Programs that know nothing of slurmopt, on a real Slurm: each is preempted, requeued, and reaches its time limit.

They do in small what Lightning, HF Trainer, torchtitan, nanoGPT and a university's batch script do. All run at once.
"""

from __future__ import annotations

import json
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from json_answer import data_of
from launching.conftest import Project
from private_cluster import PrivateCluster, new_folder, unprivileged_user, wait_until

from slurmopt.run_folder import attempts as story
from slurmopt.run_folder import events
from slurmopt.run_folder.layout import RunFolder

PROGRAM = """
import os, pathlib, signal, sys, time
how = sys.argv[1]
names = ("SLURM_PROCID", "SLURM_NTASKS") if how == "srun" else ("RANK", "WORLD_SIZE")
rank, world = (os.environ.get(name) for name in names)
if how == "nanogpt" and rank is not None:
    sys.exit("RANK is set, so this is DistributedDataParallel")
if how == "srun":  # leaves politely, as Lightning and HF Trainer do
    for number in (signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, lambda number, _: (print(f"told by {number}", flush=True), sys.exit(0)))
out = pathlib.Path("out-" + how)
starts = out / f"starts-{rank}"
out.mkdir(exist_ok=True)
with starts.open("a") as file:
    file.write("x")
step = first = max((int(file.name[5:]) for file in out.glob("step-*")), default=0)
print(f"rank {rank} of {world} on {os.environ['SLURMD_NODENAME']} from step {step}", flush=True)
end = 10**6 if len(starts.read_text()) < 4 else first + 20
try:
    while step < end:
        time.sleep(0.05)
        step += 1
        if step % 10 == 0:
            (out / f"step-{step}").touch()
finally:
    print(f"left at {step}", flush=True)
"""
SCRIPT = f"""#!/bin/bash
#SBATCH --nodes=2
echo "a university's script, on $SLURM_JOB_NUM_NODES nodes"
srun --label {sys.executable} program.py srun
"""
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "program.py", "torchrun"]
COMMON = (
    "resources.partition=preempt", "resources.time=1h", "restart.lead=15s", "restart.forward=USR1",
    "resources.memory=200MB", "health.reach=false", "restart.no_progress=5",
)  # fmt: skip
RUNS = {  # its command, what it needs
    "srun": (["./job.sh"], ("resources.nodelist='node1,node2'", "resources.nodes=2", "resources.tasks_per_node=2")),
    "torchrun": (TORCHRUN, ("resources.nodelist=node3", "resources.tasks_per_node=2")),
    "nanogpt": ([sys.executable, "program.py", "nanogpt"], ("resources.nodelist=node4", "task.distributed=off")),
}


class Strangers:
    """The runs, and what became of them."""

    def __init__(self, project: Project) -> None:
        self.project, self.cluster = project, project.cluster
        self.said: dict[str, str] = {}
        self.jobs: dict[str, str] = {}
        self.folders: dict[str, RunFolder] = {}

    def launch(self, name: str) -> None:
        command, words = RUNS[name]
        checkpoints = f"task.checkpoints=out-{name}/step-*"
        all_words = [f"task.command={json.dumps(command)}", checkpoints, *words, *COMMON, f"launch.name={name}"]
        done = self.project.launch(*all_words, "launch.json=true")
        answer = data_of(done.stdout)
        self.said[name] = done.stderr
        self.jobs[name], self.folders[name] = answer["job_ids"][0], RunFolder(Path(answer["run"]))

    def wait_for_steps(self, name: str, attempt: int) -> None:
        """Until the attempt has saved a step of its own."""
        log = self.folders[name].rank_log(attempt, 0)
        wait_until(lambda: log.exists() and " from step " in log.read_text(), 90, f"{name} starts", self.journal(name))
        out = self.project.path / f"out-{name}"
        before = len(list(out.glob("step-*")))
        wait_until(lambda: len(list(out.glob("step-*"))) > before, 60, f"{name} saves", self.journal(name))

    def limit(self, name: str) -> None:
        """Brings the time limit of the attempt near."""
        job = self.jobs[name]
        shown = self.cluster.run(["scontrol", "show", "job", "--oneliner", job], env={"SLURM_TIME_FORMAT": "%s"}).stdout
        started = float(next(word[10:] for word in shown.split() if word.startswith("StartTime=")))
        minutes = int((time.time() + 30 - started) // 60) + 1
        self.cluster.run(["scontrol", "update", f"JobId={job}", f"TimeLimit={minutes}"], check=True)

    def lift_limits(self) -> None:
        """Takes the time limit away from each run whose attempt has been told of it: the next one has none."""
        near = list(RUNS)

        def lifted() -> bool:
            for name in [name for name in near if self.signals(name, 2) or len(story.attempts(self.folders[name])) > 3]:
                self.cluster.run(["scontrol", "update", f"JobId={self.jobs[name]}", "TimeLimit=60"], check=False)
                near.remove(name)
            return not near

        wait_until(lifted, 150, "all are told of their limit", lambda: "\n".join(self.journal(one)() for one in near))

    def signals(self, name: str, attempt: int) -> list[str]:
        return story.attempts(self.folders[name])[attempt].signals

    def journal(self, name: str) -> partial[str]:
        return partial(_journal, self.folders[name])

    def ended(self, name: str) -> bool:
        attempts = story.attempts(self.folders[name])
        return bool(attempts) and attempts[-1].end is not None and attempts[-1].end.get("next") is None


def _journal(folder: RunFolder) -> str:
    logs = "\n".join(path.read_text() for path in [*folder.logs.glob("job-*.log"), *folder.logs.glob("*/rank-0.log")])
    return "\n".join(map(str, events.read(folder.events))) + "\n" + logs


@pytest.fixture(scope="module")
def strangers(cluster: PrivateCluster) -> Iterator[Strangers]:
    user, path = unprivileged_user(), new_folder()
    path.chmod(0o755)
    (path / "program.py").write_text(PROGRAM)
    (path / "job.sh").write_text(SCRIPT)
    (path / "job.sh").chmod(0o755)
    shutil.chown(path, user)
    made = Strangers(Project(cluster, path, user))
    try:
        _live_through_all(made)
        yield made
    finally:
        cluster.run(["scancel", "--user", user])
        wait_until(lambda: not cluster.run(["squeue", "-h", "--user", user]).stdout, 60, "all jobs have gone")
        shutil.rmtree(path)


def _live_through_all(made: Strangers) -> None:
    for name in RUNS:
        made.launch(name)
    for name in RUNS:
        made.wait_for_steps(name, attempt=0)
    hog = ["--partition=urgent", "--nodes=4", "--cpus-per-task=16", "--mem=100", "--output=/dev/null", "--wrap=sleep 1"]
    made.project.run(["sbatch", *hog], check=True)
    for name in RUNS:
        made.wait_for_steps(name, attempt=1)
        made.cluster.run(["scontrol", "requeue", made.jobs[name]], check=True)
    for name in RUNS:
        made.wait_for_steps(name, attempt=2)
        made.limit(name)
    made.lift_limits()
    for name in RUNS:
        wait_until(partial(made.ended, name), 240, f"{name} ends", made.journal(name))


@pytest.mark.parametrize("name", RUNS)
def test_a_program_of_a_stranger_is_brought_back_until_it_has_finished(strangers: Strangers, name: str) -> None:
    folder = strangers.folders[name]
    causes = [attempt.cause for attempt in story.attempts(folder)]
    assert causes == ["preemption", "requeued", "time limit", "finished"], _journal(folder)
    began = [folder.rank_log(attempt, 0).read_text().partition("from step ")[2].split()[0] for attempt in range(4)]
    assert [int(step) for step in began] == sorted({int(step) for step in began}), "each goes on after the one before"


def test_srun_in_a_script_has_the_whole_job_and_its_log_is_the_runs(strangers: Strangers) -> None:
    folder = strangers.folders["srun"]
    assert "task.per=job: srun in ./job.sh starts the ranks" in strangers.said["srun"]
    log = folder.rank_log(3, 0).read_text()
    assert "a university's script, on 2 nodes" in log
    for rank, node in enumerate(("node1", "node1", "node2", "node2")):
        assert f"{rank}: rank {rank} of 4 on {node} from step " in log


def test_its_tasks_get_the_signals_that_a_batch_jobs_get(strangers: Strangers) -> None:
    """Slurm's SIGTERM in the grace time and at a requeue, and restart.forward before the time limit."""
    for attempt, number in enumerate((signal.SIGTERM, signal.SIGTERM, signal.SIGUSR1)):
        log = strangers.folders["srun"].rank_log(attempt, 0).read_text()
        assert log.count(f"told by {int(number)}\n") == 4, log
        assert log.count("left at ") == 4, log


def test_torchrun_is_started_once_and_starts_the_ranks(strangers: Strangers) -> None:
    assert "task.per=node: torchrun starts the ranks" in strangers.said["torchrun"]
    log = strangers.folders["torchrun"].rank_log(3, 0).read_text()
    assert all(log.count(f"rank {rank} of 2 on node3 from step ") == 1 for rank in (0, 1)), log
    assert (strangers.folders["torchrun"].path / "hostfile").read_text() == "node3 slots=2\n"


def test_a_program_that_hides_its_srun_does_not_wait_for_itself(project: Project) -> None:
    hidden = "program=srun; $program bash -c 'echo task $SLURM_PROCID'"
    answer = project.submit(f"task.command={json.dumps(['bash', '-c', hidden])}", "resources.time=2m")
    status = project.wait_for(answer, "finished", "failed", "killed", timeout=60)
    log = RunFolder(Path(answer["run"])).rank_log(0, 0).read_text()
    assert (status["state"], log) == ("finished", "task 0\n")


def test_a_module_that_does_not_load_is_the_users_error(project: Project) -> None:
    setup = "environment.modules=[no-such/1.0]"
    answer = project.submit("task.command=[true]", setup, "resources.time=2m")
    project.wait_for(answer, "failed", "killed", "lost")
    (attempt,) = story.attempts(RunFolder(Path(answer["run"])))
    assert attempt.cause == "user error"
