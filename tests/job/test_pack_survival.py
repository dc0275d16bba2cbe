"""What becomes of the points of a packed array task when it must stop, is killed, or a point comes to harm."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from job.harness import alive, wait_for
from job.pack_harness import Packer

from slurmopt.job.failures import finished
from slurmopt.run_folder import events
from slurmopt.run_folder.heartbeat import Heartbeat
from slurmopt.run_folder.sweep_layout import SweepFolder


@pytest.fixture
def packer(tmp_path: Path) -> Packer:
    sweep = SweepFolder(tmp_path / "runs" / "test" / "one")
    sweep.logs.mkdir(parents=True)
    sweep.path.chmod(0o700)
    (code := tmp_path / "code").mkdir()
    return Packer(sweep, code)


LOOP = """
import os, time, slurmopt
def main(config):
    run = slurmopt.current_run()
    mark = run.folder.path / "saved"
    step = int(mark.read_text()) if mark.exists() else 0
    print("from", step, flush=True)
    while step < 3 or (config.n in (2, 3) and run.attempt == 0):
        step += 1
        slurmopt.progress(step)
        time.sleep(0.05)
        if slurmopt.stop_requested():
            mark.write_text(str(step))
            raise slurmopt.Requeue("saved")
    return run.attempt
"""


@pytest.mark.parametrize("how", ["USR1", "TERM", "file"])
def test_points_that_are_stopped_go_on_and_finished_ones_do_not_run_again(packer: Packer, how: str) -> None:
    packer.points(5)
    packer.module(LOOP)
    process = packer.start("--side-by-side", "2")
    wait_for(lambda: "from" in packer.log(3), "point 3")
    if how == "file":
        packer.task.stop_request(0).touch()
    else:
        process.send_signal(signal.Signals[f"SIG{how}"])
    assert packer.finish(process) == 0, packer.output
    assert packer.outcome()["outcome"] == "requeue"
    assert packer.outcome()["error"] == "3 of 5 points are left"
    assert {event["point"] for event in packer.told() if event["next"] == "requeue"} == {2, 3}
    assert packer.end(2)["cause"] == ("asked" if how == "TERM" else "time limit")
    assert not packer.sweep.point(4).path.exists()

    assert packer.run("--side-by-side", "2") == 0, packer.output
    assert packer.outcome()["outcome"] == "finished"
    results = {event["point"]: event["result"] for event in packer.told() if event["next"] is None}
    assert results == {0: 0, 1: 0, 2: 1, 3: 1, 4: 0}
    assert "from 0" not in packer.log(2, attempt=1)
    assert [len(packer.run_of(point).attempts()) for point in range(5)] == [1, 1, 2, 2, 1]


def test_a_point_that_asks_for_it_is_started_again_in_the_same_pack(packer: Packer) -> None:
    packer.points(2)
    packer.module(
        "import slurmopt\n"
        "def main(config):\n"
        "    attempt = slurmopt.current_run().attempt\n"
        "    slurmopt.progress(attempt + 1)\n"
        "    if attempt < 2 and config.n == 0:\n"
        "        raise slurmopt.Requeue('again')\n"
        "    return attempt\n"
    )
    assert packer.run() == 0, packer.output
    assert [(event["point"], event["attempt"], event["next"]) for event in packer.told()] == [
        (0, 0, "requeue"), (0, 1, "requeue"), (0, 2, None), (1, 0, None),
    ]  # fmt: skip
    assert [event["cause"] for event in packer.events(0)] == ["asked", "asked", "finished"]


def test_a_point_that_takes_more_than_its_share_of_memory_is_ended_alone(packer: Packer) -> None:
    packer.points(2)
    packer.module(
        "import time\n"
        "def main(config):\n"
        "    held = b'x' * (300 << 20 if config.n == 0 else 1)\n"
        "    time.sleep(1000 if config.n == 0 else 2)\n"
    )
    assert packer.run("--side-by-side", "2", "--memory", str(200 << 20)) == 1
    end = packer.end(0)
    assert (end["cause"], end["next"]) == ("out of memory", None)
    assert "its share of the array task's memory is" in end["error"]
    assert packer.end(1)["cause"] == "finished"


def test_a_point_that_hangs_is_ended_with_its_stacks(packer: Packer) -> None:
    packer.points(2)
    packer.module(
        "import time, slurmopt\n"
        "def main(config):\n"
        "    slurmopt.progress(1)\n"
        "    slurmopt.progress(2)\n"
        "    while config.n == 0 and slurmopt.current_run().attempt == 0:\n"
        "        time.sleep(1)\n"
    )
    assert packer.run("--side-by-side", "2", "--hang-after", "1", "--heartbeat", "0.2") == 0, packer.output
    first = packer.events(0)[0]
    assert (first["cause"], first["next"], first["rank"]) == ("hang", "requeue", 0)
    assert "stacks of rank 0" in packer.log(0)
    assert packer.end(0)["cause"] == "finished"


def test_the_parent_is_killed_and_nothing_that_has_finished_runs_again(packer: Packer) -> None:
    packer.points(4)
    packer.module(
        "import os, time, subprocess, slurmopt\n"
        "def main(config):\n"
        "    with open('ran', 'a') as file:\n"
        "        print(config.n, os.getpid(), file=file)\n"
        "    if config.n == 2 and slurmopt.current_run().attempt == 0:\n"
        "        time.sleep(1000)\n"
    )
    process = packer.start()
    ran = packer.code / "ran"
    wait_for(lambda: ran.exists() and ran.read_text().count("\n") == 3, "point 2")
    child = int(ran.read_text().splitlines()[2].split()[1])
    process.kill()
    packer.finish(process)
    wait_for(lambda: not alive(child), "the end of point 2's rank")
    events.append(packer.task.events, "end", attempt=0, outcome="killed", cause="node failure", next="requeue")
    assert packer.run() == 0, packer.output
    assert [int(line.split()[0]) for line in ran.read_text().splitlines()] == [0, 1, 2, 2, 3]
    assert [event["cause"] for event in packer.events(2)] == ["node failure", "finished"]


def _drop_last_line(path: Path, *containing: str) -> None:
    lines = path.read_text().splitlines(keepends=True)
    at = max(index for index, line in enumerate(lines) if all(word in line for word in containing))
    path.write_text("".join(lines[:at] + lines[at + 1 :]))


def test_a_parent_that_is_killed_again_and_again_loses_no_point_and_runs_none_twice(packer: Packer) -> None:
    """Also while it moves the ended points into its own files."""
    packer.points(100)
    packer.module(
        "import os\nfrom pathlib import Path\ndef main(config):\n    print('point', config.n)\n"
        "    Path(f'ran-{config.n}-{os.environ[\"SLURMOPT_ATTEMPT\"]}').touch(exist_ok=False)\n    return config.n\n"
    )
    ran, chance = 0, random.Random(9)
    for _ in range(6):
        process = packer.start("--side-by-side", "2")
        ran = min(100, ran + 5 if ran >= 64 else 70)  # a batch of those that have ended is moved at once
        wait_for(lambda: len(list(packer.code.glob("ran-*"))) >= ran, "some points")  # noqa: B023
        time.sleep(chance.uniform(0, 0.2))  # any moment will do
        process.kill()
        packer.finish(process)
        ran = max(ran, len(list(packer.code.glob("ran-*"))))
    assert packer.run("--side-by-side", "2") == 0, packer.output
    assert not list(packer.sweep.points.iterdir())
    for point in range(100):
        journal = events.read(packer.run_of(point).events)
        final = [event for event in journal if event["event"] == "end" and event["next"] is None]
        assert [(end["result"], end["outcome"]) for end in final] == [(point, "finished")]
        assert journal[-1] == final[0]
        assert packer.log(point, final[0]["attempt"]) == f"point {point}\n"


@pytest.mark.parametrize("lost", ["of the array task", "of the point"])
def test_a_parent_killed_between_two_lines_of_the_journals_runs_nothing_twice(packer: Packer, lost: str) -> None:
    packer.points(2)
    packer.module(
        "def main(config):\n    with open('ran', 'a') as file:\n        file.write('x')\n    return config.n\n"
    )
    assert packer.run() == 0
    _drop_last_line(packer.task.events, '"point": 1', "ended")
    if lost == "of the point":  # then its records and its heartbeat are there still
        folder = packer.take_out(1, "0-0")
        _drop_last_line(folder.events, '"end"')
        folder.heartbeat(0, 0).parent.mkdir(parents=True)
        Heartbeat(0, 1, "node1", 1, outcome=finished(1).as_dict()).write(folder.heartbeat(0, 0))
    assert packer.run() == 0, packer.output
    assert (packer.code / "ran").read_text() == "xx"
    assert [(event["point"], event["result"]) for event in packer.told()] == [(0, 0), (1, 1)]
    assert packer.end(1)["cause"] == "finished"


def test_a_point_whose_folder_cannot_be_made_is_told_and_the_others_go_on(packer: Packer) -> None:
    packer.points(3)
    packer.module("def main(config):\n    pass\n")
    packer.sweep.points.mkdir()
    packer.sweep.point(1).path.write_text("a file where a folder should be")
    assert packer.run() == 1
    assert [(event["point"], event["cause"]) for event in packer.told()] == [
        (0, "finished"), (1, "infrastructure"), (2, "finished"),
    ]  # fmt: skip
    told = [line for line in packer.output.splitlines() if "point 1 is not finished" in line]
    assert len(told) == 1
    assert packer.outcome()["error"] == "1 of 3 points failed: 1"


@pytest.fixture
def small(packer: Packer) -> Iterator[Packer]:
    """A sweep on a disk of a megabyte."""
    if os.getuid() != 0:
        pytest.skip("NOT TESTED: mounting a small file system needs root")
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m,mode=700", "tmpfs", str(packer.sweep.path)]
    if subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("NOT TESTED: no file system can be mounted here")
    yield packer
    subprocess.run(["umount", str(packer.sweep.path)], check=True)


def test_a_disk_that_is_full_in_the_middle_is_told_and_another_submission_completes_the_points(small: Packer) -> None:
    small.points(4)
    small.module(
        "import contextlib, os, slurmopt\n"
        "def main(config):\n"
        "    if config.n == 1 and not os.path.exists('filled'):\n"
        "        open('filled', 'w').close()\n"
        "        with contextlib.suppress(OSError), open(os.environ['SLURMOPT_SWEEP'] + '/big', 'wb', 0) as file:\n"
        "            while file.write(b'x' * 4096):\n"
        "                pass\n"
        "    return config.n\n"
    )
    assert small.run() == 1
    assert "No space left on device" in small.output
    for point in (2, 3):
        assert small.output.count(f"point {point} is not finished") == 1
    assert {event["point"] for event in small.told() if event["cause"] == "finished"} <= {0, 1}
    (small.sweep.path / "big").unlink()
    small.submission, small.attempt = 1, 0
    assert small.run() == 0, small.output
    assert {small.end(point)["cause"] for point in range(4)} == {"finished"}
    assert [small.end(point)["result"] for point in range(4)] == [0, 1, 2, 3]
    assert len(small.run_of(0).attempts()) == 1


def test_a_cancelled_point_is_not_started_and_one_that_runs_is_ended(packer: Packer) -> None:
    packer.points(3)
    packer.module(
        "import slurmopt, time\n"
        "def main(config):\n"
        "    print('here', flush=True)\n"
        "    while config.n == 0:\n"
        "        if slurmopt.stop_requested():\n"
        "            raise slurmopt.Requeue('saved')\n"
        "        time.sleep(0.05)\n"
    )
    process = packer.start()
    wait_for(lambda: "here" in packer.log(0), "point 0")
    packer.sweep.cancelled.write_text("0-1")
    packer.finish(process)
    assert (packer.end(0)["cause"], packer.end(0)["next"]) == ("cancelled", None)
    assert not packer.sweep.point(1).path.exists()
    assert packer.end(2)["cause"] == "finished"


@pytest.mark.parametrize(("cause", "retried", "attempts"), [
    ("finished", False, 1), ("finished", True, 2), ("user error", False, 1), ("user error", True, 2),
])  # fmt: skip
def test_what_has_ended_in_another_array_task_runs_again_only_when_it_is_retried(
    packer: Packer, cause: str, retried: bool, attempts: int
) -> None:
    packer.points(1)
    packer.module("def main(config):\n    pass\n")
    assert packer.run() == 0
    folder = packer.take_out(0, "5-0")
    lines = folder.events.read_text().replace('"7_0"', '"6_0"').replace('"cause": "finished"', f'"cause": "{cause}"')
    folder.events.write_text(lines)
    packer.task.events.unlink()
    events.append(packer.sweep.events, "submitting", number=5, token="five")
    if retried:
        events.append(packer.sweep.events, "retry", points="0", changes={})
    newer = Packer(packer.sweep, packer.code, count=1, submission=6)
    assert newer.run() == 0, newer.output
    assert len(packer.run_of(0).attempts()) == attempts
    assert newer.told()[-1]["outcome"] == "finished"


def test_a_point_that_kills_the_parent_each_time_ends_and_the_others_go_on(packer: Packer) -> None:
    packer.points(3)
    packer.module(
        "import os, signal, time\ndef main(config):\n"
        "    if config.n == 1:\n        os.kill(os.getppid(), signal.SIGKILL)\n        time.sleep(9)\n"
    )
    for attempt in range(2):
        assert packer.run() == -signal.SIGKILL
        events.append(packer.task.events, "end", attempt=attempt, outcome="killed", cause="killed", next="requeue")
    assert packer.run() == 1
    assert packer.outcome()["error"] == "1 of 3 points failed: 1"
    assert packer.output.count("point 1 is not started again: killed") == 1
    assert packer.end(2)["cause"] == "finished"


def test_the_parent_beats_and_tells_how_many_points_have_ended(packer: Packer) -> None:
    packer.points(3)
    packer.module("import time\ndef main(config):\n    time.sleep(1000 if config.n == 2 else 0)\n")
    process = packer.start()

    def beat() -> tuple[int, int]:
        path = packer.task.heartbeat(0, 0)
        value = json.loads(path.read_text()) if path.exists() else {}
        return value.get("step"), value.get("total_steps")

    wait_for(lambda: beat() == (2, 3), "two ended points in the parent's heartbeat")
    before = time.process_time()
    used = _cpu(process.pid)
    time.sleep(1.0)
    assert _cpu(process.pid) - used < 0.2, "the parent waits busily"
    assert before is not None
    process.terminate()
    process.kill()
    packer.finish(process)


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
