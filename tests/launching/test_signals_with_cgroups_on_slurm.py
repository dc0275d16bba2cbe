"""On a Slurm with cgroups: its signals go only to what slurmstepd started, and the sampler reads the step's cgroup."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from launching.conftest import Project
from private_cluster import PrivateCluster, new_folder, require_slurm, script, unprivileged_user, wait_until

from slurmopt.run_folder import attempts, events
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.series import series

PROGRAM = """
import os, signal, sys, time
def leave(number, _):
    print("told by", number, flush=True)
    time.sleep(1)  # it saves
    open(sys.argv[1], "w").close()
    sys.exit(0)
signal.signal(signal.SIGTERM, leave)
print("ready", flush=True)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.05)
"""
RUN = f"{sys.executable} program.py"
COMMANDS = {
    "rank": ([sys.executable, "program.py", "rank"], "rank"),
    "shell": (["bash", "-c", f"{RUN} shell; exit $?"], "rank"),
    "job": (["bash", "-c", f"{RUN} job; exit $?"], "job"),
    "srun": (["bash", "-c", f"srun {RUN} srun; exit $?"], "job"),
}


@pytest.fixture(scope="module")
def project() -> Iterator[Project]:
    require_slurm()
    user, folder, path = unprivileged_user(), new_folder(), Path(f"/tmp/slurmopt-cgroups-{os.getpid()}")
    started = script("start", "--folder", str(folder), "--nodes", "1", "--cgroups")
    if started.returncode:
        folder.rmdir()
        pytest.skip(f"NOT TESTED WITH CGROUPS: {started.stderr.strip()}")
    cluster = PrivateCluster(folder, folder / "etc" / "slurm.conf")
    path.mkdir()
    (path / "program.py").write_text(PROGRAM)
    shutil.chown(path, user)
    try:
        yield Project(cluster, path, user)
    finally:
        cluster.stop()
        shutil.rmtree(path)


def _journal(folder: RunFolder) -> str:
    logs = "\n".join(path.read_text() for path in folder.logs.rglob("*.log"))
    return "\n".join(map(str, events.read(folder.events))) + "\n" + logs


def _log(folder: RunFolder) -> str:
    path = folder.rank_log(0, 0)
    return path.read_text() if path.exists() else ""


def _has_ended(folder: RunFolder) -> bool:
    return len(found := attempts.attempts(folder)) > 1 and found[-1].end is not None


def test_a_command_is_told_once_of_a_requeue_and_saves(project: Project) -> None:
    folders: dict[str, RunFolder] = {}
    jobs = []
    for name, (words, per) in COMMANDS.items():
        quiet = ("health.enabled=false", "monitor.heartbeat=1s", "resources.memory=200MB", "resources.time=5m")
        answer = project.submit(f"task.command={json.dumps(words)}", f"task.per={per}", f"launch.name={name}", *quiet)
        folders[name] = RunFolder(Path(answer["run"]))
        jobs += answer["job_ids"]
    for folder in folders.values():
        wait_until(lambda folder=folder: "ready" in _log(folder), 90, "the command begins", partial(_journal, folder))  # type: ignore[misc]
    project.cluster.run(["scontrol", "requeue", ",".join(jobs)])
    for folder in folders.values():
        wait_until(partial(_has_ended, folder), 90, "the second attempt ends", partial(_journal, folder))
    for name, folder in folders.items():
        assert [one.cause for one in attempts.attempts(folder)] == ["requeued", "finished"], _journal(folder)
        assert _log(folder).count("told by 15") == 1, _journal(folder)
        assert (project.path / name).exists(), "it was left the time to save"


HOLDS = """
import sys, time
data = bytearray(60 << 20)
for at in range(0, len(data), 4096):
    data[at] = 1
open("file", "wb").write(bytes(20 << 20))
open("file", "rb").read()
while True:
    sum(range(100_000))
    time.sleep(0.01)
"""


def _with_memory(folder: RunFolder) -> series.Series:
    """The series of the node, once what `holds.py` holds is in it."""

    def measured() -> series.Series | None:
        names = folder.nodes_with_series(0)
        return (
            series.read(folder.series(0, names[0]), folder.recent_series(0, names[0]), detail=True) if names else None
        )

    def has_memory() -> bool:
        found = measured()
        return found is not None and any((value or 0) > 60 << 20 for value in found.values.get("node.memory", []))

    wait_until(has_memory, 120, "a row with the memory", partial(_journal, folder))
    found = measured()
    assert found is not None
    return found


def test_the_sampler_reads_the_steps_cgroup_and_sees_who_the_kernel_killed(project: Project) -> None:
    (project.path / "holds.py").write_text(HOLDS)
    shutil.chown(project.path / "holds.py", project.user)
    allocate = f"{sys.executable} -c 'x = bytearray(10**9); x[::4096] = bytes(len(x[::4096]))'"
    words = ["bash", "-c", f"{allocate}; exec {sys.executable} holds.py"]
    quiet = ("health.enabled=false", "monitor.every=1s", "resources.memory=200MB", "resources.time=5m")
    answer = project.submit(f"task.command={json.dumps(words)}", "launch.name=measured", *quiet)
    folder = RunFolder(Path(answer["run"]))

    found = _with_memory(folder)
    assert found.facts["memory_limit"] == 200 << 20
    assert found.values["node.page_cache"][-1] is not None
    assert 60 << 20 < (found.values["node.memory"][-1] or 0) < 150 << 20
    assert (found.values["node.charged_peak"][-1] or 0) > 150 << 20, "of the process that was killed"
    assert (found.values["node.cpu"][-1] or 0) > 0.01
    assert [event["count"] for event in found.events if event["event"] == "oom_kill"] == [1]
    project.slurmopt("cancel", str(folder.path))


def test_where_the_command_starts_steps_of_its_own_the_whole_job_is_measured(project: Project) -> None:
    (project.path / "holds.py").write_text(HOLDS)
    words = json.dumps(["srun", sys.executable, "holds.py"])
    quiet = ("health.enabled=false", "monitor.every=1s", "resources.memory=200MB", "resources.time=5m")
    answer = project.submit(f"task.command={words}", "task.per=job", "launch.name=steps", *quiet)
    folder = RunFolder(Path(answer["run"]))
    found = _with_memory(folder)
    assert (found.values["node.cpu"][-1] or 0) > 0.01
    project.slurmopt("cancel", str(folder.path))
