"""Staged copies on a node: shared, removed, private, and only where there is room. A real full disk, real processes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from json_answer import data_of
from storage.staged import MIB, STAGE, answer, command, put, refused


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MiB and 60 inodes."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m,nr_inodes=60", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("NOT TESTED: no file system can be mounted here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_two_at_once_copy_once(tmp_path: Path, node: Path) -> None:
    (tmp_path / "large").write_bytes(os.urandom(100 * MIB))
    both = [command(tmp_path / "large", "--to", node, "--json") for _ in range(2)]
    answers = [answer(process) for process in both]
    assert answers[0]["path"] == answers[1]["path"]
    assert sorted(each["copied_files"] for each in answers) == [0, 1]


def test_a_copy_in_use_stays_as_it_is_when_the_source_changes(source: Path, node: Path) -> None:
    old = put(source, node)
    (source / "empty").write_text("not any more")
    new = put(source, node)
    assert new.path != old.path
    assert (Path(old.path) / "empty").read_text() == ""
    assert (Path(new.path) / "empty").read_text() == "not any more"
    old.copy.leave_and_remove()
    assert put(source, node).path == new.path


def test_a_python_with_other_checksums_makes_a_copy_of_its_own(source: Path, node: Path) -> None:
    """As in a container without xxhash, beside a job that uses a copy."""
    used = put(source, node)
    script = "import sys; sys.modules['xxhash'] = None; from slurmopt.cli import main; sys.exit(main(sys.argv[1:]))"
    words = [sys.executable, "-c", script, "storage", "stage", str(source), "--to", str(node), "--json"]
    for copied in (24, 0):  # the second one finds the first one's
        done = subprocess.run([*words, "--verify", "checksum"], capture_output=True, text=True, timeout=180, check=True)
        data = data_of(done.stdout)
        assert (data["copied_files"], data["path"] == used.path) == (copied, False)
    assert put(source, node).path == used.path


def test_the_last_one_removes_the_copy_unless_it_is_to_be_kept(source: Path, node: Path) -> None:
    one, other = put(source, node), put(source, node)
    assert not one.copy.leave_and_remove()
    assert Path(other.path).exists()
    assert other.copy.leave_and_remove()
    assert [path.name for path in node.glob("*/*")] == [".lock"]
    kept, another = put(source, node, keep=True), put(source, node)
    assert not kept.copy.leave_and_remove()
    assert not another.copy.leave_and_remove()
    assert Path(kept.path).exists()


def test_copies_that_nobody_used_for_a_day_are_removed(source: Path, tmp_path: Path, node: Path) -> None:
    (tmp_path / "other").write_text("x")
    left, used, kept = (put(source / name, node, keep=name == "hole") for name in ("empty", "program", "hole"))
    left.copy.leave()
    kept.copy.leave()
    for each in (left, used, kept):
        os.utime(each.copy.path, (1, 1))
    assert put(tmp_path / "other", node).removed == [f"file:{source}/empty"]
    assert [Path(each.path).exists() for each in (left, used, kept)] == [False, True, True]


def test_the_space_is_checked_first(source: Path, small_disk: Path, tmp_path: Path) -> None:
    (tmp_path / "huge").write_bytes(bytes(5 * MIB))
    error = refused(tmp_path / "huge", small_disk)
    assert error.fault == "user"
    assert re.search(r"huge: it needs 5.0 MiB more, and .* has [34].\d MiB free; its disk has 4.0 MiB", str(error))
    (small_disk / "of others").write_bytes(bytes(2 * MIB))
    (tmp_path / "large").write_bytes(bytes(3 * MIB))
    error = refused(tmp_path / "large", small_disk)
    assert (error.fault, "it needs 3.0 MiB more" in str(error)) == ("node", True)
    (tmp_path / "many").mkdir()
    for number in range(70):
        (tmp_path / "many" / str(number)).touch()
    assert re.search(r"it needs 7\d files, and .* has room for \d+;", str(refused(tmp_path / "many", small_disk)))


def test_a_record_that_does_not_fit_any_more_is_the_disk_s_fault(small_disk: Path, tmp_path: Path) -> None:
    (tmp_path / "many").mkdir()
    for number in range(40):
        (tmp_path / "many" / f"{number:0200}").write_text("x")
    (small_disk / "of others").write_bytes(bytes(4 * MIB - 41 * 4096))  # room for the files and the record's first page
    error = refused(tmp_path / "many", small_disk)
    assert (error.fault, "no space left on device" in str(error)) == ("node", True)


def test_unused_copies_give_way_if_space_is_short(small_disk: Path, tmp_path: Path) -> None:
    for name in ("one", "two", "three"):
        (tmp_path / name).write_bytes(bytes(MIB * 3 // 2))
    put(tmp_path / "one", small_disk, keep=True).copy.leave()
    two = put(tmp_path / "two", small_disk)
    three = put(tmp_path / "three", small_disk)
    assert three.removed == [f"file:{tmp_path}/one"]
    assert Path(two.path).exists()
    assert refused(tmp_path / "one", small_disk).fault == "node"  # the others are used


@pytest.mark.parametrize("what", ["link", "open", "foreign"])
def test_a_folder_that_others_can_enter_is_refused(source: Path, node: Path, tmp_path: Path, what: str) -> None:
    place = node / f"slurmopt-staged-{os.geteuid()}"
    node.mkdir()
    if what == "link":
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        place.symlink_to(tmp_path / "elsewhere")
    else:
        place.mkdir(mode=0o755 if what == "open" else 0o700)
    if what == "foreign":
        if os.geteuid() != 0:
            pytest.skip("NOT TESTED: a folder of another user needs root")
        os.chown(place, 12345, 12345)
    words = {"link": "is a link", "open": "is open to others (mode 755)", "foreign": "another user (uid 12345)"}
    error = refused(source, node)
    assert error.fault == "user"
    assert words[what] in str(error)


@pytest.mark.parametrize("what", ["link", "above"])
def test_a_place_that_another_user_could_replace_is_refused(source: Path, tmp_path: Path, what: str) -> None:
    if os.geteuid() != 0:
        pytest.skip("NOT TESTED: a folder of another user needs root")
    (tmp_path / "theirs").mkdir()
    if what == "link":
        (tmp_path / "link").symlink_to("theirs")
        os.chown(tmp_path / "link", 12345, 12345, follow_symlinks=False)
        error = refused(source, tmp_path / "link")
    else:
        os.chown(tmp_path / "theirs", 12345, 12345)
        (tmp_path / "theirs").chmod(0o777)
        error = refused(source, tmp_path / "theirs" / "new")
    assert error.fault == "user"
    assert "another user (uid 12345)" in str(error)
    assert not list(tmp_path.rglob("slurmopt-staged-*"))


def test_the_command_says_what_it_did(source: Path, node: Path) -> None:
    def run(*words: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*STAGE, *map(str, words)], capture_output=True, text=True, timeout=180, check=False)

    first, second = run(source / "hole", "--to", node), run(source / "hole", "--to", node, "--verify", "checksum")
    assert re.fullmatch(
        rf"1 file, 8.0 MiB, of {source}/hole: at {node}/\S+/data/hole; 1 file, .* copied, .*\n", first.stdout
    )
    assert "; nothing had to be copied, " in second.stdout
    (source / "hole").unlink()  # its copy can be removed nevertheless
    gone, nothing = (run(source / "hole", "--to", node, "--remove").stdout for _ in range(2))
    assert gone == f"removed the copy of {source}/hole in {node}\n"
    assert nothing == f"there is no copy of {source}/hole in {node}\n"
    assert [path.name for path in node.glob("*/*")] == [".lock"]
    put(source / "program", node, keep=True)
    used = run(source / "program", "--to", node, "--remove")
    assert (used.returncode, "a job uses the copy" in used.stderr) == (1, True)
    assert run(source, "--to", "").returncode == run("", "--to", node).returncode == 2
    wrong = run(source / "missing", "--to", node)
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert (
        wrong.stderr == f"slurmopt: error: storage stage: {source}/missing cannot be read: no such file or directory\n"
    )
