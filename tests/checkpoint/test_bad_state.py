"""What cannot be saved or restored: one line that says which entry, what is wrong with it and what would be valid."""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoint.ranks import alone, on_ranks, writers_of
from torch import nn

from slurmopt.checkpoint import Checkpointer
from slurmopt.checkpoint.format import manifest_reader
from slurmopt.checkpoint.snapshot import snapshots
from slurmopt.errors import CheckpointError, ConfigError, SlurmoptError
from slurmopt.job.worker.current_run import CurrentRun

Attempt = Callable[..., Any]
Journal = Callable[[str], list[dict[str, Any]]]
EACH_STEP = {"shared": {"every": 1}}


def told(error: pytest.ExceptionInfo[SlurmoptError], *words: str) -> None:
    """One line with all the words."""
    text = str(error.value)
    assert "\n" not in text
    assert [word for word in words if word not in text] == [], text


def save(run: Any, state: dict[str, Any], step: int = 1) -> None:
    with Checkpointer(EACH_STEP, run) as saving:
        assert saving.save(step, state)
        assert saving.wait()


def model(width: int = 4, **more: Any) -> nn.Module:
    return nn.Sequential(nn.Linear(3, width), nn.Linear(width, 1), *more.values())


# --- a state that cannot be saved


def quantized() -> torch.Tensor:
    return torch.quantize_per_tensor(torch.ones(4), 0.1, 0, torch.qint8)


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize(
    ("value", "words"),
    [
        (lambda: {"deep": [1, threading.Lock()]}, ["bad['deep'][1]", "lock", "state_dict"]),
        (lambda: (number for number in range(3)), ["bad", "generator"]),
        (lambda: {"parts": [torch.ones(2), torch.eye(3).to_sparse()]}, ["bad.parts.1", "sparse", "dense"]),
        (lambda: quantized(), ["bad", "quantized", "dense"]),
        (lambda: nn.Linear(2, 2, device="meta"), ["bad.weight", "meta"]),
    ],
)
def test_what_cannot_be_saved_is_named_by_its_key(attempt: Attempt, value: Callable[[], Any], words: list[str]) -> None:
    with Checkpointer(EACH_STEP, attempt(0)) as saving:
        with pytest.raises(CheckpointError) as error:
            saving.save(1, {"good": 1, "bad": value()})
        told(error, *words)
        assert saving.save(2, {"good": 1}), "and nothing else is harmed"
        assert saving.wait()


# --- a checkpoint that does not fit


def test_a_shape_that_does_not_fit_is_told_both_ways(attempt: Attempt) -> None:
    save(attempt(0), {"model": model(4), "note": 1})
    other = model(6)
    before = {name: value.clone() for name, value in other.state_dict().items()}
    state = {"model": other, "note": 2}
    with Checkpointer(EACH_STEP, attempt(1)) as saving, pytest.raises(CheckpointError) as error:
        saving.restore(state)
    told(error, "model.0.weight", "[4, 3]", "[6, 3]", "step-00000001")
    assert all(torch.equal(value, before[name]) for name, value in other.state_dict().items())
    assert state["note"] == 2, "nothing was changed"


@pytest.mark.parametrize(
    ("saved", "here", "words"),
    [
        (model(), model(more=nn.Linear(1, 1)), ["model.2.", "is in the model and not in step-00000001", "2 such"]),
        (model(more=nn.Linear(1, 1)), model(), ["model.2.", "is in step-00000001", "not in the model", "2 such"]),
    ],
)
def test_a_key_that_is_missing_on_one_side(
    attempt: Attempt, saved: nn.Module, here: nn.Module, words: list[str]
) -> None:
    save(attempt(0), {"model": saved})
    with Checkpointer(EACH_STEP, attempt(1)) as saving, pytest.raises(CheckpointError) as error:
        saving.restore({"model": here})
    told(error, *words)


def test_an_entry_that_was_not_saved(attempt: Attempt) -> None:
    save(attempt(0), {"model": model(), "note": 1})
    with Checkpointer(EACH_STEP, attempt(1)) as saving, pytest.raises(CheckpointError) as error:
        saving.restore({"model": model(), "scheduler": 1})
    told(error, "state['scheduler']", "step-00000001", "it has: model, note")


def test_an_optimizer_of_other_groups(attempt: Attempt) -> None:
    one, two = model(), model()
    save(attempt(0), {"optimizer": torch.optim.AdamW(one.parameters())})
    groups = [{"params": [parameter]} for parameter in two.parameters()]
    with Checkpointer(EACH_STEP, attempt(1)) as saving, pytest.raises(CheckpointError) as error:
        saving.restore({"optimizer": torch.optim.AdamW(groups)})
    told(error, "state['optimizer']", "AdamW", "parameter group")


def test_a_checkpoint_of_a_newer_format(attempt: Attempt, monkeypatch: pytest.MonkeyPatch) -> None:
    save(attempt(0), {"note": 1})
    monkeypatch.setattr(manifest_reader, "FORMAT", 1)  # an older slurmopt
    with Checkpointer(EACH_STEP, attempt(1)) as saving, pytest.raises(CheckpointError) as error:
        saving.restore({"note": 0})
    told(error, "manifest.json", "format 2", "this slurmopt reads up to 1", "newer")


# --- a config that is wrong


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"shard": {}}, ["checkpoint.shard", "unknown key", "shared"]),
        ({"shared": {"every": "sometimes"}}, ["checkpoint.shared.every", "'sometimes'", "auto"]),
        ({"shared": {"keep": 0}}, ["checkpoint.shared.keep", "0"]),
        ({"shared": {"path": "here"}}, ["checkpoint.shared.path", "'here'", "absolute"]),
        ({"scratch": {"path": "${oc.env:NO_SUCH}"}}, ["checkpoint.scratch.path", "NO_SUCH"]),
        ({"durable": "s3"}, ["checkpoint.durable", "'s3' is off", "auto, shared"]),
        ({"shared": {"best": 2}}, ["checkpoint.shared.best", "checkpoint.metric"]),
        ({"buffers": 3}, ["checkpoint.buffers", "3"]),
    ],
)
def test_a_bad_value_of_the_config_is_told_by_its_key(
    attempt: Attempt, config: dict[str, Any], words: list[str]
) -> None:
    with pytest.raises(ConfigError) as error:
        Checkpointer(config, attempt(0))
    told(error, *words)


def test_ranks_without_a_process_group(folder: Path) -> None:
    run = alone(folder)
    run = dataclasses.replace(run, rank=dataclasses.replace(run.rank, world_size=2))
    with pytest.raises(CheckpointError) as error:
        Checkpointer(EACH_STEP, run)
    told(error, "init_process_group")


# --- a machine that lacks something


@pytest.mark.parametrize(
    ("arenas", "words"), [(1.5, "one snapshot instead of two"), (0.1, "snapshots go to a file in ")]
)
def test_memory_too_short_for_the_snapshots(
    attempt: Attempt, monkeypatch: pytest.MonkeyPatch, capfd: Any, arenas: float, words: str
) -> None:
    """What is left of the machine's memory is the one thing that a test cannot take away."""
    state = {"w": torch.randn(5_000_000)}
    expected = state["w"].clone()
    left = int(arenas * 20_000_000) + (256 << 20)
    monkeypatch.setattr(snapshots, "available_memory", lambda: left)
    with Checkpointer(EACH_STEP, attempt(0)) as saving:
        saving.restore(state)
        for step in (1, 2):
            assert saving.save(step, state, force=True)
            state["w"] += 1
        assert saving.wait()
    lines = [line for line in capfd.readouterr().err.splitlines() if "memory left" in line]
    assert len(lines) == 1, lines
    assert words in lines[0]
    with Checkpointer(EACH_STEP, attempt(1)) as saving:
        assert saving.restore(state) == 2
    assert torch.equal(state["w"], expected + 1)


def test_zstd_that_is_not_installed(attempt: Attempt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Known before the first step."""
    config = {"shared": {"every": 1, "compression": "zstd"}}
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "zstandard.py").write_text("raise ImportError('No module named zstandard')")
    with monkeypatch.context() as patch:  # only the writer, which is another process, lacks it
        patch.setenv("PYTHONPATH", os.pathsep.join([str(hidden), *filter(None, [os.environ.get("PYTHONPATH")])]))
        with pytest.raises(CheckpointError, match="compression: zstd needs the package zstandard: pip install"):
            Checkpointer(config, attempt(0))
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(ConfigError, match=r"checkpoint.shared.compression: zstd needs the package zstandard"):
        Checkpointer(config, attempt(1))


def test_a_file_where_the_folder_has_to_be(attempt: Attempt, tmp_path: Path, capfd: Any) -> None:
    in_the_way = tmp_path / "shared"
    in_the_way.write_text("in the way")
    shared = {"every": 1, "path": str(in_the_way)}
    with pytest.raises(CheckpointError, match=rf"no checkpoint can be saved: {in_the_way}\S*: Not a directory"):
        Checkpointer({"shared": shared}, attempt(0))
    assert not writers_of(os.getpid()), "nobody could close it"
    scratch = {"every": 1, "path": str(tmp_path / "disk")}
    capfd.readouterr()
    with Checkpointer({"shared": shared, "scratch": scratch}, attempt(1)) as saving:
        told = capfd.readouterr().err
        assert saving.restore({"w": 1}) == 0
        assert saving.save(1, {"w": 1})
        assert not saving.wait()
        in_the_way.unlink()
        assert saving.save(2, {"w": 1}), "mended while the training goes on"
        assert saving.wait()
    assert f"slurmopt: shared: {in_the_way}" in told
    assert "Not a directory; saves there are tried anyway" in told
    assert not [path for path in tmp_path.rglob("*") if "probe" in path.name]


@pytest.fixture
def readable_by_all() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="slurmopt-test-", dir="/var/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def _save_as_nobody(run: CurrentRun, shared: str) -> list[Any]:
    os.setgroups([])
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)
    with Checkpointer({"shared": {"every": 1, "path": shared}}, run):
        return []


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_a_place_that_this_user_may_not_write_to(readable_by_all: Path) -> None:
    ran = subprocess.run(
        ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", sys.executable, "-c", "import slurmopt"],
        capture_output=True, cwd="/",
    )  # fmt: skip
    if ran.returncode:
        pytest.skip("nobody may not run this Python")
    folder = readable_by_all / "demo" / "0001"
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    shared = readable_by_all / "shared"
    shared.mkdir(mode=0o755)
    (outcome,) = on_ranks(_save_as_nobody, folder, str(shared), nodes=["here"])
    assert outcome.last_line.startswith("slurmopt.errors.CheckpointError: no checkpoint can be saved: "), outcome.log
    assert str(shared) in outcome.last_line
    assert "Permission denied" in outcome.last_line


# --- calls that make no sense


@pytest.mark.parametrize("step", [-1, 1.5, "7", None, 10**16])
def test_what_is_no_step_is_refused_before_anything_is_copied(attempt: Attempt, journal: Journal, step: Any) -> None:
    with Checkpointer(EACH_STEP, attempt(0)) as saving, pytest.raises(CheckpointError) as error:
        saving.save(step, {"note": 1}, force=True)
    told(error, "save:", repr(step), "whole number")
    assert journal("checkpoint") == []


def test_a_metric_that_is_no_number_is_refused_by_its_name(attempt: Attempt) -> None:
    with Checkpointer(EACH_STEP, attempt(0)) as saving, pytest.raises(CheckpointError) as error:
        saving.save(1, {"note": 1}, metrics={"loss": "x"})
    told(error, "metrics['loss']", "str")


def test_saving_after_the_end_is_refused(attempt: Attempt) -> None:
    with Checkpointer(EACH_STEP, attempt(0)) as saving:
        pass
    with pytest.raises(CheckpointError) as error:
        saving.save(1, {"note": 1}, force=True)
    told(error, "closed")


def test_a_restore_that_was_forgotten_is_told(attempt: Attempt, capfd: pytest.CaptureFixture[str]) -> None:
    save(attempt(0), {"note": 1}, step=5)
    capfd.readouterr()
    save(attempt(1), {"note": 1}, step=6)
    assert "has checkpoints up to step 5, and restore() was not called" in capfd.readouterr().err
