"""The per-user list of folders in which runs were launched."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from slurmopt.run_folder.layout import RunFolder
from slurmopt.runs import index


@pytest.fixture
def file() -> Path:
    """Where the list is."""
    return Path(os.environ["XDG_STATE_HOME"]) / "slurmopt" / "index.jsonl"


@pytest.fixture(autouse=True)
def _nothing_said(monkeypatch) -> None:
    monkeypatch.setattr(index, "_said", [])


def place(tmp_path: Path, name: str) -> Path:
    """A folder of runs that exists."""
    (folder := tmp_path / name / "runs").mkdir(parents=True)
    return folder


def note(folder: Path, run_id: str = "1") -> None:
    index.note(RunFolder(folder / "mine" / run_id))


def test_a_launch_is_noted_in_a_private_file(project, file) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "slurmopt", "launch", "+experiment=mine", "launch.backend=local", "launch.name=x"],
        capture_output=True,
        text=True,
        env={**os.environ, "SCRATCH": "/s"},
    )
    assert done.returncode == 0, done.stderr
    assert index.known_folders() == [project / "runs"]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


def test_folders_are_known_newest_first_until_they_are_removed(tmp_path) -> None:
    one, two = place(tmp_path, "one"), place(tmp_path, "two")
    note(one)
    note(two)
    note(one, "2")
    assert index.known_folders() == [one, two]
    one.rmdir()
    assert index.known_folders() == [two]


def test_torn_and_forged_lines_are_skipped(tmp_path, file) -> None:
    note(good := place(tmp_path, "good"))
    with file.open("ab") as opened:
        opened.write(b'\xff\x00\n[1]\n"x"\n{"run": 7}\n{"run": "relative/a/b"}\n{"run": "/x\\u0000/a/b"}\n')
        opened.write(b'{"run": "/\\ud800/a/b"}\n' + b"[" * 100_000 + b'\n{"time": 1, "ru')
    note(last := place(tmp_path, "last"))
    assert index.known_folders() == [last, good]


def test_a_list_that_others_may_write_is_not_trusted(tmp_path, file, capsys) -> None:
    note(place(tmp_path, "one"))
    file.chmod(0o622)
    assert index.known_folders() == []
    note(place(tmp_path, "two"))
    assert "could not be written" in capsys.readouterr().err
    file.unlink()
    (tmp_path / "elsewhere").write_text("keep")
    file.symlink_to(tmp_path / "elsewhere")
    note(place(tmp_path, "three"))
    assert (tmp_path / "elsewhere").read_text() == "keep"
    assert index.known_folders() == []


@pytest.mark.parametrize("home", ["file", "/dev/full/x", "/proc/nowhere", ""])
def test_a_home_that_cannot_be_written_is_said_once(home, tmp_path, monkeypatch, capsys) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file") if home == "file" else home)
    monkeypatch.setenv("HOME", str(tmp_path / "file"))
    folder = place(tmp_path, "one")
    note(folder)
    note(folder)
    (line,) = capsys.readouterr().err.splitlines()
    assert "could not be written" in line
    assert line.endswith(f"--folder {folder}")
    assert index.known_folders() == []


def test_a_full_disk_does_not_stop_a_launch(tmp_path, monkeypatch, capsys, file) -> None:
    file.parent.mkdir(mode=0o700, parents=True)
    code = (
        "import resource, sys; from pathlib import Path; from slurmopt.runs import index\n"
        "from slurmopt.run_folder.layout import RunFolder\n"
        "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\n"
        f"index.note(RunFolder(Path({str(tmp_path)!r}) / 'runs/mine/1')); print('goes on')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "goes on\n", done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_launches_at_once_are_all_noted(tmp_path) -> None:
    folders = [place(tmp_path, f"p{number}") for number in range(40)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(note, folders))
    assert sorted(index.known_folders()) == sorted(folders)


def test_the_list_stays_short(tmp_path, file) -> None:
    note(first := place(tmp_path, "first"))
    busy = place(tmp_path, "busy")
    lines = "".join(json.dumps({"time": 1.0, "run": f"{busy}/mine/{number}"}) + "\n" for number in range(6000))
    with file.open("a") as opened:
        opened.write(lines)
    note(busy)
    assert index.known_folders() == [busy, first]
    assert file.stat().st_size < 1000
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert os.listdir(file.parent) == [file.name]


def test_nothing_is_noted_in_the_home_of_another_user(tmp_path, monkeypatch, capsys) -> None:
    if os.geteuid():
        pytest.skip("only root may write there")
    (home := tmp_path / "ada").mkdir()
    os.chown(home, 12345, 12345)
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "state"))
    note(place(tmp_path, "one"))
    assert list(home.iterdir()) == []
    assert "belongs to another user" in capsys.readouterr().err
