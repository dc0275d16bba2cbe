"""A folder as a store: every byte comes back, names are won once, and what fails leaves nothing behind."""

from __future__ import annotations

import mmap
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurmopt.errors import StorageError
from slurmopt.storage.direct_io import ALIGNMENT
from slurmopt.storage.folder import FolderStore

MIB = 1 << 20


@pytest.fixture(params=["disk", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FolderStore]:
    """On a disk, and on a file system of memory, where direct I/O may be unknown."""
    if request.param == "disk":
        yield FolderStore(tmp_path / "store")
        return
    if not Path("/dev/shm").is_dir():
        pytest.skip("no /dev/shm here")
    folder = tempfile.mkdtemp(prefix="slurmopt-test-", dir="/dev/shm")
    yield FolderStore(Path(folder) / "store")
    shutil.rmtree(folder)


def aligned_memory(data: bytes) -> memoryview:
    memory = memoryview(mmap.mmap(-1, max(len(data), ALIGNMENT)))[: len(data)]
    memory[:] = data
    return memory


def read(store: FolderStore, key: str, offset: int, length: int, shift: int = 0) -> bytes:
    """Into memory that starts `shift` bytes behind a multiple of 4096."""
    memory = memoryview(mmap.mmap(-1, length + ALIGNMENT))[shift : shift + length]
    store.read_into(key, offset, memory)
    return bytes(memory)


LENGTHS = {
    "aligned": [MIB, 4096, 3 * MIB],
    "one byte": [1],
    "nothing": [],
    "an empty piece": [4096, 0, 4096],
    "an odd tail": [2 * MIB, 100],
    "odd in the middle": [4096, 100, MIB, 5000, 4096],
    "many": [4096] * 40,
}


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS.keys())
def test_pieces_of_any_length_come_back_in_order(store: FolderStore, lengths: list[int]) -> None:
    data = [os.urandom(length) for length in lengths]
    whole = b"".join(data)
    store.write("deep/below/file.bin", (aligned_memory(piece) for piece in data))
    assert store.size("deep/below/file.bin") == len(whole)
    assert store.get("deep/below/file.bin") == whole
    assert read(store, "deep/below/file.bin", 0, len(whole)) == whole


def test_pieces_in_memory_that_is_not_aligned_or_not_ours_to_write(store: FolderStore) -> None:
    data = os.urandom(3 * 4096)
    shifted = aligned_memory(b"x" * 17 + data)[17:]
    store.write("file", [aligned_memory(data), shifted, memoryview(data)])
    assert store.get("file") == 3 * data


@pytest.mark.parametrize(
    ("offset", "length", "shift"), [(0, 4096, 0), (4096, 8192, 0), (4096, 8192, 3), (1, 5000, 0), (10_000, 1, 9)]
)
def test_any_range_can_be_read(store: FolderStore, offset: int, length: int, shift: int) -> None:
    data = os.urandom(5 * 4096 + 123)
    store.write("file", [aligned_memory(data)])
    assert read(store, "file", offset, length, shift) == data[offset : offset + length]


@pytest.mark.parametrize(("offset", "length"), [(0, 12288), (8192, 4096), (4096, 8192), (5000, 5001), (20480, 4096)])
def test_a_file_that_is_too_short_says_where_it_ends(store: FolderStore, offset: int, length: int) -> None:
    store.write("file", [aligned_memory(os.urandom(10_000))])
    with pytest.raises(StorageError, match=r"/file ends at byte [\d,]+, [\d,]+ bytes too early$"):
        read(store, "file", offset, length)


def test_what_is_not_there_is_told_as_such(store: FolderStore) -> None:
    for missing in (store.get, store.size, lambda key: read(store, key, 0, 1)):
        with pytest.raises(FileNotFoundError):
            missing("commits/none")
    assert store.list("") == store.list("commits/") == []
    store.delete(["commits/none", "none"])


def test_list_and_delete(store: FolderStore) -> None:
    keys = ["commits/0001-000000.json", "step-1/a/manifest.json", "step-1/b/rank-0.bin", "step-10/a/rank-0.bin"]
    for key in keys:
        assert store.put_new(key, b"{}")
    assert store.list("") == keys
    assert store.list("step-1") == keys[1:]
    assert store.list("step-1/") == keys[1:3]
    assert store.list("step-1/b/rank") == keys[2:3]
    assert store.list("step-2/") == []
    store.delete([*keys[1:3], "step-1/never/there"])
    assert store.list("") == [keys[0], keys[3]]
    assert sorted(path.name for path in store.root.iterdir()) == ["commits", "step-10"], "no empty folder is left"
    store.delete(keys)
    assert store.root.is_dir()


def test_a_name_is_taken_once(store: FolderStore) -> None:
    assert store.put_new("commits/1", b"first")
    assert not store.put_new("commits/1", b"second")
    assert store.get("commits/1") == b"first"
    assert [path.name for path in (store.root / "commits").iterdir()] == ["1"], "nothing else is left"


_RACER = """
import sys
from pathlib import Path
from slurmopt.storage.folder import FolderStore
store, me = FolderStore(Path(sys.argv[1])), sys.argv[2]
print("ready", flush=True)
sys.stdin.readline()
print(*[number for number in range(40) if store.put_new(f"commits/{number}", me.encode() * 20_000)])
"""


def test_of_eight_processes_one_gets_each_name(store: FolderStore) -> None:
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", _RACER, str(store.root), str(me)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for me in range(8)
    ]  # fmt: skip
    try:
        for racer in racers:
            assert racer.stdout is not None
            assert racer.stdout.readline() == "ready\n"
        won = [list(map(int, racer.communicate("go\n", timeout=60)[0].split())) for racer in start(racers)]
    finally:
        for racer in racers:
            racer.kill()
            racer.wait()
    assert sorted(number for numbers in won for number in numbers) == list(range(40))
    for me, numbers in enumerate(won):
        for number in numbers:
            assert store.get(f"commits/{number}") == str(me).encode() * 20_000, "whole, and the winner's"
    assert len(list((store.root / "commits").iterdir())) == 40


def start(racers: list[subprocess.Popen[str]]) -> list[subprocess.Popen[str]]:
    """All at once, not each when the one before it is done."""
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    return racers


def test_everything_is_private_to_the_user(store: FolderStore) -> None:
    before = os.umask(0)
    try:
        store.put_new("commits/1", b"{}")
        store.write("step-1/a/rank-0.bin", [aligned_memory(b"x" * 4096)])
    finally:
        os.umask(before)
    for path in [store.root, *store.root.rglob("*")]:
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o600), path


def test_a_write_that_fails_half_way_leaves_nothing(store: FolderStore) -> None:
    def pieces() -> Iterator[memoryview]:
        yield aligned_memory(b"x" * MIB)
        raise ValueError("the source is gone")

    with pytest.raises(ValueError, match="the source is gone"):
        store.write("step-1/a/rank-0.bin", pieces())
    assert store.list("") == []
    store.write("step-1/a/rank-0.bin", [aligned_memory(b"again")])


@pytest.mark.parametrize("kind", ["file", "link", "folder"])
def test_something_in_the_way_is_told_and_left_alone(store: FolderStore, tmp_path: Path, kind: str) -> None:
    """A link might lead anywhere: nothing is written through it."""
    theirs = tmp_path / "theirs"
    theirs.write_bytes(b"theirs")
    path = store.root / "step-1" / "rank-0.bin"
    path.parent.mkdir(parents=True)
    if kind == "link":
        path.symlink_to(theirs)
    elif kind == "file":
        path.write_bytes(b"theirs")
    else:
        path.mkdir()
    with pytest.raises(StorageError, match=r"step-1/rank-0.bin: File exists") as error:
        store.write("step-1/rank-0.bin", [aligned_memory(b"ours")])
    assert "\n" not in str(error.value)
    assert not store.put_new("step-1/rank-0.bin", b"ours")
    assert path.is_symlink() == (kind == "link"), "it is not ours to remove"
    assert path.is_dir() if kind == "folder" else path.read_bytes() == b"theirs"
    assert theirs.read_bytes() == b"theirs"


def test_a_file_where_a_folder_has_to_be(store: FolderStore) -> None:
    store.put_new("step-1", b"a file")
    for attempt in (
        lambda: store.write("step-1/a/rank-0.bin", [aligned_memory(b"x")]),
        lambda: store.put_new("step-1/a/manifest.json", b"x"),
        lambda: store.get("step-1/a"),
    ):
        with pytest.raises(StorageError, match=r"/step-1/a.*: Not a directory$"):
            attempt()
    assert store.get("step-1") == b"a file"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("nothing can be mounted here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_is_told_in_one_line_and_left_clean(small_disk: Path) -> None:
    store = FolderStore(small_disk / "store")
    assert store.put_new("commits/1", b"{}")
    with pytest.raises(StorageError, match=r"rank-0.bin: No space left on device$"):
        store.write("step-1/a/rank-0.bin", [aligned_memory(b"x" * MIB) for _ in range(5)])
    assert store.list("") == ["commits/1"]
    with pytest.raises(StorageError, match="commits/2: No space left on device"):
        store.put_new("commits/2", b"x" * 3 * MIB)
    assert [path.name for path in (store.root / "commits").iterdir()] == ["1"]
    store.write("step-2/a/rank-0.bin", [aligned_memory(b"x" * MIB)])


def test_a_read_only_place_is_told(small_disk: Path) -> None:
    FolderStore(small_disk).put_new("commits/1", b"{}")
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    store = FolderStore(small_disk)
    with pytest.raises(StorageError, match="commits/2: Read-only file system"):
        store.put_new("commits/2", b"{}")
    with pytest.raises(StorageError, match=r"step-1/rank-0\.bin: Read-only file system"):
        store.write("step-1/rank-0.bin", [aligned_memory(b"x")])
    with pytest.raises(StorageError, match="commits/1: Read-only file system"):
        store.delete(["commits/1"])
    assert store.get("commits/1") == b"{}"
