"""A seeded slice of `scripts/chaos calls`, which runs at full length by hand; and its judge finds what is wrong."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from private_cluster import PrivateCluster

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
sys.path.insert(0, str(SCRIPTS))

from chaos_runs.calls import calls, workplace  # noqa: E402


@pytest.fixture(scope="module")
def cluster() -> Iterator[PrivateCluster]:
    """Sweeps of the commands' points need two array jobs here."""
    with PrivateCluster.running("--nodes", "1", "--gpus", "0", "--max-array-size", "4") as made:
        yield made


@pytest.fixture(scope="module")
def disturber(cluster: PrivateCluster) -> Iterator[calls.Disturber]:
    folder = Path(tempfile.mkdtemp(prefix="slurmopt-calls-", dir="/tmp"))
    try:
        library = workplace.build(folder)
    except workplace.CannotBuild as error:
        pytest.skip(str(error))
    with workplace.Workplace(folder / "project", library, cluster.conf) as place:
        yield calls.Disturber(place)
        place.clear()
    shutil.rmtree(folder)


def tried(disturber: calls.Disturber, *cases: calls.Case) -> list[tuple[str, list[str]]]:
    """The cases that went wrong."""
    found = [(str(case), disturber.try_out(case)[1]) for case in cases]
    return [(case, wrong) for case, wrong in found if wrong]


@pytest.mark.parametrize(
    ("command", "locks"),
    [("launch", True), ("sweep", False), ("retry", False), ("retry-sweep", True), ("cancel", True)],
)
def test_whatever_breaks_at_a_call_of_a_command_its_repetition_ends_in_one_job(
    disturber: calls.Disturber, command: str, locks: bool
) -> None:
    cases = calls.plan(disturber, calls.Wanted(seed=3, commands=(command,), locks=(locks,), limit=5))
    assert len(cases) == 5
    assert tried(disturber, *cases) == []


@pytest.mark.parametrize("command", ["retry", "retry-sweep"])
def test_a_retry_that_is_killed_before_and_after_sbatch_multiplies_the_time_limit_once(
    disturber: calls.Disturber, command: str
) -> None:
    made = disturber.calls(command, True)
    moments = [
        call for call in made if call.path == "sbatch" or (call.name, Path(call.path).name) == ("rename", "job.sbatch")
    ]
    assert {call.name for call in moments} >= {"rename", "execute", "answered"}
    assert tried(disturber, *[calls.Case(command, call.number, "kill", True) for call in moments]) == []


def test_the_judge_finds_a_second_job_and_what_was_left(disturber: calls.Disturber) -> None:
    """The script of a launch is submitted once more by hand, beside a folder that nobody made whole."""
    disturber.calls("launch", True)
    place = disturber.place
    folder = place.runs / "a" / "one"
    shutil.copytree(folder, folder.with_name(".one.1234"))
    job = place.slurm("sbatch", "--parsable", "--begin=now+10days", str(folder / "job.sbatch")).strip()
    found = [*calls.COMMANDS["launch"].judge(place), *disturber.left("launch", True)]
    assert any("2 jobs are queued" in text and job in text for text in found), found
    assert any(text.startswith("left: runs/a/.one.1234") for text in found), found
