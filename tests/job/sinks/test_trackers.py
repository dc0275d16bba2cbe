"""MLflow and Weights & Biases, by their real clients: one run there for all attempts of a run."""

from __future__ import annotations

import importlib.util
import json
import os
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from job.harness import Runner, empty_python
from job.sinks.conftest import sinks, write_series

pytestmark = pytest.mark.slow

TRAIN = """
import time
from pathlib import Path
import slurmopt

def written():
    return sum(path.stat().st_size for path in Path({store!r}).rglob("*") if path.is_file())

def main(config):
    before = written()
    for step in range({first}, {last}):
        slurmopt.progress(step, loss=1 / step, **{{"at step 9": float("nan")}})
        while written() == before:  # the client takes seconds to start, more than it has at the end
            time.sleep(0.05)
"""


def needs(package: str) -> pytest.MarkDecorator:
    missing = importlib.util.find_spec(package) is None
    return pytest.mark.skipif(missing, reason=f"NOT TESTED: {package} is not installed")


@needs("mlflow")
def test_mlflow_has_one_run_for_all_attempts(runner: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    store = (tmp_path / "mlruns").as_uri()
    words = sinks(mlflow={"tracking_uri": "${oc.env:STORE}", "experiment": "mine"})
    runner.environment = {"STORE": store}
    write_series(runner.folder, os.uname().nodename, [{"gpu0.power": 300.0}])
    for runner.attempt, (first, last) in enumerate([(1, 11), (6, 16)]):
        runner.lone_function("train", TRAIN.format(first=first, last=last, store=str(tmp_path / "mlruns")))
        assert runner.run(2, *words, "--function", "train.main") == 0, runner.log(0)
        assert runner.log(0) == ""
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=store)
    experiment = client.get_experiment_by_name("mine")
    assert experiment is not None
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.status == "FINISHED"
    assert run.info.run_name == "test/one"
    steps = [metric.step for metric in client.get_metric_history(run.info.run_id, "loss")]
    assert sorted(steps) == sorted([*range(1, 11), *range(6, 16)])
    assert set(run.data.metrics) == {"loss", "hardware/gpu0.power"}


@needs("mlflow")
def test_a_failed_training_is_a_failed_run_there(
    runner: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    runner.lone_function(
        "train", TRAIN.format(first=1, last=3, store=str(tmp_path / "mlruns")) + "    raise ValueError('no')\n"
    )
    words = sinks(mlflow={"tracking_uri": (tmp_path / "mlruns").as_uri()})
    assert runner.run(1, *words, "--function", "train.main") == 1
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=(tmp_path / "mlruns").as_uri())
    experiment = client.get_experiment_by_name("test")
    assert experiment is not None
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.status == "FAILED"


@needs("wandb")
def test_wandb_gets_every_step_offline(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    runner.lone_function("train", TRAIN.format(first=1, last=31, store=str(runner.folder.path / "wandb")))
    words = sinks(wandb={"project": "mine", "mode": "offline"})
    assert runner.run(1, *words, "--function", "train.main") == 0, runner.log(0)
    assert runner.log(0) == ""
    (file,) = (runner.folder.path / "wandb").glob("offline-run-*/run-test-one.wandb")
    rows = history(file)
    assert [row["step"] for row in rows] == list(range(1, 31))
    assert [row["loss"] for row in rows] == pytest.approx([1 / step for step in range(1, 31)])


def history(file: Path) -> list[dict[str, float]]:
    """The rows of a run's file."""
    from wandb.proto import wandb_internal_pb2

    rows = []
    for data in records(file.read_bytes()):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        if record.HasField("history"):
            items = record.history.item
            rows.append({item.key or item.nested_key[0]: json.loads(item.value_json) for item in items})
    return rows


def records(data: bytes) -> Iterator[bytes]:
    """The records of a log of LevelDB's format, which the client writes after seven bytes of its own: pieces of a
    record, each with a checksum (4 bytes), a length (2) and whether it is whole, or the first or last of it (1)."""
    place, block, whole = 7, 32768, b""
    while place + 7 <= len(data):
        if block - place % block < 7:
            place += block - place % block
            continue
        _, length, kind = struct.unpack_from("<IHB", data, place)
        whole += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # whole, or the last piece
            yield whole
            whole = b""


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("mlflow", {"tracking_uri": "file:///nowhere"}),
        ("wandb", {"project": "mine", "mode": "offline"}),
        ("cloudwatch", {"namespace": "slurmopt"}),
    ],
)
def test_a_client_that_is_not_installed_is_one_line(
    runner: Runner, tmp_path: Path, name: str, options: dict[str, str]
) -> None:
    """A command needs nothing but the standard library."""
    python = str(empty_python(tmp_path))
    process = runner.start_with(python, 1, *sinks(**{name: options}), "--", python, "-c", "print('trained')")
    assert runner.finish(process) == 0
    (line,) = [line for line in runner.log(0).splitlines() if line != "trained"]
    assert line.startswith(f"slurmopt: metrics.{name}: ")
    assert f"pip install 'slurmopt[{name}]'; nothing is sent there" in line
