"""A point belongs to the newest submission that has it: two array tasks never run one point in turns."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from job.harness import wait_for
from job.pack_harness import Packer

from slurmopt.grid import submissions
from slurmopt.grid.point_ranges import Ranges
from slurmopt.grid.submissions import Submission
from slurmopt.run_folder import events
from slurmopt.run_folder.sweep_layout import SweepFolder


@pytest.fixture
def packer(tmp_path: Path) -> Packer:
    sweep = SweepFolder(tmp_path / "runs" / "test" / "one")
    sweep.logs.mkdir(parents=True)
    sweep.path.chmod(0o700)
    (code := tmp_path / "code").mkdir()
    return Packer(sweep, code)


def submit_again(packer: Packer, points: str) -> None:
    """What `slurmopt retry` leaves for the array tasks that run."""
    first = Submission(number=0, points=Ranges.parse("0-9"), per_task=9, packed=True, job="7")
    again = Submission(number=1, points=Ranges.parse(points), per_task=9, packed=True, job="8")
    submissions.write(packer.sweep.sweep_file, 10, [first, again])


def start_elsewhere(packer: Packer, points: str) -> None:
    """A newer array task was quicker than the file that tells of it."""
    for point in Ranges.parse(points):
        journal = packer.sweep.packed_point(point, "1-0").events
        journal.parent.mkdir(parents=True, exist_ok=True)
        events.append(journal, "attempt", attempt=5, job="8_0", task="1-0", task_attempt=0)


HELD = """
import time, slurmopt
from pathlib import Path
def main(config):
    print("here", flush=True)
    while config.n == 0 and not Path("go").exists():
        time.sleep(0.05)
"""


@pytest.mark.parametrize("told", [submit_again, start_elsewhere])
def test_what_a_newer_array_job_has_is_not_started(packer: Packer, told: Callable[[Packer, str], None]) -> None:
    packer.points(4)
    packer.module(HELD)
    process = packer.start()
    wait_for(lambda: "here" in packer.log(0), "point 0")
    told(packer, "1-2")
    (packer.code / "go").touch()
    assert packer.finish(process) == 0, packer.output
    assert packer.outcome()["outcome"] == "finished"
    assert [event["point"] for event in packer.told("started")] == [0, 3]
    for point in (1, 2):
        assert not packer.sweep.packed_point(point, "0-0").attempts()
        assert not packer.events(point, "submitted")  # readers would take it for the latest
        assert packer.output.count(f"point {point} is not started: a newer array job has it") == 1
    assert packer.run() == 0, packer.output
    assert [event["point"] for event in packer.told("started")] == [0, 3]


def test_what_a_newer_array_job_has_is_not_started_again(packer: Packer) -> None:
    packer.points(2)
    packer.module(
        "import time, slurmopt\n"
        "from pathlib import Path\n"
        "def main(config):\n"
        "    slurmopt.progress(slurmopt.current_run().attempt + 1)\n"
        "    print('here', flush=True)\n"
        "    while config.n == 0 and not Path('go').exists():\n"
        "        time.sleep(0.05)\n"
        "    raise slurmopt.Requeue('again') if config.n == 0 else SystemExit(0)\n"
    )
    process = packer.start()
    wait_for(lambda: "here" in packer.log(0), "point 0")
    submit_again(packer, "0")
    (packer.code / "go").touch()
    assert packer.finish(process) == 0, packer.output
    assert packer.run_of(0).attempts() == [0]
    assert (packer.end(0)["cause"], packer.end(0)["next"]) == ("asked", "requeue")


def test_of_two_array_tasks_with_one_point_the_newer_goes_on_and_the_older_leaves_it(packer: Packer) -> None:
    packer.points(2)
    packer.module(
        "import time, slurmopt\n"
        "from pathlib import Path\n"
        "def main(config):\n"
        "    print('here', flush=True)\n"
        "    first = slurmopt.current_run().attempt == 0\n"
        "    while config.n == 0 and (first or not Path('go').exists()):\n"
        "        time.sleep(0.05)\n"
        "    return config.n\n"
    )
    older = packer.start()
    wait_for(lambda: "here" in packer.log(0), "point 0 in the older")
    newer = Packer(packer.sweep, packer.code, count=1, submission=1)
    process = newer.start()
    wait_for(lambda: "here" in packer.log(0, attempt=1), "point 0 in the newer")
    assert packer.finish(older) == 0, packer.output
    beats = packer.run_of(0).heartbeat(1, 0)
    assert beats.exists()  # the older has taken nothing of the newer away
    (packer.code / "go").touch()
    assert newer.finish(process) == 0, newer.output
    assert packer.run_of(0).attempts() == [0, 1]
    told = {end["attempt"]: end for end in packer.events(0)}
    assert len(packer.events(0)) == 2
    assert (told[0]["cause"], told[0]["next"], told[0]["by"]) == ("requeued", "requeue", "array task")
    assert (told[1]["cause"], told[1]["result"]) == ("finished", 0)
    assert packer.end(1)["cause"] == "finished"
    assert packer.outcome()["outcome"] == newer.outcome()["outcome"] == "finished"


def test_a_restarted_array_task_leaves_the_folder_of_a_point_that_goes_on_elsewhere(packer: Packer) -> None:
    packer.points(1)
    packer.module("def main(config):\n    pass\n")
    assert packer.run() == 0, packer.output
    packer.take_out(0, "0-0")
    packer.sweep.point(0).path.mkdir()  # as its next attempt in another array task has made it
    packer.sweep.task(1, 0).path.mkdir()
    assert packer.run() == 0, packer.output
    assert packer.sweep.point(0).path.is_dir()


def test_a_damaged_list_of_cancelled_points_is_told_once_and_ends_nothing(packer: Packer) -> None:
    packer.points(3)
    packer.module("def main(config):\n    pass\n")
    packer.sweep.cancelled.write_text("three")
    assert packer.run() == 0, packer.output
    assert packer.output.count("cancelled is damaged: it is no list of points") == 1
