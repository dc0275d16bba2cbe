"""Event files for TensorBoard, read back with TensorBoard's own reader."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from job.harness import Runner
from job.sinks.conftest import sinks, write_series
from json_answer import data_of

from slurmopt.job.sinks import tensorboard
from slurmopt.job.sinks.record import NotWritten, Place, Record
from slurmopt.run_folder import events
from slurmopt.run_folder.layout import RunFolder

accumulator = pytest.importorskip("tensorboard.backend.event_processing.plugin_event_accumulator")

TRAIN = """
import slurmopt
def main(config):
    for step in range({first}, {last}):
        slurmopt.progress(step, loss={scale} / step, rate=0.5)
"""


def scalars(folder: Path, tag: str) -> dict[int, float]:
    """Step → value, as TensorBoard shows the tag."""
    from tensorboard.util import tensor_util

    reader = accumulator.EventAccumulator(str(folder), tensor_size_guidance={"scalars": 0})
    reader.Reload()
    points = [(event.step, tensor_util.make_ndarray(event.tensor_proto).item()) for event in reader.Tensors(tag)]
    assert len(dict(points)) == len(points), "a step is there twice"
    return dict(points)


def tags(folder: Path) -> list[str]:
    reader: Any = accumulator.EventAccumulator(str(folder))
    reader.Reload()
    return sorted(reader.Tags()["tensors"])


@pytest.mark.slow
def test_every_step_of_a_function_and_no_step_that_a_restart_threw_away(runner: Runner) -> None:
    runner.lone_function("train", TRAIN.format(first=1, last=501, scale=1))
    assert runner.run(2, *sinks(tensorboard={"folder": "auto"}), "--function", "train.main") == 0
    assert runner.log(0) == runner.log(1) == ""
    first = scalars(runner.folder.tensorboard, "loss")
    assert first == {step: pytest.approx(1 / step) for step in range(1, 501)}
    assert tags(runner.folder.tensorboard) == ["loss", "rate"]

    runner.attempt = 1
    events.append(runner.folder.events, "restored", attempt=1, step=300, tier="shared", checkpoint="step-300")
    runner.lone_function("train", TRAIN.format(first=310, last=400, scale=7))
    assert runner.run(2, *sinks(tensorboard={"folder": "auto"}), "--function", "train.main") == 0
    again = scalars(runner.folder.tensorboard, "loss")
    assert {step: again[step] for step in again if step <= 300} == {step: first[step] for step in range(1, 301)}
    assert {step for step in again if step > 300} == set(range(310, 400))
    assert again[310] == pytest.approx(7 / 310)


@pytest.mark.slow
def test_every_step_of_a_commands_children(runner: Runner) -> None:
    """A child sends its steps to the rank's process, a few times a second."""
    runner.module("train", "import slurmopt\nfor step in range(3000):\n    slurmopt.progress(step, loss=step)\n")
    words = sinks(tensorboard={"folder": "auto", "hardware": False})
    assert runner.run(1, *words, "--", sys.executable, "train.py") == 0
    assert runner.log(0) == ""
    assert scalars(runner.folder.tensorboard, "loss") == {step: step for step in range(3000)}


@pytest.mark.slow
def test_the_measurements_of_a_node_are_a_run_of_their_own(runner: Runner) -> None:
    node = os.uname().nodename
    rows = [{"gpu0.power": 300.0 + index, "rank0.step": 10.0 * index, "node.cpu": 2.5} for index in range(3)]
    write_series(runner.folder, node, rows)
    runner.lone_function("train", TRAIN.format(first=1, last=3, scale=1))
    assert runner.run(1, *sinks(tensorboard={"folder": "auto"}), "--function", "train.main") == 0
    hardware = runner.folder.tensorboard / "hardware" / node
    assert scalars(hardware, "gpu0/power") == {0: 300.0, 10: 301.0, 20: 302.0}
    assert tags(hardware) == ["gpu0/power", "node/cpu", "rank0/step"]


@pytest.mark.slow
def test_of_another_node_there_are_measurements_alone(runner: Runner) -> None:
    """The first rank of the second node of two: what it gives to progress is not the training's."""
    node = os.uname().nodename
    write_series(runner.folder, node, [{"gpu0.power": 300.0, "rank1.step": 7.0}])
    runner.module("train", "import slurmopt\nfor step in range(10):\n    slurmopt.progress(step, loss=step)\n")
    words = {"RANK": 1, "LOCAL_RANK": 0, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 1, "NODE_RANK": 1, "NNODES": 2}
    runner.environment = {name: str(value) for name, value in words.items()}
    runner.make_folders()
    options = sinks(tensorboard={"folder": "auto"}, wandb={"project": "mine"})
    process = runner._python(
        sys.executable, "slurmopt.job", str(runner.folder.path), *options, "--", sys.executable, "train.py"
    )
    assert process.communicate(timeout=180)[0] == ""
    assert process.returncode == 0
    assert [path.name for path in runner.folder.tensorboard.iterdir()] == ["hardware"]
    assert scalars(runner.folder.tensorboard / "hardware" / node, "gpu0/power") == {7: 300.0}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    folder = RunFolder(tmp_path / "runs" / "test" / "one")
    folder.make()
    return Place(folder, 0, "node1", 0, os.environ)


def test_numbers_at_the_edge_of_a_float(place: Place) -> None:
    sink = tensorboard.open_sink(tensorboard.TensorBoard(folder="auto"), place)
    values = {"nan": math.nan, "inf": math.inf, "large": 1e300, "small": 1e-30, "zero": 0.0, "ünï": -1.0}
    sink.write([Record(1.5, 2**40, values)])
    sink.close(None)
    shown = {tag: scalars(place.folder.tensorboard, tag)[2**40] for tag in values}
    assert math.isnan(shown["nan"])
    assert shown["inf"] == shown["large"] == math.inf
    assert shown["small"] == pytest.approx(1e-30)
    assert (shown["zero"], shown["ünï"]) == (0.0, -1.0)


def test_a_folder_of_the_users_has_one_folder_for_each_run(place: Place, tmp_path: Path) -> None:
    options = tensorboard.TensorBoard(folder="${oc.env:LOGS}/board")
    where = tensorboard.folder_of(options, Place(place.folder, 0, "node1", 0, {"LOGS": str(tmp_path)}))
    assert where == tmp_path / "board" / "test" / "one"


@pytest.mark.skipif(os.getuid() != 0, reason="NOT TESTED: only root can mount a small disk")
def test_what_fills_a_disk_is_written_whole_once_there_is_space(place: Place, tmp_path: Path) -> None:

    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", disk]).returncode:
        pytest.skip("NOT TESTED: no file system can be mounted here")
    try:
        (disk / "ballast").write_bytes(bytes(32 << 10))
        sink = tensorboard.open_sink(tensorboard.TensorBoard(folder=str(disk)), place)
        records = [Record(float(step), step, {"loss": step}) for step in range(2000)]
        sink.write(records[:10])
        with pytest.raises(NotWritten, match="No space left"):
            sink.write(records[10:1000])
        (disk / "ballast").unlink()
        sink.write(records[10:500])
        sink.close(None)
        assert len(scalars(disk / "test" / "one", "loss")) == 500
    finally:
        subprocess.run(["umount", disk], check=True)


@pytest.mark.slow
def test_a_launch_leads_to_an_event_file(project: Path) -> None:
    (project / "train.py").write_text(TRAIN.format(first=1, last=11, scale=1))
    words = ["launch.backend=local", "launch.json=true", "task._target_=train.main", "resources.tasks_per_node=2"]
    command = [sys.executable, "-m", "slurmopt.launch", *words, f"metrics.tensorboard.folder='{project}/a b'"]
    ended = subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    run = RunFolder(Path(data_of(ended.stdout)["run"]))
    assert "slurmopt: " not in run.rank_log(0, 0).read_text()
    folder = project / "a b" / run.name / run.id
    assert scalars(folder, "rate") == dict.fromkeys(range(1, 11), 0.5)
