"""Exports: what other tools read, from real checkpoints on real folders."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from checkpoint.ranks import alone, on_ranks
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

from slurmopt.checkpoint import Checkpointer, rng_state
from slurmopt.checkpoint.dcp.storage import SlurmoptWriter
from slurmopt.cli import main
from slurmopt.job.worker.current_run import CurrentRun

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
Export = Callable[..., Path]


class Trained:
    """What was saved."""

    def __init__(self) -> None:
        self.model = torch.nn.Sequential(torch.nn.Linear(700, 900), torch.nn.Linear(900, 3)).to(torch.bfloat16)
        self.model.register_buffer("seen", torch.tensor(17))
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        self.model(torch.randn(2, 700, dtype=torch.bfloat16)).sum().backward()
        self.optimizer.step()

    @property
    def state(self) -> dict[str, Any]:
        return {"model": self.model, "optimizer": self.optimizer, "rng": rng_state(), "note": {"sizes": (1, 2)}}


@pytest.fixture(scope="module")
def trained() -> Trained:
    return Trained()


@pytest.fixture(scope="module")
def saved(trained: Trained, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tier with the checkpoint of `trained` at step 4."""
    folder = tmp_path_factory.mktemp("run") / "demo" / "0001"
    folder.mkdir(parents=True)
    with Checkpointer({"shared": {"every": 1}}, alone(folder)) as checkpointer:
        checkpointer.restore({})
        assert checkpointer.save(4, trained.state)
        assert checkpointer.wait()
    return folder / "checkpoints"


@pytest.fixture
def export(saved: Path, tmp_path: Path) -> Export:
    """`export("torch", key="model")`: the path of what was made."""

    def run(kind: str, root: Path = saved, **options: str) -> Path:
        target = tmp_path / f"export.{kind}"
        words = [word for name, value in options.items() for word in (f"--{name}", value)]
        assert main(["checkpoint", "export", str(root), "--format", kind, "--to", str(target), *words]) == 0
        assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
        return target

    return run


def same(one: Any, other: Any) -> bool:
    """Equal in structure, types and bits."""
    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return type(one) is type(other) and len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and bool(one == other)


def test_torch_file(trained: Trained, export: Export) -> None:
    file = export("torch")
    state = torch.load(file, weights_only=True)
    assert list(state) == ["model", "optimizer", "rng", "note"]
    assert same(state["model"], trained.model.state_dict())
    assert same(state["optimizer"], trained.optimizer.state_dict())
    assert state["note"] == {"sizes": (1, 2)}
    assert list(state["rng"]) == ["rank-00000"]
    with zipfile.ZipFile(file) as archive:
        assert archive.testzip() is None


def test_torch_file_of_one_entry(trained: Trained, export: Export) -> None:
    other = Trained().model
    other.load_state_dict(torch.load(export("torch", key="model"), weights_only=True))
    assert same(dict(other.state_dict()), dict(trained.model.state_dict()))


def test_safetensors(trained: Trained, export: Export) -> None:
    safetensors = pytest.importorskip("safetensors.torch", reason="NOT TESTED: safetensors is not installed")
    file = export("safetensors")
    tensors = safetensors.load_file(file)
    for name, value in trained.model.state_dict().items():
        assert same(tensors[f"model.{name}"], value)
    assert same(tensors["optimizer.state.0.exp_avg"], trained.optimizer.state_dict()["state"][0]["exp_avg"])
    with __import__("safetensors").safe_open(file, "pt") as opened:
        assert opened.metadata()["step"] == "4"


def test_safetensors_of_the_model(trained: Trained, export: Export) -> None:
    safetensors = pytest.importorskip("safetensors.torch", reason="NOT TESTED: safetensors is not installed")
    other = Trained().model
    assert safetensors.load_model(other, export("safetensors", key="model")) == (set(), [])
    assert same(dict(other.state_dict()), dict(trained.model.state_dict()))


def test_dcp_folder(trained: Trained, export: Export, tmp_path: Path) -> None:
    folder = export("dcp")
    other = Trained()
    state = {"model": other.model.state_dict(), "optimizer": other.optimizer.state_dict(), "note": {"sizes": None}}
    dcp.load(state, checkpoint_id=folder, no_dist=True)
    assert same(state["model"], trained.model.state_dict())
    assert same(state["optimizer"], trained.optimizer.state_dict())
    assert state["note"] == {"sizes": (1, 2)}
    dcp_to_torch_save(folder, tmp_path / "by-torch.pt")
    assert same(torch.load(tmp_path / "by-torch.pt")["model"], dict(trained.model.state_dict()))


# A state that is sharded along any dimension, saved by two ranks.

WHOLE = {
    "rows": torch.arange(30.0).reshape(10, 3),
    "columns": torch.arange(60, dtype=torch.int32).reshape(4, 5, 3),
    "last": torch.arange(5.4e6).reshape(3, 3, 600_000),
}
DIMENSIONS = {"rows": 0, "columns": 1, "last": 2}


def save_sharded(run: CurrentRun, root: str) -> None:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    state = {name: distribute_tensor(value, mesh, [Shard(DIMENSIONS[name])]) for name, value in WHOLE.items()}
    dcp.save({"model": state}, storage_writer=SlurmoptWriter(root, step=1))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["torch", "safetensors", "dcp"])
def test_shards_become_whole(folder: Path, tmp_path: Path, export: Export, kind: str) -> None:
    root = tmp_path / "sharded"
    assert [each.error for each in on_ranks(save_sharded, folder, str(root), nodes=["a", "a"])] == [None, None]
    made = export(kind, root, key="model")
    if kind == "torch":
        found = torch.load(made, weights_only=True)
    elif kind == "safetensors":
        found = pytest.importorskip("safetensors.torch", reason="NOT TESTED: no safetensors").load_file(made)
    else:
        found = {name: torch.zeros_like(value) for name, value in WHOLE.items()}
        dcp.load(found, checkpoint_id=made, no_dist=True)
    assert same(dict(sorted(found.items())), dict(sorted(WHOLE.items())))


def test_tensors_within_objects(tmp_path: Path, export: Export) -> None:
    root = tmp_path / "saved"
    state = {"betas": (torch.tensor(0.9), torch.tensor(0.99)), "weight": torch.arange(5.0)}
    dcp.save(state, storage_writer=SlurmoptWriter(root, step=1), no_dist=True)
    assert same(torch.load(export("torch", root), weights_only=True), state)


_MEASURE = """
import resource, sys
from slurmopt.checkpoint.dcp import export, export_dcp
if len(sys.argv) > 1:
    from slurmopt.cli import main
    assert main(sys.argv[1:]) == 0
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


def peak(*words: str) -> int:
    """MiB that an export takes at most, or without words a process that only could."""
    argv = [sys.executable, "-c", _MEASURE, *words]
    return int(subprocess.run(argv, check=True, capture_output=True, text=True).stdout.split()[-1])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["torch", "safetensors", "dcp"])
def test_memory_does_not_grow_with_the_checkpoint(tmp_path: Path, kind: str) -> None:
    """512 MiB in tensors of 32 MiB: in memory are a few pieces of 16 MiB, or one tensor."""
    root = tmp_path / "large"
    state = {f"weight{index}": torch.full((8 << 20,), float(index)) for index in range(16)}
    dcp.save(state, storage_writer=SlurmoptWriter(root, step=1), no_dist=True)
    del state
    words = ["checkpoint", "export", str(root), "--format", kind, "--to", str(tmp_path / "out")]
    assert peak(*words) - peak() < 200


@pytest.mark.parametrize("kind", ["torch", "safetensors", "dcp"])
def test_what_is_damaged_is_not_exported(tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    root, target = tmp_path / "saved", tmp_path / "out"
    dcp.save({"weight": torch.randn(100_000)}, storage_writer=SlurmoptWriter(root, step=1), no_dist=True)
    (payload,) = root.glob("step-*/*/rank-*.bin")
    with payload.open("r+b") as file:
        file.seek(1000)
        file.write(bytes(64))
    assert main(["checkpoint", "export", str(root), "--format", kind, "--to", str(target)]) == 1
    assert "rank-00000.bin is damaged at byte 0" in capsys.readouterr().err
    assert not target.exists()
    assert os.listdir(tmp_path) == ["saved"]


def test_bad_words(saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def refused(*words: str) -> str:
        assert main(["checkpoint", "export", str(saved), *words]) == 2
        (line,) = [line for line in capsys.readouterr().err.splitlines() if "error" in line]
        return line

    target = str(tmp_path / "out")
    assert "no entry 'modle'; it has: model, optimizer, rng, note" in refused(
        "--format", "torch", "--to", target, "--key", "modle"
    )
    assert "is there already" in refused("--format", "dcp", "--to", str(tmp_path))
    assert "out/deep is not a folder" in refused("--format", "safetensors", "--to", f"{target}/deep/er")
    assert "no checkpoint '5'; there are steps 4" in refused("5", "--format", "torch", "--to", target)
    assert os.listdir(tmp_path) == []
