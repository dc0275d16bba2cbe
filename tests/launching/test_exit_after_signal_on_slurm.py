"""Programs that leave without an error when a real Slurm tells them to, as Lightning, HF Trainer and many others do.

All faults are caused at once, to runs, a packed sweep and a Hydra application that share one cluster.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from launching.conftest import Project
from private_cluster import PrivateCluster, new_folder, unprivileged_user, wait_until

from slurmopt.grid.records import readable
from slurmopt.run_folder import attempts as story
from slurmopt.run_folder import events
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.sweep_layout import SweepFolder

TRAIN = '''
"""Leaves as the frameworks do when it is told to; its first attempt does not end by itself, the second does at once."""
import os
import signal
import subprocess
import sys
import time
from pathlib import Path


class SIGTERMException(SystemExit):
    """As Lightning's."""


def train(how, state):
    import slurmopt

    own = state / f"step-of-{how}"
    step = int(own.read_text()) if own.exists() else 0
    again = own.exists()
    print("from step", step, flush=True)
    told = []

    def leave(*_):
        own.write_text(str(step))
        sys.exit(0)

    def requeue(*_):
        """Once, as Lightning; what it saves is the step at which it was told."""
        own.write_text(str(step))
        array = os.environ.get("SLURM_ARRAY_JOB_ID")
        job = f"{array}_{os.environ['SLURM_ARRAY_TASK_ID']}" if array else os.environ["SLURM_JOB_ID"]
        print("requeues", job, subprocess.call(["scontrol", "requeue", job]), flush=True)

    if how == "exits":
        signal.signal(signal.SIGTERM, leave)
    if how in ("returns", "raises", "requeues", "slow"):
        signal.signal(signal.SIGTERM, lambda *_: told.append(1))
    if how == "slow-usr2":
        signal.signal(signal.SIGUSR2, lambda *_: told.append(1))
    if how == "requeues" and signal.getsignal(signal.SIGUSR1) in (None, signal.SIG_DFL):
        print("auto-requeueing enabled", flush=True)
        signal.signal(signal.SIGUSR1, requeue)
    stop = slurmopt.current_run().folder.stop_request(0)
    while not told:
        step += 1
        slurmopt.progress(step)
        time.sleep(0.02)
        if again or (how == "untold" and stop.exists()):
            return {"loss": 0.5}
        if how == "asks" and slurmopt.stop_requested():
            break
    if how.startswith("slow"):
        time.sleep(2)  # it saves
    own.write_text(str(step))
    if how in ("raises", "requeues"):
        raise SIGTERMException
    return {"loss": 99.0}


def main(config):
    import slurmopt

    return train(config.how, slurmopt.current_run().folder.path)


main.makes_process_group = True  # without torch

if __name__ == "__main__":
    train(sys.argv[1], Path(os.environ["SLURMOPT_RUN_FOLDER"]))
'''
APPLICATION = """
import os
from pathlib import Path
import hydra
import polite

@hydra.main(config_path=None, config_name=None, version_base=None)
def main(config):
    return polite.train(config.how, Path(os.environ["SLURMOPT_RUN_FOLDER"]))

if __name__ == "__main__":
    main()
"""
FUNCTION, COMMAND, SRUN, SHELL = "function", "command", "srun", "shell"
SHORT = ("resources.time=1", "resources.exclude='node1,node2'")
PREEMPTIBLE = ("resources.partition=preempt", "resources.cpus_per_task=3", "resources.time=1:00:00")
NODE1, NODE2 = (*PREEMPTIBLE, "resources.nodelist=node1"), (*PREEMPTIBLE, "resources.nodelist=node2")
ELSEWHERE = ("resources.exclude='node1,node2'",)
RUNS: dict[str, tuple[str, str, tuple[str, ...], list[str]]] = {  # what it is, how it leaves, overrides, its causes
    "function-preempted": (FUNCTION, "raises", NODE1, ["preemption", "finished"]),
    "command-preempted": (COMMAND, "exits", NODE1, ["preemption", "finished"]),
    "function-announced": (FUNCTION, "asks", NODE2, ["preemption", "finished"]),  # by USR1
    "command-announced": (COMMAND, "returns", NODE2, ["preemption", "finished"]),
    "function-requeued": (FUNCTION, "returns", ELSEWHERE, ["requeued", "finished"]),
    "command-requeued": (COMMAND, "raises", ELSEWHERE, ["requeued", "finished"]),
    "function-cancelled": (FUNCTION, "exits", ELSEWHERE, ["cancelled"]),
    "command-cancelled": (COMMAND, "returns", ELSEWHERE, ["cancelled"]),
    "function-limit": (FUNCTION, "requeues", SHORT, ["time limit", "finished"]),
    "command-limit": (COMMAND, "requeues", (*SHORT, "restart.forward=USR1"), ["time limit", "finished"]),
    "command-limit-term": (COMMAND, "returns", (*SHORT, "restart.forward=TERM"), ["time limit", "finished"]),
    "srun-limit-term": (SRUN, "slow", (*SHORT, "restart.forward=TERM"), ["time limit", "finished"]),
    "srun-limit-usr2": (SRUN, "slow-usr2", (*SHORT, "restart.forward=USR2"), ["time limit", "finished"]),
    "job-announced": (COMMAND, "returns", (*NODE2, "task.per=job"), ["preemption", "finished"]),
    "shell-requeued": (SHELL, "slow", ELSEWHERE, ["requeued", "finished"]),
    "command-untold": (COMMAND, "untold", SHORT, ["finished"]),
}


class Site:
    """What has been launched, and what became of it."""

    def __init__(self, project: Project) -> None:
        self.project, self.cluster = project, project.cluster
        self.jobs: dict[str, str] = {}
        self.folders: dict[str, RunFolder] = {}

    def launch(self, name: str, kind: str, how: str, needs: tuple[str, ...]) -> None:
        words = [sys.executable, "polite.py", how]
        if kind in (SHELL, SRUN):
            words = ["bash", "-c", f"{'srun ' if kind == SRUN else ''}{' '.join(words)}; exit $?"]
        task = [f"task.command={json.dumps(words)}"]
        if kind == FUNCTION:
            task = ["task._target_=polite.main", f"+how={how}"]
        self.submit(name, *task, *needs)

    def submit(self, name: str, *words: str) -> RunFolder:
        quiet = ("resources.memory=400MB", "monitor.heartbeat=1s", "health.enabled=false", f"launch.name={name}")
        answer = self.project.submit(*words, *quiet)
        self.jobs[name] = answer["job_ids"][0]
        folder = self.folders[name] = RunFolder(Path(answer["run"]))
        return folder

    def wait_for_steps(self, folder: RunFolder) -> None:
        wait_until(lambda: "from step" in _log(folder, 0), 60, f"{folder.path} begins", lambda: _journal(folder))

    def urgent(self, node: str) -> None:
        """A job that needs all of a node."""
        what = ["--partition=urgent", f"--nodelist={node}", "--cpus-per-task=16", "--mem=100", "--output=/dev/null"]
        self.project.run(["sbatch", *what, "--wrap=sleep 1"], check=True)

    def preempt_by_usr1(self, on: bool) -> None:
        conf, line = self.cluster.conf, "SlurmctldParameters=preempt_send_user_signal\n"
        conf.write_text(conf.read_text().replace(line, "") + (line if on else ""))
        self.cluster.run(["scontrol", "reconfigure"])

    def clear(self) -> None:
        """No job is left, and preemption is as it was."""
        self.preempt_by_usr1(False)
        cluster, user = self.cluster, self.project.user
        cluster.run(["scancel", "--user", user])
        wait_until(lambda: not cluster.run(["squeue", "-h", "--user", user]).stdout, 60, "all jobs have gone")


@pytest.fixture(scope="module")
def site(cluster: PrivateCluster) -> Iterator[Site]:
    user, path = unprivileged_user(), new_folder()
    path.chmod(0o755)
    (path / "polite.py").write_text(TRAIN)
    (path / "app.py").write_text(APPLICATION)
    shutil.chown(path, user)
    made = Site(Project(cluster, path, user))
    try:
        yield made
    finally:
        made.clear()
        shutil.rmtree(path)


@pytest.fixture(scope="module")
def faults(site: Site) -> Iterator[Site]:
    """All runs, each with its fault, until all have ended. A try that failed leaves nothing to the next one."""
    try:
        _cause_all(site)
        yield site
    finally:
        site.clear()


def _cause_all(site: Site) -> None:
    for name, (kind, how, needs, _) in RUNS.items():
        site.launch(name, kind, how, needs)
    successor = site.submit(
        "successor", "task.command=[true]", f"launch.after=['{site.folders['function-cancelled'].path}']", *ELSEWHERE
    )
    packing = ("+how=raises,returns", "sweep.per_task=2", "sweep.side_by_side=2")
    pack = SweepFolder(site.submit("pack", "-m", "task._target_=polite.main", *packing, *NODE1).path)
    for name in RUNS:
        site.wait_for_steps(site.folders[name])
    for point in (0, 1):
        site.wait_for_steps(pack.point(point))
    site.urgent("node1")
    cluster = site.cluster
    cluster.run(["scontrol", "requeue", ",".join(site.jobs[name] for name in RUNS if name.endswith("requeued"))])
    cluster.run(["scancel", *(site.jobs[name] for name in RUNS if name.endswith("cancelled"))])
    wait_until(lambda: story.attempts(readable(pack.point(0)))[0].end, 60, "node1 is preempted")
    site.preempt_by_usr1(True)
    site.urgent("node2")
    for folder in [*(site.folders[name] for name in RUNS), pack.point(0), pack.point(1)]:
        wait_until(partial(_ended, folder), 120, f"{folder.path} ends", partial(_journal, folder))
    assert not successor.attempts()


def _log(folder: RunFolder, attempt: int) -> str:
    path = readable(folder).rank_log(attempt, 0)
    return path.read_text() if path.exists() else ""


def _ended(folder: RunFolder) -> bool:
    attempts = story.attempts(readable(folder))
    return bool(attempts) and attempts[-1].end is not None and attempts[-1].end.get("next") is None


def _causes(folder: RunFolder) -> list[str | None]:
    return [attempt.cause for attempt in story.attempts(readable(folder))]


def _job_log(folder: RunFolder) -> str:
    return "\n".join(path.read_text() for path in folder.logs.glob("job-*.log"))


def _journal(folder: RunFolder) -> str:
    return "\n".join(map(str, events.read(readable(folder).events))) + "\n" + _job_log(folder)


@pytest.mark.parametrize("name", RUNS)
def test_the_signal_decides_and_not_how_politely_the_program_leaves(faults: Site, name: str) -> None:
    folder = faults.folders[name]
    assert _causes(folder) == RUNS[name][3], _journal(folder)
    status = faults.project.status(str(folder.path))
    assert (status["state"], status["jobs"]) == (RUNS[name][3][-1], [faults.jobs[name]])


@pytest.mark.parametrize("name", [name for name, run in RUNS.items() if run[3][0] != "cancelled" and len(run[3]) > 1])
def test_what_was_saved_is_gone_on_with(faults: Site, name: str) -> None:
    steps = [int(re.findall(r"from step (\d+)", _log(faults.folders[name], attempt))[0]) for attempt in (0, 1)]
    assert steps[0] == 0 < steps[1]


@pytest.mark.parametrize("name", ["function-limit", "command-limit"])
def test_a_training_that_requeues_itself_is_requeued_once(faults: Site, name: str) -> None:
    folder = faults.folders[name]
    log = _log(folder, 0)
    assert "auto-requeueing enabled" in log
    assert f"requeues {faults.jobs[name]} 0" in log
    assert len(folder.attempts()) == 2
    assert "this shell asks for the requeue" in _job_log(folder)  # unless Slurm has ended it by then
    shown = faults.cluster.run(["scontrol", "show", "job", "--oneliner", faults.jobs[name]]).stdout
    assert re.findall(r" Restarts=(\d+) ", shown) == ["1"]


def test_what_waits_for_a_cancelled_run_does_not_start(faults: Site) -> None:
    assert not faults.folders["successor"].attempts()


def test_points_of_a_pack_go_on(faults: Site) -> None:
    pack = SweepFolder(faults.folders["pack"].path)
    for point in (pack.point(0), pack.point(1)):
        assert _causes(point) == ["preemption", "finished"], _journal(point)
        assert (story.attempts(readable(point))[-1].end or {})["result"] == {"loss": 0.5}


def test_a_hydra_application_goes_on(site: Site) -> None:
    out = f"out-{time.time_ns()}"  # another try of this test has left points in its own
    argv = [sys.executable, "app.py", "-m", "+how=raises,returns", "hydra/launcher=slurmopt", f"hydra.sweep.dir={out}"]
    argv += ["hydra.launcher.resources.time=5m", "hydra.launcher.resources.memory=100MB"]
    folder, user = site.project.path, site.project.user
    environment = {
        "XDG_CACHE_HOME": str(folder / "cache"),
        "XDG_STATE_HOME": str(folder / "state"),
        "PYTHONPATH": str(folder),
        **site.project.environment(),
    }
    process = subprocess.Popen(argv, cwd=folder, user=user, env=environment, stderr=subprocess.PIPE, text=True)

    def points() -> list[RunFolder]:
        return [RunFolder(path.parent) for path in folder.glob(f"{out}/.slurmopt/app/*/points/*/events.jsonl")]

    try:
        wait_until(lambda: len(points()) == 2, 60, "both jobs have begun")
        for point in points():
            site.wait_for_steps(point)
        site.cluster.run(["scontrol", "requeue", ",".join(str(story.attempts(point)[0].job) for point in points())])
        said = process.communicate(timeout=90)[1]
    finally:
        process.kill()
    assert process.returncode == 0, said
    for point in points():
        assert _causes(point) == ["requeued", "finished"], _journal(point)
