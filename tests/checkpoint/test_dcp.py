"""torch.distributed.checkpoint on our storage: real saves and loads on folders, on real ranks over gloo."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from checkpoint.ranks import on_ranks
from s3_server import BUCKET, S3Server, new_folder
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.planner import WriteItem
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

from slurmopt.checkpoint import Checkpointer
from slurmopt.checkpoint.dcp.storage import SlurmoptReader, SlurmoptWriter
from slurmopt.errors import CheckpointError
from slurmopt.job.worker.current_run import CurrentRun

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
ROWS, COLUMNS = torch.arange(210.0).reshape(30, 7), torch.arange(40.0).reshape(4, 10)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "saved"


def save(root: Path, state: dict[str, Any], step: int, **options: Any) -> None:
    dcp.save(state, storage_writer=SlurmoptWriter(root, step=step, **options), no_dist=True)


def load(root: Path, state: dict[str, Any], **options: Any) -> dict[str, Any]:
    dcp.load(state, storage_reader=SlurmoptReader(root, **options), no_dist=True)
    return state


def training() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    model = torch.nn.Sequential(torch.nn.Linear(40, 30), torch.nn.Linear(30, 5, dtype=torch.float32))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(3, 40)).sum().backward()
    optimizer.step()
    return model, optimizer


def payloads(root: Path) -> list[Path]:
    return sorted(root.glob("step-*/*/rank-*.bin"))


# What runs on the ranks.


def sharded(factor: float) -> dict[str, Any]:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    return {
        "model": {
            "rows": distribute_tensor(ROWS * factor, mesh, [Shard(0)]),
            "columns": distribute_tensor(COLUMNS * factor, mesh, [Shard(1)]),
            "everywhere": distribute_tensor(ROWS[0] * factor, mesh, [Replicate()]),
        },
        "epoch": int(factor),
    }


def save_on_ranks(run: CurrentRun, root: str, step: int) -> None:
    dcp.save(sharded(step), checkpoint_id=f"step-{step}", storage_writer=SlurmoptWriter(root))


def load_on_ranks(run: CurrentRun, root: str) -> dict[str, Any]:
    if run.rank.world_size == 1:
        state: dict[str, Any] = {"model": {"rows": torch.zeros(30, 7), "columns": torch.zeros(4, 10)}, "epoch": 0}
    else:
        state = sharded(0)
    dcp.load(state, storage_reader=SlurmoptReader(root))
    whole = {key: value.full_tensor() if run.rank.world_size > 1 else value for key, value in state["model"].items()}
    return {"epoch": state["epoch"], **{key: value.tolist() for key, value in whole.items()}}


class Dying(DefaultSavePlanner):
    """Kills its rank when the first byte is asked for."""

    def resolve_data(self, write_item: WriteItem) -> Any:
        os.kill(os.getpid(), signal.SIGKILL)


def die_while_saving(run: CurrentRun, root: str, step: int) -> None:
    planner = Dying() if run.rank.rank == 1 else DefaultSavePlanner()
    dcp.save(sharded(step), storage_writer=SlurmoptWriter(root, step=step), planner=planner)


def save_in_the_background(run: CurrentRun, root: str) -> None:
    for step in (1, 2):
        writer = SlurmoptWriter(root, step=step)
        kind = AsyncCheckpointerType.PROCESS
        dcp.async_save(sharded(step), storage_writer=writer, async_checkpointer_type=kind).result()
        dcp.save(sharded(10 * step), storage_writer=SlurmoptWriter(root, step=10 * step))


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_saved_on_two_ranks_and_loaded_on_others(folder: Path, root: Path, ranks: int) -> None:
    saved = on_ranks(save_on_ranks, folder, str(root), 3, nodes=["a", "a"])
    assert [each.error for each in saved] == [None, None]
    loaded = on_ranks(load_on_ranks, folder, str(root), nodes=["a"] * ranks)
    assert [each.error for each in loaded] == [None] * ranks
    for each in loaded:
        assert each.value["rows"] == (ROWS * 3).tolist()
        assert each.value["columns"] == (COLUMNS * 3).tolist()
        assert each.value["epoch"] == 3


@pytest.mark.slow
@pytest.mark.parametrize("step", [3, 4])
def test_a_save_whose_rank_is_killed_leaves_the_one_before(folder: Path, root: Path, step: int) -> None:
    assert [each.error for each in on_ranks(save_on_ranks, folder, str(root), 3, nodes=["a", "a"])] == [None, None]
    broken_off = on_ranks(die_while_saving, folder, str(root), step, nodes=["a", "a"])
    assert broken_off[1].status == -signal.SIGKILL
    assert broken_off[0].error is not None
    (loaded,) = on_ranks(load_on_ranks, folder, str(root), nodes=["a"])
    assert (loaded.error, loaded.value["epoch"]) == (None, 3)
    assert loaded.value["rows"] == (ROWS * 3).tolist()
    # The next process that saves removes what was left behind.
    assert len(list(root.glob("step-*/*"))) == 2
    assert [each.error for each in on_ranks(save_on_ranks, folder, str(root), 5, nodes=["a", "a"])] == [None, None]
    assert [path.parent.name for path in sorted(root.glob("step-*/*"))] == ["step-00000003", "step-00000005"]


@pytest.mark.slow
def test_background_processes_and_their_parents_save_in_turn(folder: Path, root: Path) -> None:
    assert [each.error for each in on_ranks(save_in_the_background, folder, str(root), nodes=["a", "a"])] == [None] * 2
    for step in (1, 2, 10, 20):
        state = load(root, {"model": {"rows": torch.zeros(30, 7)}, "epoch": 0}, step=step)
        assert torch.equal(state["model"]["rows"], ROWS * step)


@pytest.mark.parametrize("compression", [None, "zstd"])
def test_everything_comes_back(root: Path, compression: str | None) -> None:
    model, optimizer = training()
    extra = {
        "empty": torch.empty(0, 3), "scalar": torch.tensor(2.5), "half": torch.randn(9, dtype=torch.bfloat16),
        "view": torch.arange(20).reshape(4, 5).t(), "large": torch.randn(3000, 1000), "lists": [[1, 2], {"a": "b"}],
    }  # fmt: skip
    save(root, {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "extra": extra}, 7,
         compression=compression, metrics={"loss": 0.5})  # fmt: skip
    other, other_optimizer = training()
    blank = {key: torch.zeros_like(value) if isinstance(value, torch.Tensor) else None for key, value in extra.items()}
    blank["lists"] = [[0, 0], {"a": ""}]
    state = load(root, {"model": other.state_dict(), "optimizer": other_optimizer.state_dict(), "extra": blank})
    for key, value in extra.items():
        same = torch.equal(state["extra"][key], value) if isinstance(value, torch.Tensor) else None
        assert same is not False, key
    assert state["extra"]["lists"] == extra["lists"]
    for name, value in model.state_dict().items():
        assert torch.equal(state["model"][name], value)
    assert state["optimizer"]["param_groups"] == optimizer.state_dict()["param_groups"]
    assert torch.equal(state["optimizer"]["state"][2]["exp_avg"], optimizer.state_dict()["state"][2]["exp_avg"])


def test_a_background_save_keeps_what_was_there_when_it_began(folder: Path, root: Path) -> None:
    assert on_ranks(save_while_training, folder, str(root), nodes=["a", "a"])[0].error is None
    assert load(root, {"weight": torch.ones(5)}, step=2)["weight"].tolist() == [2.0] * 5


def save_while_training(run: CurrentRun, root: str) -> None:
    weight = torch.full((5,), 2.0)
    saving = dcp.async_save({"weight": weight}, storage_writer=SlurmoptWriter(root, step=2))
    weight.zero_()
    saving.result()


def test_the_newest_or_the_step_that_is_named(root: Path) -> None:
    for step in (10, 20, 30):
        dcp.save({"n": step}, checkpoint_id=root / f"step-{step}", storage_writer=SlurmoptWriter(root), no_dist=True)
    assert load(root, {"n": 0})["n"] == 30
    assert load(root, {"n": 0}, step=20)["n"] == 20
    named: dict[str, Any] = {"n": 0}
    dcp.load(named, checkpoint_id="epoch=1-step=10.ckpt", storage_reader=SlurmoptReader(root), no_dist=True)
    assert named["n"] == 10
    with pytest.raises(CheckpointException, match=r"no checkpoint of step 25; it has: 10, 20, 30"):
        load(root, {"n": 0}, step=25)


def test_keep_lets_go_of_the_oldest(root: Path) -> None:
    for step in (1, 2, 3, 4):
        save(root, {"n": step}, step, keep=2)
    assert sorted(path.name for path in root.glob("step-*")) == ["step-00000003", "step-00000004"]
    assert load(root, {"n": 0}, step=3)["n"] == 3


def test_a_flipped_bit_is_found(root: Path) -> None:
    save(root, {"weight": torch.randn(1000)}, 1)
    (payload,) = payloads(root)
    data = bytearray(payload.read_bytes())
    data[100] ^= 4
    payload.write_bytes(data)
    with pytest.raises(CheckpointException, match=r"rank-00000\.bin is damaged"):
        load(root, {"weight": torch.zeros(1000)})


class Runs:
    """Makes a file when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = str(marker)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str, str]]:
        return open, (self.marker, "w")


def test_no_pickle_that_runs_code_is_loaded(root: Path, tmp_path: Path) -> None:
    marker = tmp_path / "it-ran"
    save(root, {"weight": torch.ones(3), "config": Runs(marker)}, 1)
    with pytest.raises(CheckpointException, match=r"config: torch\.load\(weights_only=True\) refuses"):
        load(root, {"weight": torch.zeros(3), "config": None})
    assert not marker.exists()
    assert load(root, {"weight": torch.zeros(3)})["weight"].tolist() == [1, 1, 1]
    load(root, {"config": None}, allow_pickles=True)
    assert marker.exists()


def test_what_a_checkpointer_saved(root: Path, attempt: Callable[..., CurrentRun], folder: Path) -> None:
    model, optimizer = training()
    with Checkpointer({"shared": {"every": 1}}, attempt()) as checkpointer:
        state = {"model": model, "optimizer": optimizer, "note": {"sizes": (1, 2)}}
        assert checkpointer.save(1, state)
        assert checkpointer.wait()
    other, other_optimizer = training()
    loaded = load(
        folder / "checkpoints",
        {"model": other.state_dict(), "optimizer": other_optimizer.state_dict(), "note": {"sizes": None}},
    )
    for name, value in model.state_dict().items():
        assert torch.equal(loaded["model"][name], value)
    assert loaded["optimizer"]["param_groups"] == optimizer.state_dict()["param_groups"]
    assert loaded["note"] == {"sizes": (1, 2)}


def test_an_attempt_that_was_replaced_can_no_longer_save(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes in turn, each with a place of its own in the ledger."""
    for attempt, holds in ((0, first := {}), (1, {})):
        monkeypatch.setattr("slurmopt.checkpoint.dcp.storage._holds", holds)
        monkeypatch.setenv("SLURMOPT_ATTEMPT", str(attempt))
        save(root, {"n": attempt + 1}, attempt + 1)
    monkeypatch.setattr("slurmopt.checkpoint.dcp.storage._holds", first)
    with pytest.raises(CheckpointException, match="another attempt has taken over; attempt 0 saves nothing more"):
        save(root, {"n": 3}, 3)
    assert load(root, {"n": 0})["n"] == 2


def test_what_cannot_work_is_told(root: Path) -> None:
    with pytest.raises(CheckpointException, match="which step is it"):
        dcp.save({"n": 1}, storage_writer=SlurmoptWriter(root), no_dist=True)
    with pytest.raises(CheckpointError, match="region is for s3:// only"):
        SlurmoptWriter(root, region="eu-central-1")
    with pytest.raises(CheckpointException, match="holds no complete checkpoint"):
        load(root, {"n": 0})


@pytest.fixture
def s3_server() -> Iterator[S3Server]:
    server = S3Server.start(new_folder())
    yield server
    server.stop()


def test_on_s3(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    place, options = f"s3://{BUCKET}/through-dcp", {"endpoint": s3_server.endpoint}
    state = {"weight": torch.randn(3000, 1000), "note": "here"}
    for step in (1, 2):
        dcp.save(state, storage_writer=SlurmoptWriter(place, step=step, keep=1, **options), no_dist=True)
    found: dict[str, Any] = {"weight": torch.zeros(3000, 1000), "note": ""}
    dcp.load(found, storage_reader=SlurmoptReader(place, **options), no_dist=True)
    assert torch.equal(found["weight"], state["weight"])
    assert found["note"] == "here"
    keys = [
        entry["Key"] for entry in s3_server.client().list_objects_v2(Bucket=BUCKET, Prefix="through-dcp/")["Contents"]
    ]
    assert not [key for key in keys if "step-00000001" in key]


def test_nothing_in_the_manifest_is_a_pickle(root: Path) -> None:
    save(root, {"weight": torch.ones(3), "nested": {"list": [torch.ones(2), 5]}}, 1)
    (manifest,) = root.glob("step-*/*/manifest.json")
    assert json.loads(manifest.read_text())["paths"]["nested.list.0"] == ["nested", "list", 0]
