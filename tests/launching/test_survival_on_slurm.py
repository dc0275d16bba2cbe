"""One test for each way in which a real Slurm ends a job: the run comes back by itself, and knows why it ended.

All faults are caused at once, to runs that share one cluster; what each test looks at is what its run has become.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest
from launching.conftest import Project
from private_cluster import PrivateCluster, new_folder, unprivileged_user, wait_until

from slurmopt.run_folder import attempts as story
from slurmopt.run_folder import events, heartbeat
from slurmopt.run_folder.layout import RunFolder

TRAIN = """
import os, signal, sys, time, slurmopt
run, rank = slurmopt.current_run(), slurmopt.rank_facts().rank
own = run.folder.checkpoints / "step"
step = int(own.read_text()) if own.exists() else 0
print("from step", step, flush=True)

def save():  # whole or not at all, whenever it is killed
    beside = own.with_name("beside")
    beside.write_text(str(step))
    beside.replace(own)

how = sys.argv[1]
if how == "broken":
    raise ValueError("the training's own mistake")
if how == "stuck":
    sys.exit(75)
if how == "ignores":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
end = 10**6 if run.attempt < int(sys.argv[2]) else step + 10
while step < end:
    time.sleep(0.02)
    step += 1
    slurmopt.progress(step)
    told = how != "ignores" and slurmopt.stop_requested()
    if rank == 0 and (told or step % 20 == 0):
        save()
    if told or (how == "asks" and step == 40):
        save() if rank == 0 else None
        sys.exit(75)
    if how == "aborts" and step == 40 and end == 10**6 and rank == 1:
        print("terminate called after throwing an instance of 'c10::DistBackendError'", file=sys.stderr)
        print("  what():  [Rank 1] Process group watchdog thread terminated with exception: CUDA error: "
              "uncorrectable ECC error encountered", file=sys.stderr, flush=True)
        os.kill(os.getppid(), signal.SIGABRT)  # the rank itself, as torch's watchdog for NCCL does to a function's
        time.sleep(60)
    if how in ("marker", "garbage") and step == 40 and end == 10**6:
        if rank == 0:
            save()
            (run.folder.path / "requeue").write_text('{"step": 40}' if how == "marker" else "\\0 not JSON")
        time.sleep(1)
        sys.exit(3)
"""
ONE = ("resources.nodes=1", "resources.tasks_per_node=2", "resources.exclude=node4")
TWO = ("resources.nodes=2", "resources.exclude=node4")
HOG = (*TWO, "resources.partition=preempt", "resources.nodelist='node1,node2'", "resources.cpus_per_task=10")
RUNS: dict[str, tuple[tuple[str, ...], str, int]] = {  # overrides, what the training does, attempts that do not end
    "ignores": ((*TWO, "resources.time=1", "restart.lead=15s"), "ignores", 1),
    "time-limit": ((*TWO, "resources.time=1"), "trains", 1),
    "told-early": ((*ONE, "resources.time=30m", "restart.lead=10m"), "trains", 1),  # timers of ten minutes
    "requeued": (TWO, "trains", 1),
    "preempted": (HOG, "trains", 2),
    "killed": (ONE, "trains", 1),
    "hangs": ((*ONE, "restart.hang_after=3s"), "trains", 1),
    "strict": ((*ONE, "environment.setup=['set -euo pipefail','IFS=x','trap true EXIT TERM']"), "trains", 1),
    "cancelled": (ONE, "trains", 1),
    "tokyo": (ONE, "trains", 1),
    "node-of-others": (("resources.nodes=2", "resources.nodelist='node3,node4'"), "trains", 1),
    "node-of-batch": ((*ONE[:2], "resources.nodelist=node4"), "trains", 1),
    "asks": (ONE, "asks", 1),
    "aborts": (TWO, "aborts", 1),
    "done-unsaid": ((*TWO, "environment.setup=['PATH=$PWD/unsaid:$PATH']"), "asks", 1),
    "marker": (ONE, "marker", 1),
    "garbage": (ONE, "garbage", 1),
    "broken": (ONE, "broken", 0),
    "stuck": (ONE, "stuck", 0),
}
OF_NODE4 = ("node-of-others", "node-of-batch")
FINAL = ("finished", "failed", "killed", "cancelled", "lost")


pytestmark = pytest.mark.releases

# What scontrol of 26.05 may say of a job with several nodes, done or not.
UNCLEAR_ANSWER = """#!/bin/bash
if [ "$1" = requeue ]; then {requeue}; echo "Unexpected message received for job $2" >&2; exit 1; fi
exec {scontrol} "$@"
"""


def _put_scontrol(folder: Path, requeue: str) -> None:
    """An scontrol that answers a requeue in unclear words after `requeue`; all else is the real one."""
    real = str(shutil.which("scontrol"))
    folder.mkdir(exist_ok=True)
    (folder / "scontrol").write_text(UNCLEAR_ANSWER.format(requeue=requeue.format(scontrol=real), scontrol=real))
    (folder / "scontrol").chmod(0o755)


class Faults:
    """All runs, their faults, and what became of them."""

    def __init__(self, project: Project) -> None:
        self.project, self.cluster = project, project.cluster
        self.jobs: dict[str, str] = {}
        self.folders: dict[str, RunFolder] = {}

    def launch(self, name: str) -> None:
        needs, how, endless = RUNS[name]
        quiet = ("resources.memory=100MB", "monitor.heartbeat=1s", "health.reach=false", f"launch.name={name}")
        command = f"task.command=[{sys.executable},train.py,{how},{endless}]"
        answer = self.project.submit(command, *needs, *quiet, **({"TZ": "Asia/Tokyo"} if name == "tokyo" else {}))
        self.jobs[name], self.folders[name] = answer["job_ids"][0], RunFolder(Path(answer["run"]))

    def wait_for_steps(self, name: str, attempt: int = 0) -> None:
        """Until both ranks of the attempt have made steps, and one is saved."""

        def at_work() -> bool:
            beats = [heartbeat.read(self.folders[name].heartbeat(attempt, rank)) for rank in (0, 1)]
            return all(beat is not None and (beat.step or 0) > 20 for beat in beats)

        wait_until(at_work, 60, f"steps of {name}", lambda: self.project.status(str(self.folders[name].path)))

    def pid(self, name: str, rank: int) -> int:
        beat = heartbeat.read(self.folders[name].heartbeat(0, rank))
        assert beat is not None
        return beat.pid

    def urgent(self, node: str) -> None:
        """A job of higher priority that needs what the preempted run holds."""
        what = ["--partition=urgent", f"--nodelist={node}", "--cpus-per-task=10", "--mem=100", "--output=/dev/null"]
        self.project.run(["sbatch", *what, "--wrap=sleep 3"], check=True)

    def running(self, jobs: str) -> str:
        return self.cluster.run(["squeue", "-h", "--states=RUNNING", "-j", jobs, "-o", "%A"]).stdout

    def attempts(self, name: str) -> list[story.Attempt]:
        """Up to the one that finished: Slurm 24.11 starts a job that was preempted twice once more after its end."""
        found = story.attempts(self.folders[name])
        finished = next((one.number for one in found if one.cause == "finished"), len(found))
        return [one for one in found if one.number <= finished]

    def causes(self, name: str) -> list[str | None]:
        return [attempt.cause for attempt in self.attempts(name)]


@pytest.fixture(scope="module")
def faults(cluster: PrivateCluster) -> Iterator[Faults]:
    user, path = unprivileged_user(), new_folder()
    path.chmod(0o755)
    (path / "train.py").write_text(TRAIN)
    _put_scontrol(path / "unsaid", "{scontrol} requeue $2")
    shutil.chown(path, user)
    made = Faults(Project(cluster, path, user))
    try:
        _cause_all(made)
        yield made
    finally:  # of a try that failed, too: the next one finds the cluster as this one did
        cluster.restore_node("node4")
        cluster.run(["scontrol", "update", "PartitionName=preempt", "GraceTime=5"])
        cluster.run(["scancel", "--user", user])
        wait_until(lambda: not cluster.run(["squeue", "-h", "--user", user]).stdout, 60, "all jobs have gone")
        shutil.rmtree(path)


def _cause_all(made: Faults) -> None:
    cluster = made.cluster
    for name in RUNS:
        made.launch(name)
    for name, (_, how, _) in RUNS.items():
        if how == "trains":
            made.wait_for_steps(name)
    cluster.kill_node("node4")
    made.urgent("node2")
    cluster.run(["scontrol", "requeue", made.jobs["requeued"]], check=True)
    cluster.run(["scancel", "--batch", "--signal=USR1", made.jobs["told-early"]], check=True)
    for name in ("killed", "strict"):
        os.kill(made.pid(name, 1), signal.SIGKILL)
    os.kill(made.pid("hangs", 1), signal.SIGSTOP)
    cluster.run(["scancel", made.jobs["cancelled"], made.jobs["tokyo"]], check=True)
    made.wait_for_steps("preempted", attempt=1)
    cluster.run(["scontrol", "update", "PartitionName=preempt", "GraceTime=0"], check=True)
    made.urgent("node1")
    jobs = ",".join(made.jobs[name] for name in OF_NODE4)
    wait_until(lambda: not made.running(jobs), 60, "node4 is given up", lambda: made.running(jobs))
    cluster.restore_node("node4")  # at once: slurmctld's next ping of a dead node would end the jobs once more
    for folder in made.folders.values():
        wait_until(partial(_ended, folder), 180, f"{folder.name} ends", partial(_journal, folder))


def _processes(made: Faults) -> list[str]:
    """What still runs for any of the runs, by its environment: an orphan's command line need not tell."""
    mine, found = f"SLURMOPT_RUN_FOLDER={made.project.path}/".encode(), []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError, PermissionError):
            if mine in (process / "environ").read_bytes():
                found.append((process / "cmdline").read_bytes().decode(errors="replace"))
    return found


def _ended(folder: RunFolder) -> bool:
    attempts = story.attempts(folder)
    return bool(attempts) and attempts[-1].end is not None and attempts[-1].end.get("next") is None


def _journal(folder: RunFolder) -> str:
    log = "\n".join(path.read_text() for path in folder.logs.glob("job-*.log"))
    return "\n".join(map(str, events.read(folder.events))) + "\n" + log


@pytest.mark.parametrize(
    ("name", "causes"),
    [
        ("time-limit", ["time limit", "finished"]),
        ("told-early", ["time limit", "finished"]),
        ("requeued", ["requeued", "finished"]),
        ("preempted", ["preemption", "preemption", "finished"]),  # with grace, and without
        ("killed", ["killed", "finished"]),
        ("strict", ["killed", "finished"]),  # whatever the user's own lines did to the shell
        ("hangs", ["hang", "finished"]),
        ("cancelled", ["cancelled"]),
        ("tokyo", ["cancelled"]),  # Slurm's time stamps are in another zone
        ("node-of-others", ["node failure", "finished"]),
        ("node-of-batch", ["node failure", "finished"]),
        ("asks", ["asked", "finished"]),
        ("aborts", ["infrastructure", "finished"]),
        ("done-unsaid", ["asked", "finished"]),
        ("marker", ["asked", "finished"]),
        ("garbage", ["asked", "finished"]),
        ("ignores", ["time limit", "finished"]),
        ("broken", ["user error"]),
        ("stuck", ["asked", "asked"]),  # no progress
    ],
)
def test_the_run_comes_back_and_knows_why(faults: Faults, name: str, causes: list[str]) -> None:
    assert faults.causes(name) == causes, _journal(faults.folders[name])
    status = faults.project.status(str(faults.folders[name].path))
    ends = {"cancelled": "cancelled", "tokyo": "cancelled", "broken": "failed", "stuck": "failed"}
    assert status["state"] == ends.get(name, "finished")
    assert status["jobs"] == [faults.jobs[name]]


@pytest.mark.parametrize("name", ["time-limit", "requeued", "preempted", "asks"])
def test_an_end_that_was_announced_loses_no_step(faults: Faults, name: str) -> None:
    folder, attempts = faults.folders[name], faults.attempts(name)
    for before, after in pairwise(attempts):
        beat = heartbeat.read(folder.heartbeat(before.number, 0))
        assert beat is not None
        log = folder.rank_log(after.number, 0).read_text()
        assert f"from step {beat.step}\n" in log, log


def test_the_signal_before_the_time_limit_comes_before_the_end_and_the_requeue_after_it(faults: Faults) -> None:
    order = ["attempt", "signal", "end", "requeue"]
    told = events.read(faults.folders["time-limit"].events, *order)
    assert [event["event"] for event in told][:4] == order


def test_the_rank_that_stopped_first_is_named_and_its_stack_is_asked_for(faults: Faults) -> None:
    (hang,) = [event for event in events.read(faults.folders["hangs"].events) if event["event"] == "hang"]
    assert hang["rank"] == 1
    assert "rank 1" in _journal(faults.folders["hangs"])


def test_the_node_of_a_rank_that_its_gpu_took_down_is_left_out(faults: Faults) -> None:
    first, second = faults.attempts("aborts")
    end = first.end or {}
    assert (end["rank"], end["outcome"]) == (1, "infrastructure")
    assert "uncorrectable ECC error" in end["error"]
    (excluded,) = [e["nodes"] for e in events.read(faults.folders["aborts"].events) if e["event"] == "node-excluded"]
    assert excluded == end["node"]
    names = faults.cluster.run(["scontrol", "show", "hostnames", second.nodes or ""]).stdout.split()
    assert excluded not in names


def test_a_stopped_or_killed_attempt_leaves_no_process(faults: Faults) -> None:
    assert _processes(faults) == []


def test_a_requeue_file_says_what_is_saved_and_garbage_in_it_is_one_line(faults: Faults) -> None:
    assert faults.attempts("marker")[0].durable == 40
    assert faults.attempts("garbage")[0].durable is None
    said = [
        line for line in _journal(faults.folders["garbage"]).splitlines() if "is not a JSON object with a step" in line
    ]
    assert len(said) == 1


def test_a_command_that_ignores_the_signal_is_ended_in_time_to_come_back(faults: Faults) -> None:
    assert "the ranks have not ended in time; ending them" in _journal(faults.folders["ignores"])


def test_a_requeue_that_slurm_did_without_saying_so_is_not_asked_for_again(faults: Faults) -> None:
    assert "trying again" not in _journal(faults.folders["done-unsaid"])


def test_a_run_that_gets_nowhere_says_so(faults: Faults) -> None:
    end = faults.attempts("stuck")[-1].end or {}
    assert end["next"] is None
    assert "no progress: the last 2 attempts added no checkpointed step" in end["reason"]
    assert "no progress" in faults.project.slurmopt("status", str(faults.folders["stuck"].path)).stdout


def test_what_the_user_cancelled_is_not_requeued(faults: Faults) -> None:
    queue = faults.project.run(["squeue", "-h", "-o", "%A %T", "-t", "PD,R"]).stdout
    assert not {faults.jobs["cancelled"], faults.jobs["tokyo"]} & set(queue.split())


def test_a_cancel_while_slurm_does_not_answer_the_requeue_is_final(faults: Faults) -> None:
    """The verdict is given, and the batch shell tries to be requeued: what it notes then must be lines of JSON."""
    _put_scontrol(faults.project.path / "undone", ":")
    setup = "environment.setup=['PATH=$PWD/undone:$PATH']"
    answer = faults.project.submit("task.command=[bash, -c, 'kill -9 $$']", setup, "resources.memory=100MB")
    folder = RunFolder(Path(answer["run"]))
    wait_until(lambda: "does not answer" in _journal(folder), 60, "the first try", partial(_journal, folder))
    faults.cluster.run(["scancel", answer["job_ids"][0]], check=True)
    wait_until(lambda: story.attempts(folder)[-1].cause == "cancelled", 30, "it is heeded", partial(_journal, folder))
    lines = folder.events.read_bytes().splitlines()
    assert len(list(events.parse(lines))) == len(lines)


def test_a_job_that_is_cancelled_while_it_starts_does_not_come_back(faults: Faults) -> None:
    """Before its attempt has a number: the folder of that is made by a mkdir that waits for a file."""
    folder = faults.project.path / "slow"
    folder.mkdir()
    wait = 'trap "" TERM; : > starting; until [ -e go ]; do sleep 0.1; done'
    (folder / "mkdir").write_text(
        f'#!/bin/bash\n[ -z "$SLURM_JOB_ID" ] || {{ {wait}; }}\nexec {shutil.which("mkdir")} "$@"\n'
    )
    (folder / "mkdir").chmod(0o755)
    path = f"{folder}:{os.environ['PATH']}"
    answer = faults.project.submit("task.command=[sleep, 60]", "resources.memory=100MB", PATH=path)
    run, (job,) = RunFolder(Path(answer["run"])), answer["job_ids"]
    wait_until((faults.project.path / "starting").exists, 60, "the job starts")
    faults.cluster.run(["scancel", job], check=True)
    wait_until(lambda: "CANCELLED AT" in run.job_log(job).read_text(), 30, "Slurm ends it")
    (faults.project.path / "go").touch()
    left = ["squeue", "-h", "-j", job, "--states=pending,running,completing,requeued"]
    wait_until(lambda: not faults.cluster.run(left, check=False).stdout, 60, "it has gone", partial(_journal, run))
    assert faults.project.status(str(run.path))["state"] == "cancelled"
    assert [one.cause for one in story.attempts(run)] == ["cancelled"]
