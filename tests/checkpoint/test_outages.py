"""Disks that fill up, folders that cannot be written, clocks that jump, attempts that wake up late, S3 that is gone.

The training loses no step, nothing that was reported durable is lost, and each trouble is told in one line.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
sys.path.insert(0, str(SCRIPTS))

from chaos_runs.checkpoints.ranks import Plan, Training, next_attempt, roots, standing  # noqa: E402
from s3_server import BUCKET, S3Server, new_folder  # noqa: E402

NOBODY = 65534
PACE = 0.03
Mount = Callable[[str], Path]


def needed(holds: Any, what: str) -> None:
    """Skips loudly, and fails where CI runs it."""
    if not holds:
        if os.environ.get("CI"):
            pytest.fail(f"CI must run this test, which needs {what}")
        pytest.skip(f"NOT TESTED: needs {what}")


def until(holds: Callable[[], Any], training: Training) -> None:
    deadline = time.monotonic() + 120
    while not holds():
        assert training.alive(), training.errors()
        assert time.monotonic() < deadline, f"it never came true: {training.errors()[-3000:]}"
        time.sleep(0.02)


def events_of(plan: Plan, name: str, tier: str) -> list[dict[str, Any]]:
    path = plan.folder / "events.jsonl"
    lines = path.read_bytes().splitlines() if path.exists() else []
    found = [json.loads(line) for line in lines if line.endswith(b"}")]
    return [event for event in found if event["event"] == name and event["tier"] == tier]


def durable_on(plan: Plan, tier: str) -> int:
    """The newest step that was reported durable there."""
    return max((event["step"] for event in events_of(plan, "checkpoint", tier)), default=0)


def told(training: Training, tier: str) -> list[str]:
    return [line for line in training.errors().splitlines() if f"was not saved to {tier}: " in line]


def last_step(training: Training) -> int:
    return max((said["step"] for said in training.said("saved")), default=0)


def restored_after(plan: Plan) -> int:
    """What the next attempt goes on from."""
    training = Training(next_attempt(plan, steps=0))
    assert training.wait() == [0] * plan.ranks, training.errors()
    said = training.said("restored")
    assert not any(each["wrong"] for each in said)
    return int(said[0]["step"])


@pytest.fixture
def started() -> Iterator[Callable[[Plan], Training]]:
    trainings: list[Training] = []

    def start(plan: Plan) -> Training:
        trainings.append(Training(plan))
        return trainings[-1]

    yield start
    for training in trainings:
        training.kill()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of its own, of 24 MiB, that takes direct I/O."""
    needed(os.getuid() == 0 and shutil.which("mkfs.ext4"), "root, mkfs.ext4 and loop mounts")
    image, folder = tmp_path / "disk.img", tmp_path / "disk"
    with image.open("wb") as file:
        file.truncate(24 << 20)
    folder.mkdir()
    subprocess.run(["mkfs.ext4", "-q", "-F", "-O", "^has_journal", str(image)], check=True)
    mounted = subprocess.run(["mount", "-o", "loop", str(image), str(folder)], capture_output=True, check=False)
    needed(mounted.returncode == 0, f"loop mounts ({mounted.stderr.decode().strip()})")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill_up(folder: Path) -> None:
    with contextlib.suppress(OSError), (folder / "filler").open("wb", buffering=0) as file:
        while True:
            file.write(bytes(1 << 20))
    with (folder / "filler").open("r+b") as file:  # the ledger's small files still fit, the payload does not
        file.truncate(max(0, (folder / "filler").stat().st_size - (64 << 10)))


def remount(folder: Path, how: str) -> None:
    """It is busy while a file there is open for writing: tried until it is not."""
    deadline = time.monotonic() + 60
    while subprocess.run(["mount", "-o", f"remount,{how}", str(folder)], capture_output=True, check=False).returncode:
        assert time.monotonic() < deadline


TROUBLES: dict[str, tuple[Callable[[Path], None], Callable[[Path], None], str]] = {
    "full": (fill_up, lambda folder: (folder / "filler").unlink(), "No space left on device"),
    "read-only": (lambda folder: remount(folder, "ro"), lambda folder: remount(folder, "rw"), "Read-only file system"),
}


@pytest.mark.parametrize("trouble", TROUBLES)
@pytest.mark.parametrize("tier", ["shared", "scratch"])
def test_a_disk_in_trouble_fails_its_saves_and_the_training_goes_on(
    tmp_path: Path, disk: Path, started: Callable[[Plan], Training], tier: str, trouble: str
) -> None:
    begin, end, reason = TROUBLES[trouble]
    config = {"failures": 1000, "shared": {"every": 1}, "scratch": {"every": 1, "path": str(tmp_path / "scratch")}}
    config[tier]["path"] = str(disk)  # type: ignore[index]
    other = "scratch" if tier == "shared" else "shared"
    plan = Plan(tmp_path / "runs" / "demo" / "one", 0, config, kib=512, pace=PACE)
    training = started(plan)
    until(lambda: events_of(plan, "checkpoint", tier), training)
    begin(disk)
    until(lambda: len(events_of(plan, "checkpoint-failed", tier)) > 2, training)
    at = last_step(training)
    until(lambda: durable_on(plan, other) > at + 3, training)
    end(disk)
    until(lambda: durable_on(plan, tier) > at + 3, training)
    training.kill()
    training.wait()
    reasons = [event["reason"] for event in events_of(plan, "checkpoint-failed", tier)]
    assert any(reason in each for each in reasons), set(reasons)
    assert all("\n" not in each for each in reasons)
    assert any(reason in line for line in told(training, tier))
    assert restored_after(plan) >= max(durable_on(plan, each) for each in (tier, other))


@pytest.fixture
def public_folder() -> Iterator[Path]:
    """One that everybody can reach; pytest's own are private."""
    folder = Path(tempfile.mkdtemp(dir="/var/tmp", prefix="slurmopt-test-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def test_a_folder_without_permission_is_told_and_the_other_tier_goes_on(
    public_folder: Path, started: Callable[[Plan], Training]
) -> None:
    needed(os.getuid() == 0, "root, to become somebody without permissions")
    for name in ("run", "scratch", "denied"):
        (public_folder / name).mkdir()
    for name in ("run", "scratch"):
        os.chown(public_folder / name, NOBODY, NOBODY)
    config = {
        "shared": {"every": 1, "path": str(public_folder / "denied")},
        "scratch": {"every": 1, "path": str(public_folder / "scratch")},
    }
    plan = Plan(public_folder / "run" / "demo" / "one", 0, config, kib=64, user=NOBODY, pace=PACE)
    training = started(plan)
    until(lambda: len(events_of(plan, "checkpoint", "scratch")) > 5, training)
    training.kill()
    training.wait()
    assert "Permission denied" in told(training, "shared")[0]
    assert not list((public_folder / "denied").iterdir())
    assert restored_after(plan) >= durable_on(plan, "scratch")


def test_failures_in_a_row_stop_all_ranks_with_one_line(tmp_path: Path, started: Callable[[Plan], Training]) -> None:
    config = {"failures": 3, "shared": {"every": 1, "path": str(tmp_path / "file")}}
    plan = Plan(tmp_path / "run", 0, config, kib=64, pace=PACE)
    training = started(plan)
    until(lambda: events_of(plan, "checkpoint", "shared"), training)
    (tmp_path / "file").rename(tmp_path / "moved")
    (tmp_path / "file").write_text("in the way")
    assert training.wait() == [1, 1]
    last = [line for line in training.errors().splitlines() if line.startswith("slurmopt.errors.CheckpointError: ")]
    assert len(last) == 2, "each rank ends with its one line"
    assert re.search(r"[3-5] saves in a row have failed \(checkpoint.failures\)", last[0]), (
        "two more may be on their way"
    )
    assert str(tmp_path / "file") in last[0]


def test_an_attempt_that_wakes_up_late_can_neither_commit_nor_prune(
    tmp_path: Path, started: Callable[[Plan], Training]
) -> None:
    rng = random.Random(5)
    plan = Plan(tmp_path / "runs" / "one", 0, {"failures": 3, "shared": {"every": 1, "keep": 1}}, kib=2048)
    for _ in range(3):
        asleep = started(plan)
        until(lambda training=asleep: training.said("durable", 0), asleep)  # type: ignore[misc]
        time.sleep(rng.uniform(0, 0.05))  # at any moment of a save
        for process in asleep.ranks:
            os.killpg(process.pid or 0, signal.SIGSTOP)
        newer = started(next_attempt(plan))
        until(lambda training=newer: training.said("durable", 0), newer)  # type: ignore[misc]
        newer.kill()
        newer.wait()
        before = [(each["step"], each["unique"]) for each in standing(roots(plan)["shared"])]
        files = set((plan.folder / "checkpoints").glob(f"step-*/{before[-1][1]}/*"))
        for process in asleep.ranks:
            os.killpg(process.pid or 0, signal.SIGCONT)
        assert asleep.wait() == [1, 1], "it is told, and ends"
        assert "has taken over" in asleep.errors()
        assert [(each["step"], each["unique"]) for each in standing(roots(plan)["shared"])] == before
        assert set((plan.folder / "checkpoints").glob(f"step-*/{before[-1][1]}/*")) == files
        plan = next_attempt(next_attempt(plan))
    assert restored_after(plan) == before[-1][0]


TRAIN = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from chaos_runs.checkpoints.ranks import Plan, Rank
config = {"shared": {"every": 1, "keep": 2}}
Rank(0, Plan(Path(sys.argv[2]), int(sys.argv[3]), config, ranks=1, kib=64, steps=int(sys.argv[4]), force=True)).train()
"""


def test_a_clock_that_jumps_changes_nothing(tmp_path: Path) -> None:
    library = next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"), None)
    needed(library, "libfaketime (apt-get install faketime)")
    run = tmp_path / "run"
    run.mkdir()
    for attempt, jump in enumerate(("+9000d", "-9000d")):
        environment = {**os.environ, "LD_PRELOAD": str(library), "FAKETIME": jump}
        words = [sys.executable, "-c", TRAIN, str(SCRIPTS), str(run), str(attempt), str(4 * attempt + 4)]
        done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        said = [json.loads(line) for line in (run / f"said-{attempt}.jsonl").read_text().splitlines()]
        assert [each["step"] for each in said if each["said"] == "restored"] == [4 * attempt]
        durable = [each["step"] for each in said if each["said"] == "durable"]
        assert durable == [4 * attempt + each for each in (1, 2, 3, 4)]
        assert max(each["step"] for each in standing(run / "checkpoints")) == 4 * attempt + 4


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    pytest.importorskip("boto3")
    found = S3Server.start(new_folder())
    yield found
    found.stop()


def s3_plan(folder: Path, endpoint: str, environment: dict[str, str], **more: Any) -> Plan:
    config = {
        "shared": {"every": 1, "keep": 2},
        "s3": {"every": 1, "keep": 2, "url": f"s3://{BUCKET}/chaos", "endpoint": endpoint},
        "deadline": "4s",
        "failures": 1000,
    }
    return Plan(folder, 0, config, kib=64, environment=environment, pace=PACE, **more)


def test_s3_that_is_gone_is_told_and_uploads_resume_when_it_is_back(
    tmp_path: Path, server: S3Server, started: Callable[[Plan], Training]
) -> None:
    plan = s3_plan(tmp_path / "runs" / "demo" / "one", server.endpoint, server.environment)
    training = started(plan)
    until(lambda: events_of(plan, "checkpoint", "s3"), training)
    server.kill()
    until(lambda: events_of(plan, "checkpoint-failed", "s3"), training)
    at = last_step(training)
    until(lambda: durable_on(plan, "shared") > at + 5, training)
    server.restart()
    until(lambda: durable_on(plan, "s3") > at, training)
    training.kill()
    training.wait()
    assert all("\n" not in event["reason"] for event in events_of(plan, "checkpoint-failed", "s3"))
    assert told(training, "s3")
    newest = max(durable_on(plan, tier) for tier in ("shared", "s3"))
    assert restored_after(plan) >= newest
    shutil.rmtree(plan.folder / "checkpoints")
    assert restored_after(next_attempt(plan)) >= durable_on(plan, "s3") - 1


def test_s3_that_refuses_or_is_not_there_costs_the_training_nothing(
    tmp_path: Path, server: S3Server, started: Callable[[Plan], Training]
) -> None:
    wrong = {**server.environment, "AWS_SECRET_ACCESS_KEY": "wrong"}
    cases = {"down": ("http://127.0.0.1:9", server.environment), "refusing": (server.endpoint, wrong)}
    plans = [s3_plan(tmp_path / "runs" / "demo" / name, *facts) for name, facts in cases.items()]
    trainings = [started(plan) for plan in plans]
    for plan, training in zip(plans, trainings, strict=True):
        until(lambda plan=plan: len(events_of(plan, "checkpoint", "shared")) > 10, training)  # type: ignore[misc]
        until(lambda plan=plan: events_of(plan, "checkpoint-failed", "s3"), training)  # type: ignore[misc]
        training.kill()
        training.wait()
        assert told(training, "s3"), plan.folder.name
        reported = durable_on(plan, "shared")
        without_s3 = {**plan.config, "s3": {}}
        assert restored_after(replace(plan, config=without_s3)) >= reported
