"""What launches that were killed leave half-made beside the runs of a name, and who removes it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurmopt.cli import main
from slurmopt.run_folder.access.temporary import drafts

DRAFT = """
import os, sys
from pathlib import Path
from slurmopt.run_folder.access.temporary import drafts, temporary_name
draft = temporary_name(drafts(Path(sys.argv[1])) / sys.argv[2])
draft.mkdir(parents=True)
(draft / "config.yaml").touch()
print(draft, flush=True)
sys.stdin.read()
"""
LAUNCH = ("launch", "launch.backend=local", "launch.name=mine", "task.command=[true]", "launch.wait=true")
LAUNCH_NOTING_LISTS = """
import os, sys
listed = []
sys.addaudithook(lambda event, words: listed.append(words[0]) if event in ("os.listdir", "os.scandir") else None)
from slurmopt.cli import main
status = main(sys.argv[2:])
sys.exit(status or (f"{sys.argv[1]} was listed" if sys.argv[1] in map(str, listed) else 0))
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """runs/NAME of the folder that the test stands in."""
    monkeypatch.chdir(tmp_path)
    made = tmp_path / "runs" / "mine"
    made.mkdir(parents=True)
    return made


def of_a_dead_process(place: Path, name: str) -> Path:
    made = subprocess.run([sys.executable, "-c", DRAFT, place, name], input="", capture_output=True, text=True)
    return Path(made.stdout.strip())


def test_what_a_killed_launch_left_is_removed_by_the_next_and_the_runs_are_not_listed(place: Path) -> None:
    draft = of_a_dead_process(place, "1")
    assert draft.is_dir()
    subprocess.run([sys.executable, "-c", LAUNCH_NOTING_LISTS, place, *LAUNCH, "launch.id=2"], check=True)
    assert os.listdir(place) == ["2"]


def test_a_run_that_was_submitted_is_no_draft_whatever_its_name(place: Path) -> None:
    draft = of_a_dead_process(place, "1")
    (draft / ".submission").touch()
    assert main([*LAUNCH, "launch.id=2"]) == 0
    assert (draft / "config.yaml").exists()


@pytest.fixture
def elsewhere(place: Path) -> Iterator[Path]:
    """The draft of a launch under way in a container with this host's name: nobody here has its process id."""
    free = next(number for number in range(30_000, 1000, -1) if not os.path.exists(f"/proc/{number}"))
    within = f'echo {free - 1} > /proc/sys/kernel/ns_last_pid; "$@"; exit 0'
    command = ["unshare", "--pid", "--fork", "bash", "-c", within, "bash", sys.executable, "-c", DRAFT, place, "1"]
    launch = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert launch.stdin is not None
    assert launch.stdout is not None
    try:
        draft = Path(launch.stdout.readline().strip())
        assert f"-{free}-" in draft.name
        yield draft
    finally:
        launch.stdin.close()
        launch.wait()
        launch.stdout.close()


@pytest.mark.skipif(os.getuid() != 0, reason="NOT TESTED: another PID namespace needs root")
def test_the_draft_of_a_process_that_cannot_be_seen_from_here_stays(place: Path, elsewhere: Path) -> None:
    assert main([*LAUNCH, "launch.id=2"]) == 0
    assert (elsewhere / "config.yaml").exists()
    assert (place / "2").exists()


@pytest.mark.skipif(os.getuid() != 0, reason="NOT TESTED: another user's folder needs root")
def test_a_folder_for_drafts_that_another_user_made_is_refused(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place.chmod(0o1777)
    drafts(place).mkdir()
    (drafts(place) / "theirs").touch()
    os.chown(drafts(place), 65534, -1)
    assert main([*LAUNCH, "launch.id=2"]) == 2
    assert f"{drafts(place)}, of user nobody, is not a folder of yours" in capsys.readouterr().err
    assert os.listdir(place) == [drafts(place).name]
    assert os.listdir(drafts(place)) == ["theirs"]
