"""What another user may have put where a run saves: nothing elsewhere is touched, nothing hangs, no memory is lost."""

from __future__ import annotations

import contextlib
import json
import os
import tracemalloc
import types
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from slurmopt.checkpoint.format import ledger
from slurmopt.checkpoint.format.ledger import Commit, Ledger
from slurmopt.checkpoint.format.manifest import Damaged, File, Item, Manifest, Segment
from slurmopt.checkpoint.format.manifest_reader import decode
from slurmopt.checkpoint.format.segments import extents, read_extent
from slurmopt.errors import StorageError
from slurmopt.storage import folder as folders
from slurmopt.storage.folder import FolderStore

NAME = "step-00000001/a0000-00000001"
VALID = asdict(Commit(1, "a0000-00000001", 0, 1.0, f"{NAME}/manifest.json", "0" * 32, 1, 1, 1))


@pytest.fixture
def store(tmp_path: Path) -> FolderStore:
    (tmp_path / "root").mkdir()
    return FolderStore(tmp_path / "root")


@pytest.mark.parametrize("link", ["step-00000001", NAME])
def test_no_link_is_followed_to_a_folder(store: FolderStore, tmp_path: Path, link: str) -> None:
    victim = tmp_path / "victim" / NAME.removeprefix(link).strip("/")
    victim.mkdir(parents=True)
    (victim / "rank-00000.bin").write_bytes(b"theirs")
    (victim / ".x.1-00000000").write_bytes(b"theirs")
    (store.root / link).parent.mkdir(exist_ok=True)
    (store.root / link).symlink_to(tmp_path / "victim")
    key = f"{NAME}/rank-00000.bin"
    actions: list[Callable[[], Any]] = [
        lambda: store.get(key),
        lambda: store.size(key),
        lambda: store.list(f"{NAME}/"),
        lambda: store.read_into(key, 0, memoryview(bytearray(1))),
        lambda: store.delete([key]),
        lambda: store.abort_abandoned(f"{NAME}/"),
        lambda: store.put_new(f"{NAME}/new", b"ours"),
        lambda: store.write(f"{NAME}/new", [memoryview(b"ours")]),
        lambda: store.write(f"{NAME}/deeper/new", [memoryview(b"ours")]),
    ]
    for action in actions:
        with pytest.raises(StorageError, match=rf"root/{link} is a link, and no link is followed there$"):
            action()
    assert not any(listed.startswith(f"{link}/") for listed in store.list("step-"))
    assert sorted(path.name for path in victim.iterdir()) == [".x.1-00000000", "rank-00000.bin"]


def test_no_link_is_followed_to_a_file(store: FolderStore, tmp_path: Path) -> None:
    (tmp_path / "victim").write_bytes(b"theirs")
    (store.root / "file").symlink_to(tmp_path / "victim")
    for action in (store.get, store.size, lambda key: store.read_into(key, 0, memoryview(bytearray(1)))):
        with pytest.raises(StorageError, match="root/file is a link"):
            action("file")
    store.delete(["file"])
    assert (tmp_path / "victim").read_bytes() == b"theirs"


@pytest.mark.parametrize("key", ["../victim", "step-1/../../victim", "/etc/hostname"])
def test_no_key_leads_out_of_the_root(store: FolderStore, tmp_path: Path, key: str) -> None:
    (tmp_path / "victim").write_bytes(b"theirs")
    for action in (store.get, store.size, lambda key: store.delete([key]), lambda key: store.put_new(key, b"")):
        with pytest.raises(StorageError, match="is not below"):
            action(key)
    assert (tmp_path / "victim").read_bytes() == b"theirs"


def test_what_is_no_regular_file_does_not_hang(store: FolderStore) -> None:
    os.mkfifo(store.root / "pipe")
    for action in (store.get, lambda key: store.read_into(key, 0, memoryview(bytearray(4096)))):
        with pytest.raises(StorageError, match=r"root/pipe is not a regular file$"):
            action("pipe")


def test_no_file_takes_all_memory(store: FolderStore) -> None:
    for key, length in (("large", 3 << 30), (ledger.key(0, 0), (16 << 20) + 1)):
        store.put_new(key, b"{}")
        os.truncate(store.root / key, length)
    with pytest.raises(StorageError, match=r"root/large has 3,221,225,472 bytes"):
        store.get("large")
    assert ledger.read(store).unreadable == [ledger.key(0, 0)]


def test_a_record_is_not_read_before_its_size_is_looked_at(store: FolderStore) -> None:
    store.put_new(ledger.key(0, 0), b"{}")
    os.truncate(store.root / ledger.key(0, 0), 512 << 20)  # sparse
    tracemalloc.start()
    try:
        assert ledger.read(store).unreadable == [ledger.key(0, 0)]
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("mode", "owner", "me", "refused"),
    [
        (0o777, 1000, 1001, True),
        (0o770, 1000, 1001, True),
        (0o755, 1000, 1001, False),
        (0o1777, 0, 1001, False),
        (0o777, 1001, 1001, False),
        (0o777, 1000, 0, False),
    ],
)
def test_a_root_of_another_user_that_others_write_to_is_refused(
    store: FolderStore, monkeypatch: pytest.MonkeyPatch, mode: int, owner: int, me: int, refused: bool
) -> None:
    store.root.chmod(mode)
    stat, root = Path.stat, store.root

    def owned(path: Path, **how: Any) -> Any:
        facts = stat(path, **how)
        return types.SimpleNamespace(st_mode=facts.st_mode, st_uid=owner) if path == root else facts

    monkeypatch.setattr(folders.os, "geteuid", lambda: me)
    monkeypatch.setattr(Path, "stat", owned)
    refuses = pytest.raises(StorageError, match=rf"root belongs to another user \(uid {owner}\)")
    with refuses if refused else contextlib.nullcontext():
        store.list("")


def put(store: FolderStore, number: int, record: dict[str, Any]) -> None:
    store.put_new(ledger.key(0, number), ledger._encoded(record))


@pytest.mark.parametrize("kind", ["prune", "damaged"])
def test_a_record_names_nothing_outside(store: FolderStore, kind: str) -> None:
    names = ["../../..", "/home", "step-00000001/..", "commits", 7, None, ["x"], f"{NAME}\n", f"{NAME}/..", NAME]
    put(store, 0, {"kind": kind, "checkpoints": names})
    records = ledger.read(store)
    assert (records.pruned if kind == "prune" else records.damaged) == {NAME}


@pytest.mark.parametrize(
    "forged",
    [
        *({name: value} for name in ("step", "bytes", "world_size") for value in (True, -1, 1 << 63, 1.0, "1", None)),
        *({"time": value} for value in (float("nan"), float("inf"), True, 10**400, "1")),
        *({"references": value} for value in (["../.."], [7], [["x"]], "x")),
        {"metrics": [1]},
        {"unique": "../x"},
        {"manifest": "../manifest.json"},
    ],
    ids=str,
)
def test_a_forged_commit_does_not_count(store: FolderStore, forged: dict[str, Any]) -> None:
    put(store, 0, {"kind": "commit", **VALID, **forged})
    assert ledger.read(store).commits == []


def test_a_metric_that_is_no_number_is_left_out(store: FolderStore) -> None:
    metrics = {"loss": 0.5, "no": None, "yes": True, "long": 10**400, "many": 3, "worst": float("inf"), "text": "x"}
    put(store, 0, {"kind": "commit", **VALID, "metrics": metrics})
    (commit,) = ledger.read(store).commits
    assert commit.metrics == {"loss": 0.5, "many": 3, "worst": float("inf")}


def test_dcp_deletes_only_what_it_has_written(store: FolderStore) -> None:
    dcp = pytest.importorskip("slurmopt.checkpoint.dcp.storage")
    for file in ("rank-00000.bin", "manifest.json", "thesis.tex"):
        store.put_new(f"{NAME}/{file}", b"{}")
    store.put_new("step-00000001/notes/rank-00000.bin", b"{}")
    hold = Ledger(store, 1, "me")
    hold.open()
    writer = dcp.SlurmoptWriter(store.root)
    writer._hand = dcp._Hand(1, "me")
    writer._prune(store, hold.records, hold)
    assert store.list("step-") == [f"{NAME}/thesis.tex", "step-00000001/notes/rank-00000.bin"]


SUM = "0" * 32
FILE = f"{NAME}/rank-00000.bin"


def manifest(**changed: Any) -> Manifest:
    """A tensor of 1,024 floats and an object, one behind the other."""
    items = [
        Item("w", (0,), (1024,), [Segment(0, 0, 4096, 4096, SUM)]),
        Item("o", None, None, [Segment(0, 4096, 10, 10, SUM)]),
    ]
    values = {"tensors": {"w": ("float32", (1024,))}, "files": [File(FILE, None, 4106)], "items": items, **changed}
    return Manifest(**{"step": 1, "attempt": 0, "unique": "a0000-00000001", "time": 1.0, "world_size": 1, **values})


def test_a_manifest_is_written_as_it_was_before() -> None:
    of = manifest(paths={"w": ("a", 1)}, metrics={"loss": 0.5})
    before = {name: value for name, value in asdict(of).items() if name not in ("parts", "spread")}
    assert of.encode() == json.dumps(before, separators=(",", ":")).encode()
    assert decode(of.encode(), of.commit(of.encode())) == of


def one(*segment: Any, name: str = "w", offsets: Any = (0,), sizes: Any = (1024,)) -> dict[str, Any]:
    return {"items": [Item(name, offsets, sizes, [Segment(*segment)] if segment else [])]}


PACKED = {"files": [File(FILE, "zstd", 1 << 20)]}
FORGED: dict[str, dict[str, Any]] = {
    "attempt": {"attempt": True},
    "world size": {"world_size": 1 << 63},
    "time": {"time": "now"},
    "format": {"format": "1"},
    "format true": {"format": True},
    "dtype": {"tensors": {"w": (7, (1024,))}},
    "shape": {"tensors": {"w": ("float32", (-1, -1024))}},
    "shape of floats": {"tensors": {"w": ("float32", (1024.0,))}},
    "a huge shape": {"tensors": {"w": ("float32", (1024,)), "x": ("float32", (1 << 62, 1 << 62))}},
    "many dimensions": {"tensors": {"w": ("float32", (1,) * 1000)}},
    "key": {"files": [File("../../x/rank-00000.bin", None, 4106)]},
    "key type": {"files": [File(7, None, 4106)]},  # type: ignore[arg-type]
    "encoding": {"files": [File(FILE, "lzma", 4106)]},
    "encoding type": {"files": [File(FILE, ["zstd"], 4106)]},  # type: ignore[arg-type]
    "bytes": {"files": [File(FILE, None, 4106.0)]},  # type: ignore[arg-type]
    "file index": one(True, 0, 4096, 4096, SUM),
    "negative file index": one(-1, 0, 4096, 4096, SUM),
    "offset": one(0, 0.0, 4096, 4096, SUM),
    "checksum": one(0, 0, 4096, 4096, 7),
    "checksum of another kind": one(0, 0, 4096, 4096, "0" * 31),
    "checksum of stored bytes that are the raw ones": one(0, 0, 4096, 4096, SUM, SUM),
    "no checksum of stored bytes": {**PACKED, **one(0, 0, 100, 4096, SUM)},
    "checksum of stored bytes of another kind": {**PACKED, **one(0, 0, 100, 4096, SUM, 7)},
    "raw is not stored": one(0, 0, 4096, 2048, SUM),
    "not in the tensor": one(0, 0, 4096, 4096, SUM, offsets=(1,)),
    "no offsets": one(0, 0, 4096, 4096, SUM, offsets=None),
    "of no tensor": one(0, 0, 4096, 4096, SUM, name="v"),
    "no whole elements": one(0, 0, 4095, 4095, SUM),
    "no bytes": one(),
    "twice": {"items": [item for item in manifest().items for _ in range(2)]},
    "overlapping": {
        "items": [*manifest().items, *(Item(f"o{n}", None, None, [Segment(0, 0, 4096, 4096, SUM)]) for n in range(9))]
    },
    "a bomb of zstd": {**PACKED, "tensors": {}, **one(0, 0, 9, 8 << 20, SUM, SUM, offsets=None, sizes=None)},
    "objects of zstd": {
        **PACKED,
        "tensors": {},
        "items": [Item(f"o{n}", None, None, [Segment(0, 0, 200, 8 << 20, SUM, SUM)]) for n in range(130)],
    },
}


@pytest.mark.parametrize("changed", FORGED.values(), ids=FORGED.keys())
def test_a_forged_manifest_is_damaged_in_one_line(changed: dict[str, Any]) -> None:
    valid = manifest()
    encoded = json.dumps({**vars(valid), **changed}).encode()
    commit = valid.commit(encoded)
    with pytest.raises(Damaged) as error:
        decode(encoded, commit)
    assert "\n" not in str(error.value)


def test_zeros_that_are_packed_tight_are_no_forgery() -> None:
    zstandard = pytest.importorskip("zstandard")
    stored = len(zstandard.ZstdCompressor(level=1).compress(bytes(8 << 20)))
    item = Item("w", (0,), (2 << 20,), [Segment(0, 0, stored, 8 << 20, SUM, SUM)])
    whole = manifest(files=[File(FILE, "zstd", stored)], tensors={"w": ("float32", (2 << 20,))}, items=[item])
    assert decode(whole.encode(), whole.commit(whole.encode())) == whole


def test_a_forged_frame_takes_no_memory(store: FolderStore, monkeypatch: pytest.MonkeyPatch) -> None:
    zstandard = pytest.importorskip("zstandard")
    stored = zstandard.ZstdCompressor().compress(bytes(64 << 20))
    store.put_new(FILE, stored)
    monkeypatch.setattr(zstandard, "ZstdDecompressor", lambda: pytest.fail("it was unpacked"))
    file = File(FILE, "zstd", len(stored))
    (extent,) = extents([("o", file, Segment(0, 0, len(stored), 4096, SUM))])
    with pytest.raises(Damaged, match=r"damaged at byte 0 \(zstd: another length\)$"):
        list(read_extent(store, extent, memoryview(bytearray(extent.length))))
