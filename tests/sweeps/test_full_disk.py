"""A disk that is full, or a quota, in the middle of a sweep: no line of a journal is lost, and a retry completes it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from json_answer import data_of
from launching.conftest import Project
from private_cluster import PrivateCluster, unprivileged_user, wait_until

from slurmopt.run_folder import events
from slurmopt.run_folder.sweep_layout import SweepFolder

WRITERS, LINES, POINTS = 6, 40, 5
APPEND = """
import errno, sys, time
from pathlib import Path
from slurmopt.run_folder import events

path, met, writer, deadline = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), time.monotonic() + 60
failures = 0
for number in range({lines}):
    text = f"{{writer}}.{{number}}," * (1 + (writer * 7 + number * 131) % 700)
    while True:
        try:
            events.append(path, "point", writer=writer, number=number, text=text)
            break
        except OSError as error:
            if error.errno != errno.ENOSPC or time.monotonic() > deadline:
                raise
            failures += 1
            (met / str(writer)).touch()
            time.sleep(0.01)
print(failures)
"""
TRAIN = """
import contextlib
import os

import slurmopt


def fills(config):
    with open("started", "a") as file:
        file.write(f"{config.seed} ")
    if config.seed == 2 and not os.path.exists("room"):
        big = os.path.join(os.environ["SLURMOPT_SWEEP"], "big")
        with contextlib.suppress(OSError), open(big, "wb", 0) as file:
            while file.write(b"x" * 4096):
                pass
    slurmopt.progress(1)
    return {"score": config.seed}
"""


def mount(folder: Path, size: str) -> None:
    if os.getuid() != 0:
        pytest.skip("NOT TESTED: mounting a small file system needs root")
    command = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=755", "tmpfs", str(folder)]
    if subprocess.run(command, capture_output=True).returncode:
        pytest.skip("NOT TESTED: no file system can be mounted here")


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    mount(tmp_path, "1m")
    yield tmp_path
    subprocess.run(["umount", "-l", str(tmp_path)], check=True)


def test_processes_that_append_while_the_disk_runs_full_tear_no_line_of_each_other(
    small: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Each line that could be noted is there once and whole, whatever the full disk has cut short before it."""
    journal, room, met = small / "events.jsonl", small / "room", tmp_path_factory.mktemp("met")
    room.write_bytes(b"x" * 900 * 1024)
    command = [sys.executable, "-c", APPEND.format(lines=LINES), str(journal), str(met)]
    writers = [
        subprocess.Popen([*command, str(number)], stdout=subprocess.PIPE, text=True) for number in range(WRITERS)
    ]
    wait_until(lambda: len(list(met.iterdir())) >= WRITERS // 2, 60, "the disk is full")
    room.unlink()
    failures = [int(writer.communicate(timeout=180)[0]) for writer in writers]
    assert [writer.returncode for writer in writers] == [0] * WRITERS
    assert sum(failures) > 0
    told = events.read(journal)
    assert sorted((event["writer"], event["number"]) for event in told) == [
        (writer, number) for writer in range(WRITERS) for number in range(LINES)
    ]
    assert all(set(event["text"].split(",")) == {f"{event['writer']}.{event['number']}", ""} for event in told)


@pytest.fixture(scope="module")
def cluster() -> Iterator[PrivateCluster]:
    with PrivateCluster.running("--nodes", "1", "--gpus", "0") as made:
        yield made


@pytest.fixture
def site(cluster: PrivateCluster) -> Iterator[Project]:
    """Its run folders are on a disk of two megabytes."""
    path, user = Path(tempfile.mkdtemp(prefix="slurmopt-project-", dir="/tmp")), unprivileged_user()
    path.chmod(0o755)
    (path / "points.py").write_text(TRAIN)
    (path / "runs").mkdir()
    mount(path / "runs", "2m")
    for part in (path, path / "runs"):
        shutil.chown(part, user)
    yield Project(cluster, path, user)
    cluster.run(["scancel", "--user", user])
    wait_until(lambda: not cluster.run(["squeue", "--noheader", "--user", user]).stdout.strip(), 60, "no job is left")
    subprocess.run(["umount", "-l", str(path / "runs")], check=True)
    shutil.rmtree(path)


def filled(site: Project) -> Path:
    """What another user has left on the disk of the run folders: less than the health check asks for is free."""
    big = site.path / "runs" / "others"
    big.write_bytes(b"x" * 1536 * 1024)
    return big


def noted(run: str, word: str) -> list[dict[str, object]]:
    return [event for event in events.read(Path(run) / "events.jsonl") if event["event"] == word]


def test_a_job_waits_for_space_on_the_shared_disk_and_says_so(site: Project) -> None:
    others = filled(site)
    run = site.submit("task.command=[true]", "resources.time=5m", "health.shared=1MB")["run"]

    def status() -> str:
        return site.slurmopt("status", run).stdout

    wait_until(lambda: "waits: " in status(), 60, "the job waits", status)
    assert "free, less than 1.0 MiB (health.shared; health.shared=null skips this check); checks again at" in status()
    (waits,) = noted(run, "waits")
    assert "health.shared" in str(waits["reason"])
    assert 200 < float(str(waits["until"])) - float(str(waits["time"])) < 310
    others.unlink()
    wait_until(lambda: "finished" in status(), 60, "it ends", status)
    assert [end["attempt"] for end in noted(run, "end")] == [0]
    log = (Path(run) / "logs" / "attempt-0" / "rank-0.log").read_text()
    assert "waits for a temporary problem to end, until" in log
    assert "goes on after" in log


def test_attempts_that_never_came_to_the_task_are_put_off_and_are_none_without_progress(site: Project) -> None:
    others = filled(site)
    words = ("health.shared=1MB", "health.wait=2s", "restart.no_progress=1")
    answer = site.submit("task.command=[true]", "resources.time=5m", *words)
    run, job = answer["run"], answer["job_ids"][0]

    def job_says(name: str) -> str:
        told = site.cluster.run(["scontrol", "show", "job", "--oneliner", job]).stdout
        return next((word.partition("=")[2] for word in told.split() if word.startswith(f"{name}=")), "")

    def put_off() -> float:
        seconds = site.cluster.run(["date", "-d", job_says("EligibleTime"), "+%s"]).stdout
        return float(seconds or 0) - float(str(noted(run, "end")[-1]["time"]))

    for failed, pause in ((1, 60), (2, 120)):

        def waits(failed: int = failed, pause: int = pause) -> bool:
            return len(noted(run, "end")) == failed and job_says("JobState") == "PENDING" and put_off() > pause - 5

        wait_until(waits, 60, f"attempt {failed - 1} is put off", lambda: site.slurmopt("history", run).stdout)
        end = noted(run, "end")[-1]
        assert (end["cause"], end["next"], end["began"], end["pause"]) == ("infrastructure", "requeue", False, pause)
        assert "waited" in str(end["error"])
        if failed == 2:
            others.unlink()
        site.cluster.run(["scontrol", "update", f"JobId={job}", "StartTime=now+7"])  # nobody waits for minutes here
    wait_until(lambda: len(noted(run, "end")) == 3, 60, "it ends", lambda: site.slurmopt("history", run).stdout)
    assert noted(run, "end")[-1]["cause"] == "finished"


WORDS = (
    "-m", "task._target_=points.fills", "resources.time=5m", "health.shared=null", "restart.budgets.infrastructure=0",
    f"+seed=range({POINTS})",
)  # fmt: skip


@pytest.mark.parametrize("packing", [["sweep.at_once=1"], [f"sweep.per_task={POINTS}"]], ids=["each a task", "packed"])
def test_a_disk_that_is_full_in_the_middle_is_told_and_a_retry_completes_the_sweep(
    site: Project, packing: list[str]
) -> None:
    sweep = SweepFolder(Path(site.submit(*WORDS, *packing)["run"]))

    def ended() -> bool:
        return not site.cluster.run(["squeue", "--noheader", "--user", site.user]).stdout.strip()

    def status() -> str:
        return site.slurmopt("status", str(sweep.path)).stdout

    wait_until(ended, 120, "all have ended", status)
    told = [line for line in status().splitlines() if "No space left on device" in line]
    assert told, status()
    (sweep.path / "big").unlink()
    (site.path / "room").touch()
    site.slurmopt("retry", str(sweep.path), "--failed")
    wait_until(ended, 60, "the rest has ended", status)
    (seen,) = data_of(site.slurmopt("status", str(sweep.path), "--json").stdout)
    assert seen["states"] == {"finished": POINTS}, status()
    table = data_of(site.slurmopt("results", str(sweep.path), "--json").stdout)
    assert {row["point"]: row["metrics"]["score"] for row in table["rows"]} == {seed: seed for seed in range(POINTS)}
    begun = (site.path / "started").read_text().split()
    assert sorted(begun[:2]) == ["0", "1"]
    assert begun.count("0") == begun.count("1") == 1
