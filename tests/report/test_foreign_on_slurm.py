"""Jobs that slurmopt did not launch, on a real Slurm with accounting: `report JOBID`, and `monitor` on two nodes."""

from __future__ import annotations

import base64
import gzip
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from json_answer import data_of
from private_cluster import PrivateCluster, new_folder, require_slurm, wait_until

PLAIN = """#!/bin/bash
#SBATCH --mem=300 --gres=gpu:2 --output=/dev/null
srun --overlap --mem=200 {python} -c '
import time
held, until = bytearray(60 << 20), time.process_time() + 2
while time.process_time() < until: pass
'
"""
MONITORED = """#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1 --mem=300 --gres=gpu:2 --job-name=theirs --output={folder}/job.log
{python} -m slurmopt monitor --every 1s --folder {folder}/runs -- {python} {folder}/theirs.py
echo "status $?"
"""
THEIRS = """
import sys, time, slurmopt
for step in range(1, 61):
    time.sleep(0.1)
    slurmopt.progress(step, 60)
sys.exit(3)
"""


RUNNING = """#!/bin/bash
#SBATCH --mem=300 --output=/dev/null
srun --overlap --mem=200 sh -c 'while :; do :; done'
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[PrivateCluster]:
    require_slurm(accounting=True)
    folder = new_folder()
    try:
        started = PrivateCluster.start(folder, "--nodes", "2", "--gpus", "2", "--accounting")
        yield started
        started.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def on(cluster: PrivateCluster, monkeypatch: pytest.MonkeyPatch) -> PrivateCluster:
    monkeypatch.setenv("SLURM_CONF", str(cluster.conf))
    return cluster


def _submit(script: Path, text: str) -> str:
    script.write_text(text)
    done = subprocess.run(["sbatch", "--parsable", script], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def _report(*words: str) -> dict[str, object]:
    done = subprocess.run(
        [sys.executable, "-m", "slurmopt", "report", *words, "--json"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return dict(data_of(done.stdout))


def _state(job: str) -> str:
    done = subprocess.run(["sacct", "-nXP", "-o", "State", "-j", job], capture_output=True, text=True, check=False)
    return done.stdout.strip()


def test_report_of_a_job_that_sacct_knows(on: PrivateCluster, tmp_path: Path) -> None:
    job = _submit(tmp_path / "plain.sh", PLAIN.format(python=sys.executable))
    wait_until(lambda: _state(job) == "COMPLETED", 60, "the end of the job", lambda: _state(job))
    report = _report(job, "--folder", str(tmp_path))
    assert report["label"] == f"job {job}"
    assert report["state"] == "finished"
    assert (report["unit"], report["devices"]) == ("GPU", 2)
    usage = {item["name"]: item for item in report["usage"]}  # type: ignore[attr-defined]
    assert usage["GPU activity"]["share"] == "not measured"
    assert usage["host memory"]["share"] > 0.15, "60 of 300 MiB at least"
    assert report["attempts"][0]["seconds"] >= 1  # type: ignore[index]
    assert any("slurmopt monitor" in note for note in report["notes"])  # type: ignore[attr-defined]


def test_what_jobstats_has_written_into_slurms_accounting_is_read(on: PrivateCluster, tmp_path: Path) -> None:
    job = _submit(tmp_path / "plain.sh", PLAIN.format(python=sys.executable))
    node = {"cpus": 1, "total_time": 2, "gpu_utilization": {"0": 80, "1": 0}}
    packed = gzip.compress(json.dumps({"gpus": 2, "total_time": 4, "nodes": {"node1": node}}).encode())
    comment = f"AdminComment=JS1:{base64.b64encode(packed).decode()}"
    subprocess.run(["scontrol", "update", f"JobId={job}", comment], check=True)
    wait_until(lambda: _state(job) == "COMPLETED", 60, "the end of the job", lambda: _state(job))
    usage = {item["name"]: item for item in _report(job)["usage"]}  # type: ignore[attr-defined]
    assert usage["GPU activity"]["share"] == pytest.approx(0.4)


def test_a_job_that_nobody_knows_is_one_line(on: PrivateCluster, tmp_path: Path) -> None:
    words = [sys.executable, "-m", "slurmopt", "report", "999999", "--folder", str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("slurmopt: error: no job 999999: no run here has it; ")
    assert len(done.stderr.splitlines()) == 1


def test_monitor_measures_all_nodes_of_a_foreign_job(on: PrivateCluster, tmp_path: Path) -> None:
    (tmp_path / "theirs.py").write_text(THEIRS)
    job = _submit(tmp_path / "job.sh", MONITORED.format(python=sys.executable, folder=tmp_path))
    log = tmp_path / "job.log"
    wait_until(lambda: log.exists() and "status" in log.read_text(), 120, "the end of the job")
    assert "status 3" in log.read_text(), "the command's own"
    report = _report(job, "--folder", str(tmp_path / "runs"))
    assert report["experiment"] == "theirs"
    assert (report["state"], report["step"]) == ("failed", 60)
    assert (report["unit"], report["devices"], report["nodes"]) == ("GPU", 4, 2)
    assert {row["node"] for row in report["node_rows"]} == {"node1", "node2"}  # type: ignore[attr-defined]
    seconds = sum(share["seconds"] for share in report["shares"])  # type: ignore[attr-defined]
    assert seconds == pytest.approx(report["device_seconds"], abs=0.01)
    assert list(tmp_path.glob("runs/theirs/*/report.html"))


def test_of_a_running_job_sstat_tells_what_it_uses(on: PrivateCluster, tmp_path: Path) -> None:
    job = _submit(tmp_path / "running.sh", RUNNING)

    def cpu() -> bool:
        used = {usage["name"]: usage["share"] for usage in _report(job)["usage"]}  # type: ignore[attr-defined]
        return isinstance(used.get("CPU"), float) and used["CPU"] > 0

    try:
        wait_until(cpu, 60, "CPU time of a running job")
        assert "sstat" not in " ".join(_report(job)["notes"])  # type: ignore[arg-type]
    finally:
        subprocess.run(["scancel", job], check=True)
