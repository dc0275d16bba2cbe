"""What a staged copy is: real files, a copy that is killed, and the real S3 server."""

from __future__ import annotations

import errno
import filecmp
import json
import os
import re
import signal
import uuid
from pathlib import Path
from typing import Any

import pytest
from private_cluster import wait_until
from s3_server import BUCKET, S3Server
from storage.staged import MIB, answer, command, differences, put, refused

from slurmopt.errors import StagingError
from slurmopt.storage.staging import listing, record
from slurmopt.storage.staging.folder_source import source_errors


def test_a_copy_is_as_its_source_private_and_read_only(source: Path, node: Path) -> None:
    staged = put(source, node)
    copy = Path(staged.path)
    assert copy.name == source.name
    assert differences(source, copy) == {"a/absolute"}
    assert (staged.files, staged.copied_files, staged.bytes) == (24, 24, staged.copied_bytes)
    assert os.readlink(copy / "relative") == "a/b/3.txt"
    assert os.readlink(copy / "a" / "absolute") == "../program"  # into the copy
    assert os.readlink(copy / "nothing") == "a/nothing"
    assert (copy / "hole").stat().st_blocks * 512 < MIB
    modes = {name: (copy / name).stat().st_mode & 0o777 for name in ("program", "empty", "a")}
    assert modes == {"program": 0o500, "empty": 0o400, "a": 0o700}
    assert (copy / "program").stat().st_mtime_ns == (source / "program").stat().st_mtime_ns
    assert [path.stat().st_mode & 0o077 for path in node.iterdir()] == [0]


def test_a_single_file_is_staged_under_its_name(tmp_path: Path, node: Path) -> None:
    (tmp_path / "image.sqsh").write_bytes(b"image" * 1000)
    (tmp_path / "latest.sqsh").symlink_to("image.sqsh")
    staged = put(tmp_path / "latest.sqsh", node)
    assert Path(staged.path).name == "latest.sqsh"
    assert Path(staged.path).read_bytes() == b"image" * 1000


def test_what_is_there_is_not_copied_again_and_what_changed_is(source: Path, node: Path) -> None:
    put(source, node).copy.leave()
    again = put(source, node)
    assert again.copied_files == 0
    again.copy.leave()
    (source / "a" / "b" / "3.txt").write_text("another\n")
    (source / "a" / "b" / "4.txt").unlink()
    (source / "empty").unlink()
    (source / "empty").mkdir()  # a folder in place of a file, and the other way round
    (source / "empty folder").rmdir()
    (source / "empty folder").write_text("no more")
    changed = put(source, node)
    assert changed.path == again.path
    assert changed.copied_files == 2
    assert differences(source, Path(changed.path)) <= {"a/absolute"}


def test_nothing_stays_of_what_only_an_earlier_version_had(source: Path, node: Path, tmp_path: Path) -> None:
    staged = put(source, node)
    Path(staged.path, "a", "cache").write_text("of a training, of the old content")
    staged.copy.leave()
    put(source, node).copy.leave()
    assert Path(staged.path, "a", "cache").exists()  # the same version: it may be in use
    (source / "empty folder").rmdir()
    (source / "relative").unlink()
    changed = put(source, node)
    assert changed.path == staged.path
    assert differences(source, Path(changed.path)) == {"a/absolute"}
    changed.copy.leave()
    (tmp_path / "latest").symlink_to(source)
    renamed = Path(put(tmp_path / "latest", node).path)
    assert [path.name for path in renamed.parent.iterdir()] == ["latest"]  # the space is taken once
    assert differences(source, renamed) == {"a/absolute"}


def overwrite(file: Path, content: bytes) -> None:
    """Changes the content of a staged file, and neither its size nor its time."""
    facts = file.stat()
    assert len(content) == facts.st_size
    file.chmod(0o600)
    file.write_bytes(content)
    file.chmod(0o400)
    os.utime(file, ns=(facts.st_mtime_ns, facts.st_mtime_ns))


def test_damage_is_found(source: Path, node: Path) -> None:
    staged = put(source, node)
    file, cut = (Path(staged.path) / "a" / "b" / name for name in ("0.txt", "1.txt"))
    os.truncate(cut, 3)
    assert put(source, node).copied_files == 1
    assert cut.read_text() == "sample 1\n"
    overwrite(file, b"demaged!\n")
    assert put(source, node).copied_files == 0  # `size` reads nothing
    assert put(source, node, "checksum").copied_files == 1
    assert differences(source, Path(staged.path)) <= {"a/absolute"}


def test_after_a_restart_of_the_machine_the_content_is_read(source: Path, node: Path) -> None:
    """Without a loss of power nothing here is lost; what is tested is that the content decides."""
    staged = put(source, node)
    file = Path(staged.path) / "a" / "b" / "0.txt"
    overwrite(file, bytes(9))
    records = Path(staged.copy.path) / record.NAME
    head, *lines = records.read_text().splitlines()
    records.write_text("\n".join([json.dumps({**json.loads(head), "boot": "an earlier one"}), *lines, "[torn"]))
    assert put(source, node).copied_files == 1
    assert file.read_text() == "sample 0\n"
    assert put(source, node).copied_files == 0


def test_an_interrupted_copy_of_a_large_file_goes_on(
    tmp_path: Path, node: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "CHUNK", MIB)
    monkeypatch.setattr("slurmopt.storage.staging.stage._TELL_SECONDS", 0.0)
    (tmp_path / "large").write_bytes(os.urandom(40 * MIB + 5))
    told: list[str] = []

    class Enough(Exception):
        pass

    def stop(text: str) -> None:
        told.append(text)
        if len(told) > 15:
            raise Enough

    with pytest.raises(Enough):
        put(tmp_path / "large", node, progress=stop)
    assert any(re.search(r"staging .*large: \d+ % of 40.0 MiB, .*/s", text) for text in told)
    rest = put(tmp_path / "large", node, "checksum")
    assert (rest.copied_files, rest.copied_bytes < 40 * MIB) == (1, True)
    assert filecmp.cmp(tmp_path / "large", rest.path, shallow=False)


def test_links_and_folders_that_were_removed_come_back(source: Path, node: Path) -> None:
    copy = Path(put(source, node).path)
    (copy / "relative").unlink()
    (copy / "empty folder").rmdir()
    assert put(source, node).copied_files == 0
    assert differences(source, copy) <= {"a/absolute"}


def test_who_is_at_fault_for_a_source_that_cannot_be_read() -> None:
    for number, fault in ((errno.EIO, "source"), (errno.ESTALE, "source"), (errno.EACCES, "user")):
        with pytest.raises(StagingError, match=r"^/fsx/x cannot be read: ") as caught, source_errors("/fsx"):
            raise OSError(number, os.strerror(number), "/fsx/x")
        assert caught.value.fault == fault


def test_a_place_in_the_source_is_refused_before_anything_is_made_there(source: Path) -> None:
    for into in (source, source / "a", source / "new"):
        before = differences(source, source / "nowhere")
        assert "lies in the source" in str(refused(source, into))
        assert differences(source, source / "nowhere") == before


@pytest.mark.slow
def test_killed_in_the_middle_the_next_one_copies_the_rest(tmp_path: Path, node: Path) -> None:
    source = tmp_path / "many"
    source.mkdir()
    for number in range(8_000):
        (source / str(number)).write_bytes(b"%d" % number * 100)
    process = command(source, "--to", node)
    wait_until(lambda: any(each.stat().st_size > 50_000 for each in node.glob("*/*/record.jsonl")), 60, "it copies")
    process.send_signal(signal.SIGKILL)
    process.communicate()
    rest = answer(command(source, "--to", node, "--json"))
    assert 0 < rest["copied_files"] < rest["files"] == 8_000
    assert not differences(source, Path(rest["path"]))


@pytest.mark.slow
def test_ctrl_c_ends_the_command_and_keeps_what_is_complete(tmp_path: Path, node: Path) -> None:
    source = tmp_path / "many"
    source.mkdir()
    for number in range(8_000):
        (source / str(number)).write_bytes(b"x")
    process = command(source, "--to", node)
    wait_until(lambda: any(each.stat().st_size > 50_000 for each in node.glob("*/*/record.jsonl")), 60, "it copies")
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=180)
    assert (process.returncode, "Traceback" in errors) == (130, False)
    assert 0 < answer(command(source, "--to", node, "--json"))["copied_files"] < 8_000


def test_what_cannot_be_copied_is_refused_in_one_line(source: Path, node: Path, tmp_path: Path) -> None:
    (source / "a" / "out").symlink_to("../../elsewhere")
    assert re.search(r"data set/a/out is a link to ../../elsewhere, outside of the source$", str(refused(source, node)))
    (source / "a" / "out").unlink()
    os.mkfifo(source / "a" / "fifo")
    assert re.search(r"data set/a/fifo is a FIFO, which cannot be copied$", str(refused(source, node)))
    (source / "a" / "fifo").unlink()
    error = refused(tmp_path / "missing", node)
    assert (error.fault, str(error)) == ("user", f"{tmp_path}/missing cannot be read: no such file or directory")
    assert "lies in the source" in str(refused(source, source / "a"))


def test_a_source_that_changes_meanwhile(source: Path, node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that vanishes after the listing is left out; one that is written all the time makes staging fail."""
    calls = 0

    def vanish(text: str) -> None:
        (source / "a" / "b" / "7.txt").unlink(missing_ok=True)

    def write(text: str) -> None:
        nonlocal calls
        calls += 1
        (source / "program").write_text("x" * calls)

    monkeypatch.setattr("slurmopt.storage.staging.stage._TELL_SECONDS", 0.0)
    staged = put(source, node, progress=vanish)
    assert differences(source, Path(staged.path)) <= {"a/absolute"}
    staged.copy.leave_and_remove()
    with pytest.raises(StagingError, match=r"data set changes while it is copied; stage it when nobody writes there$"):
        put(source, node, progress=write)


@pytest.fixture
def bucket(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, str]:
    """A client of the real server, and a prefix of one's own."""
    pytest.importorskip("boto3")
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    return s3_server.client(), f"staging/{uuid.uuid4().hex}/set"


def test_a_prefix_of_s3_becomes_a_folder(
    bucket: tuple[Any, str], node: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "CHUNK", 3 * MIB)
    client, prefix = bucket
    objects = {"large": os.urandom(7 * MIB + 1), "a/b/small": b"small", "empty": b""}
    for key, content in objects.items():
        client.put_object(Bucket=BUCKET, Key=f"{prefix}/{key}", Body=content)
    client.put_object(Bucket=BUCKET, Key=f"{prefix}-other", Body=b"of another prefix")
    url = f"s3://{BUCKET}/{prefix}"
    staged = put(url, node, "checksum")
    copy = Path(staged.path)
    there = {str(path.relative_to(copy)): path.read_bytes() for path in copy.rglob("*") if path.is_file()}
    assert there == objects
    staged.copy.leave()
    assert put(url, node, "checksum").copied_files == 0
    client.put_object(Bucket=BUCKET, Key=f"{prefix}/a/b/small", Body=b"other")
    client.delete_object(Bucket=BUCKET, Key=f"{prefix}/empty")
    changed = put(url, node / "again")
    assert (Path(changed.path) / "a" / "b" / "small").read_bytes() == b"other"
    one = put(f"{url}/large", node)
    assert Path(one.path).read_bytes() == objects["large"]
    error = refused(f"{url}/nothing", node)
    assert (error.fault, "there is no object of this name or below it" in str(error)) == ("user", True)
    assert refused(f"s3://no-such-bucket-{uuid.uuid4().hex}/x", node).fault == "user"


@pytest.mark.parametrize("keys", [("a", "a/b"), ("a//b",), ("../x",), ("a/../../x",)])
def test_keys_that_cannot_be_files_are_refused(bucket: tuple[Any, str], node: Path, keys: tuple[str, ...]) -> None:
    client, prefix = bucket
    for key in keys:
        try:
            client.put_object(Bucket=BUCKET, Key=f"{prefix}/{key}", Body=b"content")
        except client.exceptions.ClientError as refusal:
            pytest.skip(f"NOT TESTED: this server has no object {key!r} here: {refusal}")
    error = refused(f"s3://{BUCKET}/{prefix}", node)
    assert (error.fault, "no file can" in str(error)) == ("user", True)
    assert not list(node.glob("*/*/data/*"))
