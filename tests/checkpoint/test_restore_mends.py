"""A restore that cannot go right says so, on all ranks, and never leaves some of them waiting."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoint.ranks import on_ranks

from slurmopt.checkpoint import Checkpointer, collectives
from slurmopt.checkpoint.format.manifest import File
from slurmopt.checkpoint.format.segments import Extent, is_there
from slurmopt.checkpoint.restore import fetching, recovery, restore
from slurmopt.errors import CheckpointError, StorageError
from slurmopt.job.worker.current_run import CurrentRun
from slurmopt.run_folder import events
from slurmopt.storage.folder import FolderStore

Attempt = Callable[..., Any]
EACH_STEP = {"shared": {"every": 1}}
ELEMENTS = 4_500_000  # 18 MB: each of two ranks writes a share


def save(run: Any, state: dict[str, Any], *steps: int) -> None:
    with Checkpointer(EACH_STEP, run) as saving:
        for step in steps or (1,):
            assert saving.save(step, state)
            assert saving.wait()


# --- a file system that is not mounted


def test_a_shared_file_system_that_is_not_mounted_is_no_new_start(attempt: Attempt, folder: Path) -> None:
    save(attempt(0), {"note": 1})
    shutil.rmtree(folder / "checkpoints")
    for number in (1, 2):
        with Checkpointer(EACH_STEP, attempt(number)) as saving, pytest.raises(CheckpointError) as error:
            saving.restore({"note": 0})
        text = str(error.value)
        assert f"shared: nothing is left at {folder}/checkpoints, where this run has saved; is it mounted?" in text
        assert "\n" not in text


def test_where_all_was_deleted_on_purpose_the_training_starts_over(attempt: Attempt, folder: Path) -> None:
    save(attempt(0), {"note": 1})
    shutil.rmtree(folder / "checkpoints")
    journal = events.read(folder / "events.jsonl")
    names = [event["checkpoint"] for event in journal if event["event"] == "checkpoint"]
    assert names
    events.append(folder / "events.jsonl", "checkpoint-pruned", attempt=0, tier="shared", checkpoints=names)
    with Checkpointer(EACH_STEP, attempt(1)) as saving:
        assert saving.restore({"note": 0}) == 0


# --- what only one rank finds


@pytest.mark.parametrize("error", [ValueError("two\nlines"), AttributeError("lacks it"), MemoryError("full")])
def test_whatever_one_rank_meets_becomes_a_word_for_the_others(error: Exception) -> None:
    def fail() -> None:
        raise error

    kind, text = recovery._outcome(fail)
    assert kind == "unfit"
    assert text.startswith(f"{type(error).__name__}: ")
    assert "\n" not in text


def test_a_file_that_cannot_be_looked_at_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, file = FolderStore(tmp_path), File("step-00000001/a/rank-00000.bin", None, 3)
    assert not is_there(store, file)
    store.write(file.key, [memoryview(b"abc")])
    assert is_there(store, file)

    def refuse(self: FolderStore, key: str) -> int:
        raise StorageError(f"{key}: Input/output error")

    monkeypatch.setattr(FolderStore, "size", refuse)
    assert not is_there(store, file)


def _scratch(run: CurrentRun, disks: Path) -> dict[str, Any]:
    scratch = {"path": str(disks / run.rank.node), "every": 1}
    return {"scratch": scratch, "shared": {"path": None}, "durable": "scratch"}


def _save_on_nodes(run: CurrentRun, disks: Path) -> None:
    with Checkpointer(_scratch(run, disks), run) as saving:
        assert saving.save(1, {"w": torch.ones(ELEMENTS), "note": 1})
        assert saving.wait()


def _restore_where_a_holder_cannot_read(run: CurrentRun, disks: Path) -> list[str]:
    """Then once more, where it can."""
    state = {"w": torch.zeros(ELEMENTS), "note": 0}
    told = []
    with Checkpointer(_scratch(run, disks), run) as saving:
        whole = FolderStore.read_into

        def refuse(self: FolderStore, key: str, offset: int, buffer: memoryview) -> None:
            raise StorageError(f"{key}: Input/output error")

        if run.rank.node == "a":
            FolderStore.read_into = refuse  # type: ignore[method-assign]
        try:
            saving.restore(state)
        except CheckpointError as error:
            told.append(str(error))
        FolderStore.read_into = whole  # type: ignore[method-assign]
        told += [path.name for path in disks.glob(f"{run.rank.node}/**/*.bin")]
        saving._ranks.gather(None)
        told.append(str(saving.restore(state)))
        assert torch.equal(state["w"], torch.ones(ELEMENTS))
    return told


def test_what_a_holder_could_not_read_is_not_left_on_the_others(folder: Path, tmp_path: Path) -> None:
    disks = tmp_path / "disks"
    assert [each.error for each in on_ranks(_save_on_nodes, folder, disks, nodes=["a", "a"])] == [None, None]
    outcomes = on_ranks(_restore_where_a_holder_cannot_read, folder, disks, nodes=["a", "new"], attempt=1, timeout=60)
    assert [each.error for each in outcomes] == [None, None], outcomes[0].log
    first, second = (each.value for each in outcomes)
    assert "Input/output error" in first[0]
    assert first[0] == second[0]
    assert second[1:] == ["1"], "nothing that looks whole was left there"


def _one_does_not_save(run: CurrentRun) -> float:
    collectives.TIMEOUT = timedelta(seconds=4)
    saving = Checkpointer(EACH_STEP, run)
    assert saving.save(1, {"note": 1})
    assert saving.wait()
    began = time.monotonic()
    if run.rank.rank == 0:
        time.sleep(8)
        return 0.0
    try:
        saving.save(2, {"note": 2})
    finally:
        print(f"waited {time.monotonic() - began:.0f} seconds", flush=True)
        saving.close()
    return 0.0


def test_a_rank_that_does_not_call_save_is_missed(folder: Path) -> None:
    outcomes = on_ranks(_one_does_not_save, folder, nodes=["a", "a"], timeout=60)
    assert outcomes[0].error is None, outcomes[0].error
    line = outcomes[1].last_line
    assert line.startswith("slurmopt.errors.RanksLost: the other ranks did not come: call save, restore and close")
    assert "waiting for the other ranks of the checkpoint" in outcomes[1].log
    assert "waited 4 seconds" in outcomes[1].log or "waited 5 seconds" in outcomes[1].log


# --- types, buffers and entries


def test_a_type_that_does_not_fit_is_told_both_ways(attempt: Attempt) -> None:
    save(attempt(0), {"w": torch.ones(3, dtype=torch.float64), "model": torch.nn.Linear(2, 2)})
    for state, name, saved, here in [
        ({"model": torch.nn.Linear(2, 2).to(torch.bfloat16)}, "model.", "float32", "bfloat16"),
        ({"w": torch.zeros(3)}, "w", "float64", "float32"),
    ]:
        with Checkpointer(EACH_STEP, attempt(1)) as saving, pytest.raises(CheckpointError) as error:
            saving.restore(state)
        text = str(error.value)
        assert text.startswith(name)
        assert f"has {saved}, and here it is {here}; build the model with the type it was saved with" in text
    assert torch.equal(state["w"], torch.zeros(3)), "nothing was changed"


def test_an_optimizer_of_another_type(attempt: Attempt) -> None:
    def stepped(dtype: torch.dtype) -> torch.optim.Optimizer:
        model = torch.nn.Linear(2, 2, dtype=dtype)
        model(torch.ones(1, 2, dtype=dtype)).sum().backward()
        optimizer = torch.optim.AdamW(model.parameters())
        optimizer.step()
        return optimizer

    save(attempt(0), {"optimizer": stepped(torch.float32)})
    with Checkpointer(EACH_STEP, attempt(1)) as saving:
        with pytest.raises(CheckpointError, match=r"optimizer\.state\.0\.exp_avg: .*float32, and here it is float64"):
            saving.restore({"optimizer": stepped(torch.float64)})
        assert saving.restore({"optimizer": stepped(torch.float32)}) == 1


def test_what_goes_by_way_of_buffers_is_read_in_batches(attempt: Attempt, monkeypatch: pytest.MonkeyPatch) -> None:
    saved = {f"t{index}": torch.randn(300, 200) for index in range(8)}
    save(attempt(0), {**saved, "plain": torch.arange(9)})
    state: dict[str, Any] = {name: torch.zeros(200, 300).t() for name in saved}
    state["plain"] = torch.zeros(9, dtype=torch.int64)
    monkeypatch.setattr(restore, "_BUFFER_BYTES", 2 * 300 * 200 * 4)
    batches: list[int] = []
    read = restore.Restorer._read_by_buffer

    def counted(self: restore.Restorer, batch: list[fetching.ItemRead]) -> None:
        batches.append(len(batch))
        read(self, batch)
        assert [each for each in batch if each.buffer is not None] == [], "its memory is free again"

    monkeypatch.setattr(restore.Restorer, "_read_by_buffer", counted)
    with Checkpointer(EACH_STEP, attempt(1)) as saving:
        assert saving.restore(state) == 1
    assert batches == [2, 2, 2, 2]
    assert all(torch.equal(state[name], value) for name, value in saved.items())
    assert torch.equal(state["plain"], torch.arange(9))


def test_once_a_reader_has_failed_the_others_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    lock, seen = threading.Lock(), []

    def fail(store: Any, extent: Extent[Any], memory: memoryview) -> Any:
        with lock:
            seen.append(extent)
            first = len(seen) == 1
        if first:
            raise StorageError("the disk is gone")
        time.sleep(0.05)
        return iter(())

    files = [File(f"step-00000001/a/rank-{index:05d}.bin", None, 4096) for index in range(200)]
    pieces = [(memoryview(bytearray(8)), file, fetching.Segment(0, 0, 8, 8, "")) for file in files]
    monkeypatch.setattr(fetching, "read_extent", fail)
    with pytest.raises(StorageError, match="the disk is gone"):
        fetching.read_pieces(FolderStore(Path("nowhere")), pieces)
    assert len(seen) < 12


def test_what_is_saved_and_not_asked_for_is_told(attempt: Attempt, capfd: Any) -> None:
    save(attempt(0), {"model": torch.nn.Linear(2, 2), "optimizer": {"lr": 1.0}, "note": 1})
    with Checkpointer(EACH_STEP, attempt(1)) as saving:
        assert saving.restore({"model": torch.nn.Linear(2, 2), "note": 0}) == 1
    lines = [line for line in capfd.readouterr().err.splitlines() if "also has" in line]
    assert len(lines) == 1
    assert lines[0].startswith("slurmopt: step-00000001")
    assert lines[0].endswith("also has optimizer, which is not restored")
    with Checkpointer(EACH_STEP, attempt(2)) as saving:
        assert saving.restore({"model": torch.nn.Linear(2, 2), "note": 0, "optimizer": {}}) == 1
    assert "also has" not in capfd.readouterr().err
