"""scripts/slurm-cluster builds, breaks and removes real clusters."""

from __future__ import annotations

import json
import os
import pwd
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from private_cluster import PrivateCluster, new_folder, require_slurm, script, unprivileged_user, wait_until

NODE_LOSS_SECONDS = 60.0


@pytest.fixture(scope="module")
def user() -> str:
    require_slurm()
    return unprivileged_user()


@pytest.fixture(scope="module")
def cluster(user: str) -> Iterator[PrivateCluster]:
    started = PrivateCluster.start(new_folder(), "--nodes", "2")
    yield started
    started.stop()


@pytest.fixture
def desk(user: str) -> Iterator[Path]:
    """A folder that the unprivileged user can write in, and pass on the way."""
    folder = Path(tempfile.mkdtemp(prefix="desk-", dir="/tmp"))
    os.chown(folder, pwd.getpwnam(user).pw_uid, pwd.getpwnam(user).pw_gid)
    yield folder
    shutil.rmtree(folder)


def submit(cluster: PrivateCluster, user: str, desk: Path, body: str, *options: str) -> str:
    """Submit a shell script that writes to `desk`; the job's number."""
    words = ["sbatch", "--parsable", f"--output={desk}/log", "--open-mode=append", *options]
    return cluster.run([*words, f"--wrap={body}"], user=user, cwd=desk).stdout.strip()


def state_of(cluster: PrivateCluster, job: str) -> str:
    shown = cluster.run(["scontrol", "show", "job", job]).stdout
    found = re.search(r"JobState=(\S+)", shown)
    return found[1] if found else shown


def wait_for_text(path: Path, text: str, seconds: float) -> None:
    def content() -> str:
        return path.read_text() if path.exists() else ""

    wait_until(lambda: text in content(), seconds, f"{path} says {text!r}", content)


def processes_of(conf: Path) -> dict[int, str]:
    """Every live process that knows this slurm.conf, found without the script's help."""
    found = {}
    for entry in Path("/proc").iterdir():
        try:
            environ = (entry / "environ").read_bytes() if entry.name.isdecimal() else b""
            if f"SLURM_CONF={conf}".encode() in environ.split(b"\0"):
                found[int(entry.name)] = (entry / "comm").read_text().strip()
        except OSError:
            continue
    return found


def node_states(cluster: PrivateCluster) -> dict[str, str]:
    nodes: dict[str, str] = json.loads(cluster.command("status", "--json"))["nodes"]
    return nodes


def daemons(cluster: PrivateCluster) -> dict[str, bool]:
    alive: dict[str, bool] = json.loads(cluster.command("status", "--json"))["daemons"]
    return alive


def test_an_unprivileged_user_gets_gpus_on_two_nodes(cluster: PrivateCluster, user: str) -> None:
    show = 'echo "$(id -un) $SLURMD_NODENAME $CUDA_VISIBLE_DEVICES"'
    done = cluster.run(["srun", "-N2", "--gres=gpu:h100:4", "sh", "-c", show], user=user)
    assert sorted(done.stdout.splitlines()) == [f"{user} node1 0,1,2,3", f"{user} node2 0,1,2,3"]


def test_keys_are_private_and_the_rest_is_reachable(cluster: PrivateCluster, user: str) -> None:
    assert cluster.run(["cat", cluster.conf], user=user).stdout
    assert cluster.run(["cat", cluster.folder / "munge" / "key"], user=user, check=False).returncode
    assert cluster.run(["ls", cluster.folder / "state"], user=user, check=False).returncode
    assert cluster.run(["touch", cluster.folder / "scratch" / "node1" / "mine"], user=user).returncode == 0


def test_partitions_and_nodes(cluster: PrivateCluster) -> None:
    lines = cluster.run(["sinfo", "-h", "-o", "%P %a %l %p %M %F"]).stdout.splitlines()
    rows = [line.split() for line in lines]
    assert {row[0]: tuple(row[1:5]) for row in rows} == {
        "main*": ("up", "1-00:00:00", "1", "OFF"),
        "short": ("up", "10:00", "1", "OFF"),
        "preempt": ("up", "1-00:00:00", "1", "REQUEUE"),
        "urgent": ("up", "1-00:00:00", "10", "OFF"),
        "down": ("down", "1-00:00:00", "1", "OFF"),
    }
    node = cluster.run(["scontrol", "show", "node", "node2"]).stdout
    for fact in ("CPUTot=16", "RealMemory=200000", "Gres=gpu:h100:8", "Sockets=2"):
        assert fact in node


def test_a_restarted_controller_still_has_the_job(cluster: PrivateCluster, user: str, desk: Path) -> None:
    job = submit(cluster, user, desk, "sleep 600", "-n1")
    wait_until(lambda: state_of(cluster, job) == "RUNNING", 20, "the job runs")
    cluster.restart_controller()
    assert state_of(cluster, job) == "RUNNING"
    assert set(node_states(cluster)) == {"node1", "node2"}
    cluster.run(["scancel", job])


def test_a_paused_controller_answers_nobody(cluster: PrivateCluster) -> None:
    cluster.pause_controller()
    with pytest.raises(subprocess.TimeoutExpired):
        cluster.run(["squeue"], timeout=1)
    cluster.resume_controller()
    assert "JOBID" in cluster.run(["squeue"]).stdout


def test_status_tells_a_stopped_controller(cluster: PrivateCluster) -> None:
    cluster.stop_controller()
    assert script("status", "--folder", str(cluster.folder)).returncode == 3
    cluster.start_controller()
    assert script("status", "--folder", str(cluster.folder)).returncode == 0
    assert node_states(cluster) == {"node1": "idle", "node2": "idle"}


def test_the_ranks_of_a_node_that_is_cut_off_live_on(cluster: PrivateCluster, user: str, desk: Path) -> None:
    job = submit(cluster, user, desk, "while :; do echo beat; sleep 0.2; done", "-n1", "-wnode1", "--no-requeue")
    log = desk / "log"
    wait_for_text(log, "beat", 20)
    cluster.partition_node("node1")
    assert not daemons(cluster)["node1"]
    assert "slurmstepd" not in processes_of(cluster.conf).values()
    size = log.stat().st_size
    wait_until(lambda: log.stat().st_size > size, 20, "the job still writes")

    cluster.kill_node("node1")
    size = log.stat().st_size
    cluster.restore_node("node1")  # takes longer than a beat
    assert log.stat().st_size == size
    cluster.run(["scancel", job])  # the controller has not noticed yet that it is gone
    wait_until(lambda: node_states(cluster)["node1"] == "idle", 30, "node1 is idle", lambda: node_states(cluster))


@pytest.mark.releases
def test_the_job_of_a_dead_node_is_requeued(cluster: PrivateCluster, user: str, desk: Path) -> None:
    # The sleep has no environment: a dead node has no survivors, whatever a program did to its own.
    body = "echo attempt ${SLURM_RESTART_COUNT:-0} on $SLURMD_NODENAME; env -i sleep 987"
    job = submit(cluster, user, desk, body, "-n1", "--requeue", "-wnode2")
    log = desk / "log"
    wait_for_text(log, "attempt 0 on node2", 20)
    wait_until(lambda: alone("sleep", "987"), 20, "the job sleeps")
    scratch = cluster.folder / "scratch" / "node2"
    assert scratch.is_dir()

    cluster.kill_node("node2")
    assert not alone("sleep", "987")
    assert not scratch.exists()
    wait_until(lambda: state_of(cluster, job) == "PENDING", NODE_LOSS_SECONDS, "the job is requeued")
    assert node_states(cluster)["node2"].startswith("down")
    cluster.restore_node("node2")
    assert scratch.stat().st_mode & 0o7777 == 0o1777
    wait_for_text(log, "attempt 1 on node2", 30)
    cluster.run(["scancel", job])


def alone(*argv: str) -> list[int]:
    """Every live process with exactly these words, whatever its environment."""
    wanted = b"".join(word.encode() + b"\0" for word in argv)
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdecimal() and (entry / "cmdline").read_bytes() == wanted:
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def test_two_clusters_side_by_side(cluster: PrivateCluster, user: str, desk: Path) -> None:
    submit(cluster, user, desk, "while :; do echo beat; sleep 0.2; done", "-n1", "-wnode1")
    other = PrivateCluster.start(new_folder(), "--nodes", "2", "--gpus", "0", "--max-array-size", "11")
    try:
        assert "MaxArraySize            = 11" in other.run(["scontrol", "show", "config"]).stdout
        assert other.run(["srun", "-wnode1", "id", "-un"], user=user).stdout.strip() == user
        wait_for_text(desk / "log", "beat", 20)
        other.kill_node("node1")
    finally:
        other.stop()
    size = (desk / "log").stat().st_size
    wait_until(lambda: (desk / "log").stat().st_size > size, 20, "the other cluster's job still writes")
    cluster.run(["scancel", "--user", user])


@pytest.mark.releases
def test_a_cluster_of_another_release_runs_beside_one_of_the_machines_own(
    cluster: PrivateCluster, user: str, desk: Path, request: pytest.FixtureRequest
) -> None:
    release = request.config.getoption("--slurm-release")
    if not release:
        pytest.skip("needs --slurm-release")
    own = PrivateCluster.start(new_folder(), "--nodes", "1", "--gpus", "0", "--release", "")
    try:
        assert f"slurm-wlm {release}." in cluster.run(["srun", "sinfo", "--version"], user=user, cwd=desk).stdout
        path = {"PATH": "/usr/bin:/bin:/usr/sbin"}
        assert release not in own.run(["srun", "sinfo", "--version"], user=user, cwd=desk, env=path).stdout
        assert script("status", "--folder", str(cluster.folder)).returncode == 0
    finally:
        own.stop()
    assert cluster.run(["srun", "python3", "-c", "print(6 * 7)"], user=user, cwd=desk).stdout == "42\n"


@pytest.mark.releases
def test_stop_leaves_nothing_but_bystanders(user: str, desk: Path) -> None:
    cluster = PrivateCluster.start(new_folder(), "--nodes", "1")
    body = "trap : TERM; env -i sleep 986 & echo up; while :; do sleep 0.2; done"
    submit(cluster, user, desk, body, "-n1")
    wait_for_text(desk / "log", "up", 20)
    shell = [sys.executable, "-c", "input()"]
    with subprocess.Popen(shell, stdin=subprocess.PIPE, env={"SLURM_CONF": str(cluster.conf)}) as bystander:
        cluster.stop()
        assert list(processes_of(cluster.conf)) == [bystander.pid]
        bystander.communicate(b"\n")
    assert bystander.returncode == 0
    assert not alone("sleep", "986")
    assert not cluster.folder.exists()
    assert script("stop", "--folder", str(cluster.folder)).returncode == 0
    assert script("status", "--folder", str(cluster.folder)).returncode == 3


def test_accounting_remembers_jobs(user: str) -> None:
    require_slurm(accounting=True)
    cluster = PrivateCluster.start(new_folder(), "--nodes", "1", "--accounting", "--user", user)
    try:
        cluster.run(["srun", "--gres=gpu:2", "--job-name=counted", "true"], user=user)
        ask = ["sacct", "-X", "-n", "-P", "--name=counted", "-o", "User,Account,State,AllocTRES"]
        wait_until(lambda: "COMPLETED" in cluster.run(ask, user=user).stdout, 20, "sacct has the job")
        assert cluster.run(ask, user=user).stdout.startswith(f"{user}|research|COMPLETED|")
        assert "gres/gpu=2" in cluster.run(ask, user=user).stdout
    finally:
        cluster.stop()
    assert not processes_of(cluster.conf)
    assert not cluster.folder.exists()


@pytest.mark.releases
def test_cgroups_kill_what_takes_too_much_memory(user: str) -> None:
    folder = new_folder()
    words = ("start", "--folder", str(folder), "--nodes", "1", "--cgroups")
    started = script(*words)

    def is_alone() -> bool:
        nonlocal started
        if "one cluster at a time" in started.stderr:
            started = script(*words)
        return "one cluster at a time" not in started.stderr

    wait_until(is_alone, 120, "the cgroups of another test's cluster are gone", lambda: started.stderr)
    if started.returncode:
        assert "slurm-cluster: --cgroups: " in started.stderr
        folder.rmdir()
        pytest.skip(f"NO REAL MEMORY LIMITS HERE: {started.stderr.strip()}")
    cluster = PrivateCluster(folder, folder / "etc" / "slurm.conf")
    try:
        hog = ["srun", "--mem=100", "python3", "-c", "print(len(bytearray(400 << 20)))"]
        done = cluster.run(hog, user=user, check=False)
        assert done.stdout == ""
        assert "Out Of Memory" in done.stderr
    finally:
        cluster.stop()
    assert not [*Path("/sys/fs/cgroup").glob("*/slurm_node1"), *Path("/sys/fs/cgroup").glob("*/node1_slurmstepd.scope")]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["start", "--user", "root"], "--user needs --accounting"),
        (["start", "--accounting", "--user", "no-such-user"], "no-such-user"),
        (["start", "--nodes", "0"], "at least one node"),
        (["start", "--folder", "/usr"], "holds no cluster"),
        (["start", "--folder", "/tmp/" + "x" * 99], "too long"),
        (["start", "--folder", "/no/such/folder"], "no folder"),
        (["start", "--release", "newest"], "such as 24.11"),
    ],
)
def test_wrong_use_is_one_line(user: str, words: list[str], message: str) -> None:
    folder = [] if "--folder" in words else ["--folder", "/tmp/slurm-never-made"]
    done = script(*words, *folder)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not Path("/tmp/slurm-never-made").exists()


def test_an_unknown_node_is_wrong_use(cluster: PrivateCluster) -> None:
    done = script("kill-node", "node9", "--folder", str(cluster.folder))
    assert done.returncode == 2
    assert "node1, node2" in done.stderr


def test_a_start_that_fails_shows_the_log_and_leaves_nothing(user: str) -> None:
    folder = new_folder()
    done = script("start", "--folder", str(folder), "--max-array-size", "-1")
    assert done.returncode == 1
    assert "MaxArraySize value (-1) is less than zero" in done.stderr
    assert "Traceback" not in done.stderr
    assert not folder.exists()
