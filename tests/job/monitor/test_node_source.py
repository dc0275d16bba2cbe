"""CPUs, memory and files of a step: cgroups of both versions and /proc.

The trees of version 1 have the paths and fields that Slurm 22.05 and 26.05 showed on a kernel with version 1. LAID OUT
BY THE DOCUMENTATION: those of version 2 (Documentation/admin-guide/cgroup-v2.rst; Slurm's cgroup_v2 plugin).
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from job.harness import wait_for
from job.monitor.laid_out import here, lay_out

from slurmopt.job.monitor.here import Here, Roots
from slurmopt.job.monitor.sources import step_cgroup
from slurmopt.job.monitor.sources.node import NodeSource
from slurmopt.job.monitor.sources.node_ranks import NodeRanks

STEP1 = "slurm_node1/uid_1000/job_7/step_0"
STEP2 = "system.slice/slurmstepd.scope/job_7/step_0"
MEMINFO = "MemTotal:       24684084 kB\nMemFree:  1 kB\n"


def process(rchar: int, wchar: int, read: int = 0, write: int = 0, ticks: int = 0, pages: int = 0) -> dict[str, str]:
    io = f"rchar: {rchar}\nwchar: {wchar}\nsyscr: 1\nread_bytes: {read}\nwrite_bytes: {write}\n"
    stat = f"10 (a b) c) R 1 1 1 0 -1 0 0 0 0 0 {ticks} 0 0 0 20 0 1 0 5 0 0\n"
    return {"io": io, "stat": stat, "statm": f"9999 {pages + 5} 5 0 0 0 0\n"}


def processes(tmp_path: Path, of: Mapping[int, dict[str, str]]) -> None:
    for pid, files in of.items():
        lay_out(tmp_path / "proc" / str(pid), files)


def version1(tmp_path: Path, **changed: str) -> None:
    lay_out(
        tmp_path,
        {
            "proc/10/cgroup": f"6:freezer:/{STEP1}\n4:memory:/{STEP1}/task_0\n3:cpuset:/\n1:cpu,cpuacct:/\n0::/\n",
            "proc/meminfo": MEMINFO,
            f"cgroup/freezer/{STEP1}/cgroup.procs": "10\n",
            f"cgroup/memory/{STEP1}/memory.stat": changed.get(
                "stat", "cache 1\ntotal_cache 5000\ntotal_rss 70000\ntotal_shmem 1000\n"
            ),
            f"cgroup/memory/{STEP1}/memory.limit_in_bytes": "209715200\n",
            "cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
            f"cgroup/memory/{STEP1}/memory.max_usage_in_bytes": "80000\n",
            f"cgroup/memory/{STEP1}/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n",
            f"cgroup/memory/{STEP1}/task_0/memory.oom_control": changed.get("oom", "under_oom 0\noom_kill 0\n"),
            "cgroup/cpu,cpuacct/cpu.stat": "nr_periods 0\nnr_throttled 0\nthrottled_time 0\n",
            "cgroup/cpu,cpuacct/cpu.cfs_quota_us": "-1\n",
        },
    )


def version2(tmp_path: Path, **changed: str) -> None:
    lay_out(
        tmp_path,
        {
            "proc/10/cgroup": f"0::/{STEP2}/user/task_0\n",
            "proc/meminfo": MEMINFO,
            f"cgroup/{STEP2}/user/task_0/cgroup.procs": "10\n11\n",
            f"cgroup/{STEP2}/slurm/cgroup.procs": "9\n",
            f"cgroup/{STEP2}/cpu.stat": changed.get("cpu", "usage_usec 5000000\nuser_usec 1\n"),
            f"cgroup/{STEP2}/cpu.max": "max 100000\n",
            f"cgroup/{STEP2}/cpuset.cpus.effective": "0-3,8\n",
            f"cgroup/{STEP2}/memory.current": "100000\n",
            f"cgroup/{STEP2}/memory.stat": "anon 60000\nfile 30000\nshmem 10000\n",
            f"cgroup/{STEP2}/memory.peak": "120000\n",
            f"cgroup/{STEP2}/memory.max": "max\n",
            f"cgroup/{STEP2}/memory.events": changed.get("oom", "oom 0\noom_kill 0\n"),
            "cgroup/system.slice/slurmstepd.scope/job_7/memory.max": "500000\n",
            "cgroup/system.slice/slurmstepd.scope/job_7/cpu.max": "200000 100000\n",
            "cgroup/system.slice/slurmstepd.scope/job_7/cpu.stat": changed.get("job_cpu", "nr_periods 0\n"),
        },
    )


QUOTA = {"quota": "150000\n", "period": "100000\n"}


def opened(place: Here) -> NodeSource:
    return NodeSource(place, NodeRanks(place))


def test_version_1_without_an_account_of_cpus_takes_those_of_the_processes(tmp_path: Path) -> None:
    version1(tmp_path)
    processes(tmp_path, {10: process(100, 200, ticks=50)})
    source = opened(here(tmp_path))
    facts = source.facts()
    assert facts == {"cpus": len(os.sched_getaffinity(0)), "memory_limit": 200 << 20, "host_memory": 24684084 << 10}
    first = source.read()
    assert first["node.memory"] == first["node.memory_peak"] == 71000
    assert first["node.page_cache"] == 4000
    assert first["node.charged_peak"] == 80000
    assert first["node.cpu_quota_throttled"] == 0
    assert not {"node.cpu", "node.io_read"} & first.keys(), "rates begin with the second reading"
    processes(tmp_path, {10: process(100_100, 200, read=5, ticks=250)})
    second = source.read()
    assert second["node.cpu"] > 0
    assert second["node.io_read"] > 0
    assert second["node.disk_read"] > 0
    assert second["node.io_write"] == second["node.disk_write"] == 0
    assert second["node.io_read"] / second["node.cpu"] == pytest.approx(100_000 / (200 / os.sysconf("SC_CLK_TCK")))


def test_version_2_has_accounts_of_all(tmp_path: Path) -> None:
    version2(tmp_path)
    processes(tmp_path, {10: process(1, 1), 11: process(1, 1)})
    source = opened(here(tmp_path))
    assert source.facts() == {"cpus": 5, "memory_limit": 500_000, "host_memory": 24684084 << 10}
    first = source.read()
    assert (first["node.memory"], first["node.page_cache"], first["node.charged_peak"]) == (80_000, 20_000, 120_000)
    version2(tmp_path, cpu="usage_usec 7000000\n")
    processes(tmp_path, {10: process(4_000_001, 1), 11: process(1, 2_000_001)})
    second = source.read()
    assert second["node.io_read"] / second["node.cpu"] == pytest.approx(4_000_000 / 2)
    assert second["node.io_write"] / second["node.cpu"] == pytest.approx(2_000_000 / 2)
    assert source.absent() == {}


def test_a_quota_above_the_step_throttles_it(tmp_path: Path) -> None:
    version2(tmp_path, job_cpu="nr_periods 100\nnr_throttled 30\nthrottled_usec 9\n")
    source = opened(here(tmp_path))
    assert source.read()["node.cpu_quota_throttled"] == 0
    version2(tmp_path, job_cpu="nr_periods 200\nnr_throttled 105\nthrottled_usec 9\n")
    assert source.read()["node.cpu_quota_throttled"] == 0.75
    assert source.read()["node.cpu_quota_throttled"] == 0, "nothing ran since"


def test_the_least_quota_on_the_step_or_above_it_counts(tmp_path: Path) -> None:
    version2(tmp_path)
    place = step_cgroup.find(10, here(tmp_path).roots)
    assert place is not None
    assert place.cpu_quota() == 2.0
    lay_out(tmp_path, {f"cgroup/{STEP2}/cpu.max": "50000 100000\n"})
    assert place.cpu_quota() == 0.5
    first = tmp_path / "version1"
    version1(first)
    place = step_cgroup.find(10, here(first).roots)
    assert place is not None
    assert place.cpu_quota() is None
    lay_out(first, {f"cgroup/cpu,cpuacct/cpu.cfs_{name}_us": value for name, value in QUOTA.items()})
    assert place.cpu_quota() == 1.5


@pytest.mark.parametrize("version", [version1, version2])
def test_an_oom_kill_is_an_event_once(tmp_path: Path, version: object) -> None:
    assert callable(version)
    version(tmp_path)
    source = opened(here(tmp_path))
    source.read()
    assert source.events() == []
    version(tmp_path, oom="oom 3\noom_kill 2\n")
    source.read()
    (event,) = source.events()
    assert (event["event"], event["count"]) == ("oom_kill", 2)
    source.read()
    assert source.events() == []


def test_a_worker_that_ends_counts_once(tmp_path: Path) -> None:
    """The kernel adds its bytes to those of the parent that waited for it."""
    version2(tmp_path)
    processes(tmp_path, {10: process(1000, 0), 11: process(500_000, 0)})
    source = opened(here(tmp_path))
    source.read()
    (tmp_path / "proc" / "11" / "io").unlink()
    processes(tmp_path, {10: process(501_000, 0)})
    assert source.read()["node.io_read"] == 0


def test_processes_that_may_not_be_looked_at_are_not_allowed_and_zero_is_zero(tmp_path: Path) -> None:
    version2(tmp_path)
    source = opened(here(tmp_path))
    source.read()
    values = source.read()
    assert values["node.cpu"] == 0
    assert {column for column, why in source.absent().items() if why == "not allowed"} == {
        "node.io_read",
        "node.io_write",
        "node.disk_read",
        "node.disk_write",
    }


def test_without_cgroups_what_srun_started_for_this_job_counts_on_this_node(tmp_path: Path) -> None:
    """Real processes that are below no rank: one of a step of this job, one of another job."""
    work = "import time\nkept = bytearray(60 << 20)\nwhile True: time.sleep(9)"
    job = {"SLURM_JOB_ID": "7", "SLURMD_NODENAME": "n1"}
    environments = [{**job, "SLURM_STEP_ID": "0"}, {**job, "SLURM_JOB_ID": "8", "SLURM_STEP_ID": "0"}, job]
    rank = subprocess.Popen(["sleep", "60"])
    started = [
        subprocess.Popen([sys.executable, "-c", work], env={**os.environ, **variables}) for variables in environments
    ]
    try:
        place = here(tmp_path, pid=rank.pid, **job)
        source = NodeSource(place, NodeRanks(place))
        source._processes._roots = Roots()  # of the real processes
        wait_for(lambda: source.read()["node.memory"] > 55 << 20, "the step of this job")
        assert source.read()["node.memory"] < 100 << 20
    finally:
        for process in (rank, *started):
            process.kill()
            process.wait()


@pytest.mark.parametrize("text", ["", "nonsense\n", "0::/\n", "0::/user.slice/session-1.scope\n", "1:name=systemd:/\n"])
def test_outside_of_a_step_the_processes_below_the_ranks_count(tmp_path: Path, text: str) -> None:
    """Real processes: this test is the rank, and a child reads and computes."""
    lay_out(tmp_path, {f"proc/{os.getpid()}/cgroup": text})
    work = "import time\nwhile True:\n  open('/proc/self/status').read()"
    child = subprocess.Popen([sys.executable, "-c", work])
    try:
        place = here(tmp_path, pid=os.getpid())
        source = NodeSource(place, NodeRanks(place))
        source._processes._roots = Roots()  # of the real processes
        source.read()
        wait_for(lambda: (values := source.read()).get("node.cpu", 0) > 0.05 and values["node.io_read"] > 0, "its work")
        assert source.absent()["node.page_cache"] == "not measured"
        assert source.read()["node.memory"] > 1 << 20
    finally:
        child.kill()
        child.wait()


def test_files_of_nonsense_are_no_values(tmp_path: Path) -> None:
    version2(tmp_path)
    for path in (tmp_path / "cgroup" / STEP2).iterdir():
        if path.is_file():
            path.write_bytes(b"\xff\xfe nonsense\n-1 -1\n")
    source = opened(here(tmp_path))
    source.facts()
    source.read()
    values = source.read()
    assert values["node.memory"] == 0
    assert source.absent()["node.page_cache"] == "not measured"
