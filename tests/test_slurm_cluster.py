"""scripts/slurm-cluster: real daemons, two clusters side by side, nodes that die, nothing left behind."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from private_cluster import SCRIPT, PrivateCluster, need_slurm, unprivileged_user, wait_until

SLEEPER = "#!/bin/bash\n#SBATCH --requeue --output=/dev/null --nodelist=node1\nexec sleep 300\n"


@pytest.fixture(scope="module")
def cluster() -> Iterator[PrivateCluster]:
    need_slurm()
    made = PrivateCluster.start(Path(f"/tmp/slurmopt-own-{os.getpid()}"), "--nodes", "2", "--gpus", "4")
    yield made
    made.stop()


def processes_of(cluster: PrivateCluster) -> list[str]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                environment = (entry / "environ").read_bytes()
            except OSError:
                continue
            if f"SLURM_CONF={cluster.conf}".encode() in environment.split(b"\0"):
                found.append(entry.name)
    return found


def submit(cluster: PrivateCluster, script: str) -> str:
    path = cluster.folder / "job.sh"
    path.write_text(script)
    return cluster.run(["sbatch", "--parsable", str(path)]).stdout.strip()


def test_an_unprivileged_user_gets_gpus_on_two_nodes(cluster: PrivateCluster) -> None:
    words = ["srun", "-N2", "--gpus-per-node=2", "bash", "-c", "echo $SLURMD_NODENAME $CUDA_VISIBLE_DEVICES $(id -un)"]
    lines = sorted(cluster.run(words, user=unprivileged_user()).stdout.splitlines())
    assert lines == [f"node1 0,1 {unprivileged_user()}", f"node2 0,1 {unprivileged_user()}"]


def test_a_dead_nodes_job_is_requeued_and_the_node_comes_back(cluster: PrivateCluster) -> None:
    job = submit(cluster, SLEEPER)
    wait_until(lambda: cluster.state(job) == "RUNNING", 20, "the job runs")
    scratch = cluster.folder / "scratch" / "node1"
    (scratch / "file").write_text("lost with the node")
    cluster.control("kill-node", "node1")
    assert not scratch.exists()
    wait_until(lambda: cluster.state(job) == "PENDING", 60, "the job waits again")
    cluster.control("restore-node", "node1")
    wait_until(lambda: cluster.state(job) == "RUNNING", 60, "the job runs again")
    cluster.run(["scancel", job])


def test_the_ranks_of_a_node_that_is_cut_off_live_on(cluster: PrivateCluster) -> None:
    job = submit(cluster, SLEEPER.replace("sleep 300", "sleep 291"))
    sleeper = ["pgrep", "-f", "sleep 291"]
    wait_until(lambda: subprocess.run(sleeper, capture_output=True).returncode == 0, 20, "the rank runs")
    cluster.control("partition-node", "node1")
    assert subprocess.run(sleeper, capture_output=True).returncode == 0
    assert not cluster.daemons()["node1"]
    cluster.control("kill-node", "node1")
    wait_until(lambda: subprocess.run(sleeper, capture_output=True).returncode != 0, 10, "the rank is gone")
    cluster.control("restore-node", "node1")
    cluster.run(["scancel", job])


def test_the_controller_can_go_and_come_back(cluster: PrivateCluster) -> None:
    cluster.control("restart-controller")
    assert "node1" in cluster.run(["sinfo", "-N", "-h"]).stdout


def test_a_second_cluster_lives_beside_it_and_leaves_nothing_behind(cluster: PrivateCluster) -> None:
    other = PrivateCluster.start(Path(f"/tmp/slurmopt-other-{os.getpid()}"), "--nodes", "1", "--accounting")
    assert other.run(["sinfo", "-h", "-N", "-p", "main", "-o", "%N"]).stdout.split() == ["node1"]
    job = submit(other, SLEEPER)
    wait_until(lambda: other.state(job) == "RUNNING", 20, "its job runs")
    assert "research" in other.run(["sacctmgr", "-n", "show", "assoc", "format=account"]).stdout
    wait_until(lambda: job in other.run(["sacct", "-n", "-X", "-o", "JobID"]).stdout.split(), 20, "sacct knows the job")
    other.stop()
    assert processes_of(other) == []
    assert not other.folder.exists()
    assert all(cluster.daemons().values())
    other.stop()  # once more does no harm


def test_wrong_use_is_one_line_and_status_2(cluster: PrivateCluster) -> None:
    for words, expected in [
        (["start"], "already"),
        (["kill-node", "node9"], "no node 'node9'"),
        (["start", "--folder", "/etc"], "is not empty and holds no cluster"),
    ]:
        folder = [] if "--folder" in words else ["--folder", str(cluster.folder)]
        done = subprocess.run([SCRIPT, *words, *folder], capture_output=True, text=True)
        assert done.returncode == 2
        assert expected in done.stderr
        assert len(done.stderr.splitlines()) == 1
