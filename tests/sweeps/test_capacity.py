"""How much of a sweep is submitted at once, and that two on different nodes never submit the same."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from private_cluster import wait_until

from slurmopt.config.resources import Resources
from slurmopt.config.sweep import Sweep
from slurmopt.grid.point_ranges import Ranges
from slurmopt.runs.submit.lock_file import claimed
from slurmopt.slurm.cluster.submit_limits import parse_room
from slurmopt.sweeps.submit.capacity import Room
from slurmopt.sweeps.submit.plan import first_batch

# As `scontrol --oneliner show assoc_mgr flags=assoc,qos users=ada` says it (22.05), what is of no interest left out.
LIMITS = """\
Current Association Manager state
Association Records
ClusterName=c Account=root UserName= ParentAccount= DefAssoc=No GrpSubmitJobs=N(5) MaxSubmitJobs=
ClusterName=c Account=lab UserName= ParentAccount=root(1) DefAssoc=No GrpSubmitJobs=100(60) MaxSubmitJobs=
ClusterName=c Account=lab UserName=ada({uid}) ParentAccount= DefAssoc=Yes GrpSubmitJobs=N(5) MaxSubmitJobs=70(20)
ClusterName=c Account=other UserName=ada({uid}) ParentAccount= DefAssoc=No GrpSubmitJobs=N(0) MaxSubmitJobs=
QOS Records
QOS=tight(2) GrpSubmitJobs=N(5) A Limits= lab={{MaxSubmitJobsPA=N(5)}} User Limits= {uid}={{MaxSubmitJobsPU=20(5)}}
QOS=normal(1) GrpSubmitJobs=N(0) Account Limits= No Accounts User Limits= No Users
""".format(uid=os.geteuid())


@pytest.mark.parametrize(
    ("asked", "room"),
    [
        ({}, 40),  # what the account has left is less than what the user has
        ({"qos": "tight"}, 15),
        ({"account": "other"}, None),
    ],
)
def test_the_tightest_limit_counts(asked: dict[str, str], room: int | None) -> None:
    assert parse_room(LIMITS, "ada", Resources(**asked)) == room


def test_a_user_who_is_not_told_has_no_known_limit() -> None:
    assert parse_room("", "ada", Resources()) is None


@pytest.mark.parametrize(
    ("pending", "submit", "tasks"),
    [
        (0, None, 1001),
        (1000, None, 1001),
        (1001, None, 0),  # as many wait as an array has
        (0, 7, 7),
        (0, 0, 0),
        (0, -3, 0),  # the limit was lowered
        (8, 7, 0),  # not a job for each place that becomes free
        (7, 7, 7),
    ],
)
def test_a_next_array_comes_when_it_is_of_use(pending: int, submit: int | None, tasks: int) -> None:
    assert Room(pending, 1001, submit).tasks == tasks


def test_an_array_job_takes_what_fits() -> None:
    batch = first_batch(Ranges.parse("0-99"), Sweep(per_task=4), 6)
    assert (str(batch.points), batch.size, batch.packed) == ("0-23", 6, True)
    assert first_batch(Ranges.parse("0-9"), Sweep(per_task=4), 6).size == 3


def test_the_words_of_a_job_stay_short() -> None:
    """Linux takes 128 KiB a word."""
    batch = first_batch(Ranges.of(range(0, 200_000, 2)), Sweep(), 100_000)
    assert len(batch.points) > 1000
    assert len(str(batch.points)) < 100_000


def test_a_search_has_workers_that_share_its_points() -> None:
    batch = first_batch(Ranges.parse("0-63"), Sweep(search="tpe", trials=64, workers=5), 1001)
    assert (str(batch.points), batch.size) == ("0-63", 5)


def test_a_claim_is_held_by_one(tmp_path: Path) -> None:
    path = tmp_path / "claim"
    with claimed(path) as first, claimed(path) as second:
        assert (first, second) == (True, False)
    assert not list(tmp_path.iterdir())


def killed_with_a_claim(path: Path, *before: str) -> None:
    code = (
        "import os, signal, sys; from pathlib import Path; from slurmopt.runs.submit.lock_file import claimed\n"
        "with claimed(Path(sys.argv[1])): os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([*before, sys.executable, "-c", code, str(path)], check=False)
    assert path.is_symlink()


def test_a_claim_of_a_process_that_was_killed_is_taken_over_at_once(tmp_path: Path) -> None:
    """By one of those that see it."""
    path = tmp_path / "claim"
    killed_with_a_claim(path)
    inside: list[int] = []
    together: list[int] = []

    def hold() -> None:
        with claimed(path, patience=30) as mine:
            assert mine
            inside.append(1)
            together.append(len(inside))
            time.sleep(0.02)
            inside.pop()

    holders = [threading.Thread(target=hold) for _ in range(8)]
    for holder in holders:
        holder.start()
    for holder in holders:
        holder.join()
    assert together == [1] * 8
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_claim_from_another_machine_stands_as_long_as_it_is_touched(tmp_path: Path) -> None:
    """Here another machine is another space of process ids."""
    path = tmp_path / "claim"
    code = (
        "import sys; from pathlib import Path; from slurmopt.runs.submit.lock_file import claimed\n"
        "with claimed(Path(sys.argv[1])): sys.stdin.read()"
    )
    elsewhere = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if os.getuid() or shutil.which("unshare") is None:
        pytest.skip("ANOTHER SPACE OF PROCESS IDS IS NOT TESTED: it needs root and unshare")
    holder = subprocess.Popen([*elsewhere, sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE)
    wait_until(path.is_symlink, 30, "it is claimed")
    with claimed(path) as mine:
        assert not mine
    holder.kill()
    holder.wait()
    with claimed(path) as mine:
        assert mine
    assert not list(tmp_path.iterdir())
