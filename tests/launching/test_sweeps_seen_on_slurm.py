"""Looking at a sweep's array jobs in a real Slurm, throttling them, and cancelling points of them."""

from __future__ import annotations

import importlib.util
import subprocess
from pathlib import Path
from typing import Any

import pytest
from json_answer import data_of
from private_cluster import PrivateCluster, wait_until

from slurmopt.cli import main
from slurmopt.config.composition.settings import load
from slurmopt.run_folder import events
from slurmopt.sweeps.status.query import sweep_states

BUILDER = Path(__file__).parents[1] / "sweeps" / "conftest.py"


@pytest.fixture
def made(cluster: PrivateCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Six points, of which two may run at a time; each only sleeps."""
    spec = importlib.util.spec_from_file_location("sweep_builder", BUILDER)
    assert spec is not None
    assert spec.loader is not None
    builder = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(builder)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SLURM_CONF", str(cluster.conf))
    sweep = builder.MadeSweep(tmp_path / "runs", "mine", "1", {"at_once": 2}, lr=list(range(6)))
    sweep.folder.script.write_text("#!/bin/bash\nsleep 600\n")
    options = ["--parsable", "--array=0-5%2", "--comment=slurmopt:1", f"--output={sweep.folder.logs}/job-%A_%a.log"]
    command = ["sbatch", *options, str(sweep.folder.script), "0", "0-5", "1"]
    job = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    yield sweep.submitted("0-5", job)
    subprocess.run(["scancel", job], check=True)


def test_a_sweep_is_seen_throttled_and_cancelled(made: Any, capsys: pytest.CaptureFixture[str]) -> None:
    def counts() -> dict[str, int]:
        return sweep_states(made.folder, fresh=True).counts()

    wait_until(lambda: counts() == {"running": 2, "pending": 4}, 60, "two run", counts)
    assert main(["throttle", "mine", "3"]) == 0
    wait_until(lambda: counts() == {"running": 3, "pending": 3}, 60, "three run", counts)
    assert load(made.folder.config)[1].sweep.at_once == 3

    assert main(["cancel", "mine/1,4-5", "--json"]) == 0
    said = data_of(capsys.readouterr().out.splitlines()[-1])
    assert (said["points"], said["states"], said["gone"]) == ("1,4-5", {"cancelled": 3}, True)
    assert made.folder.cancelled.read_text() == "1,4-5\n"
    wait_until(lambda: counts() == {"running": 3, "cancelled": 3}, 60, "the next one starts", counts)

    assert main(["throttle", "mine", "0"]) == 0  # Slurm complains of the tasks that have ended, and does it
    assert main(["cancel", "mine/1,4-5"]) == 2
    assert "have ended already: 3 cancelled" in capsys.readouterr().err
    assert main(["cancel", "mine"]) == 0
    assert "cancelled" in capsys.readouterr().out
    assert counts() == {"cancelled": 6}
    noted = [event["points"] for event in events.read(made.folder.events) if event["event"] == "cancel"]
    assert noted == ["1,4-5", "0,2-3"]


def test_failed_points_go_on_as_a_new_array_job(made: Any, capsys: pytest.CaptureFixture[str]) -> None:
    subprocess.run(["scancel", made.submissions[0].job], check=True)
    for point in range(6):
        made.ended(point, "finished" if point < 3 else "user error", error="ValueError: no")
    made.folder.cancelled.write_text("5\n")
    run = made.folder.point(3)

    assert main(["retry", "mine", "lr=3"]) == 2
    assert "lr: points stay what they are" in capsys.readouterr().err
    assert main(["retry", "mine/0-2"]) == 2
    assert "nothing to retry: 3 finished" in capsys.readouterr().err
    assert main(["retry", "mine", "resources.memory=900TB"]) == 2
    assert "memory" in capsys.readouterr().err
    before = made.folder.script.read_text()
    assert main(["retry", "mine", "--failed", "--more-memory", "1.5", "--dry-run"]) == 0
    assert "#SBATCH --mem=1536M" in capsys.readouterr().out
    assert made.folder.script.read_text() == before
    assert [event["event"] for event in events.read(run.events)][-1] == "end"

    assert main(["retry", "mine", "--failed", "--json"]) == 0
    (said,) = data_of(capsys.readouterr().out)
    assert (said["points"], said["job"]) == ("3-4", said["jobs"][0])  # the fifth was cancelled, and did not fail
    seen = sweep_states(made.folder, fresh=True)
    assert [seen.of(point).state for point in (0, 3, 4, 5)] == [
        "finished",
        *[seen.of(3).state] * 2,
        "cancelled",
    ]
    assert seen.of(3).state in ("pending", "running")
    assert [event["event"] for event in events.read(run.events)][-1] == "retry"
    assert main(["retry", "mine/3"]) == 2
    assert "nothing to retry" in capsys.readouterr().err

    assert main(["retry", "mine/5", "--more-time", "2"]) == 0
    assert "resources.time 00:10:00 → 00:20:00" in capsys.readouterr().out
    assert made.folder.cancelled.read_text() == "\n"
    assert "#SBATCH --time=00:20:00" in made.folder.script.read_text()
    assert load(made.folder.config)[1].resources.time == "00:20:00"
    assert main(["cancel", "mine"]) == 0
    assert sweep_states(made.folder, fresh=True).counts() == {"finished": 3, "cancelled": 3}


def test_the_indices_of_a_large_array_are_not_cut(cluster: PrivateCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    from slurmopt.slurm.queue import queue

    monkeypatch.setenv("SLURM_CONF", str(cluster.conf))
    wanted = ",".join(str(3 * index + index % 2) for index in range(100))  # 0,4,6,10,…,294,298: no stride says it
    command = ["sbatch", "--parsable", "--hold", f"--array={wanted}", "--output=/dev/null", "--wrap=true"]
    job = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    try:
        found = queue(fresh=True)
        assert [f"{job}_{index}" in found for index in (0, 1, 298, 299)] == [True, False, True, False]
        assert len([one for one in found if one.startswith(f"{job}_")]) == 1
    finally:
        subprocess.run(["scancel", job], check=True)
