"""The group `metrics`: what is refused at launch, what the job is told, and that nothing is told by default."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from slurmopt.config.metrics import CloudWatch, Metrics, Mlflow, Prometheus, TensorBoard, Wandb, from_word
from slurmopt.config.resources import Resources
from slurmopt.config.schema import Settings
from slurmopt.config.task import Task
from slurmopt.errors import ConfigError
from slurmopt.launching.remarks.cloudwatch_price import price_line
from slurmopt.run_folder.series.export_names import cloudwatch_names
from slurmopt.slurm.script.step import task_arguments


def test_nothing_is_told_by_default() -> None:
    assert Metrics().to_json_arg() is None
    assert "--metrics" not in task_arguments(Settings(task=Task(_target_="train.main")))
    assert price_line(Settings()) is None


def test_the_job_is_told_what_is_on_and_reads_it_back() -> None:
    metrics = Metrics(
        prometheus=Prometheus(http="0.0.0.0:9400", token="${oc.env:TOKEN}"),
        cloudwatch=CloudWatch(namespace="slurmopt", dimensions={"Team": "vision"}),
    )
    words = task_arguments(Settings(task=Task(_target_="train.main"), metrics=metrics))
    word = words[words.index("--metrics") + 1]
    assert json.loads(word) == {
        "prometheus": {"http": "0.0.0.0:9400", "token": "${oc.env:TOKEN}"},
        "cloudwatch": {"namespace": "slurmopt", "dimensions": {"Team": "vision"}},
    }
    assert from_word(word) == metrics.on


def test_a_word_of_a_later_version_is_understood() -> None:
    assert from_word('{"tensorboard":{"folder":"auto","new":1},"other":{}}') == {
        "tensorboard": TensorBoard(folder="auto")
    }


@pytest.mark.parametrize(
    ("kind", "options", "said"),
    [
        (TensorBoard, {"folder": "logs"}, "metrics.tensorboard.folder: 'logs' is no absolute path"),
        (Prometheus, {"textfile": "x"}, "metrics.prometheus.textfile: 'x' is no absolute path"),
        (Prometheus, {"http": "9400"}, "metrics.prometheus.http: '9400' is no address; valid: HOST:PORT"),
        (Prometheus, {"http": "127.0.0.1:99999"}, "is no address"),
        (Prometheus, {"http": "0.0.0.0:9400"}, "is open to others; valid: 127.0.0.1:PORT, or set"),
        (Prometheus, {"token": "${oc.env:T}"}, "metrics.prometheus.token: needs metrics.prometheus.http"),
        (CloudWatch, {"namespace": "AWS/EC2"}, "metrics.cloudwatch.namespace: 'AWS/EC2' is no namespace"),
        (CloudWatch, {"every": "1s"}, "metrics.cloudwatch.every: '1s' is too short; valid: 10s or more"),
        (CloudWatch, {"endpoint": "monitoring"}, "'monitoring' is no URL; valid: https://…, or null"),
        (CloudWatch, {"every": "often"}, "metrics.cloudwatch.every"),
        (CloudWatch, {"dimensions": {"GPU": "0"}}, "metrics.cloudwatch.dimensions.GPU: is no name"),
        (CloudWatch, {"dimensions": {f"d{i}": "x" for i in range(29)}}, "has 29 entries; valid: up to 28"),
        (CloudWatch, {"emf": "emf"}, "metrics.cloudwatch.emf: 'emf' is no absolute path"),
        (Wandb, {"mode": "disabled"}, "metrics.wandb.mode: 'disabled' is not valid"),
        (Mlflow, {"experiment": ""}, "metrics.mlflow.experiment"),
    ],
)
def test_what_cannot_be_meant_is_refused_at_launch(kind: Any, options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as error:
        kind(**options)
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (Prometheus, {"http": "127.0.0.1:1", "token": "s3cret"}),
        (Prometheus, {"http": "127.0.0.1:1", "token": "x${oc.env:T}s3cret"}),
        (Mlflow, {"tracking_uri": "https://me:s3cret@example.org"}),
        (Mlflow, {"tracking_uri": "https://example.org/?token=s3cret"}),
        (CloudWatch, {"endpoint": "https://me:s3cret@example.org"}),
        (CloudWatch, {"endpoint": "HTTPS://example.org?key=s3cret"}),
    ],
)
def test_a_secret_in_the_config_is_refused_and_not_repeated(kind: Any, options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as error:
        kind(**options)
    assert "s3cret" not in str(error.value)


def test_the_price_grows_with_the_gpus_only_where_they_are_told_apart() -> None:
    names = cloudwatch_names()
    of_gpus = sum(names.values())
    for of_gpu, count in ((False, len(names)), (True, len(names) + 15 * of_gpus)):
        settings = Settings(
            resources=Resources(nodes=2, gpus_per_node=8),
            metrics=Metrics(cloudwatch=CloudWatch(namespace="slurmopt", gpu=of_gpu)),
        )
        line = price_line(settings) or ""
        assert f"up to {count} metrics of hardware, about ${count * 0.30:,.2f} a month" in line


@pytest.mark.slow
def test_a_launch_says_the_price_and_keeps_the_environment_out_of_the_script(project: Path) -> None:
    words = [
        "+experiment=mine",
        "launch.backend=local",
        "launch.dry_run=true",
        "metrics.cloudwatch.namespace=slurmopt",
        "metrics.prometheus.http=0.0.0.0:9400",
        "metrics.prometheus.token=${oc.env:PROM_TOKEN}",
    ]
    ended = subprocess.run(
        [sys.executable, "-m", "slurmopt.launch", *words], cwd=project, capture_output=True, text=True, timeout=180,
        env={"PROM_TOKEN": "s3cret", "PATH": "/usr/bin:/bin", "HOME": str(project)},
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert "metrics.cloudwatch: up to" in ended.stderr
    assert "${oc.env:PROM_TOKEN}" in ended.stdout
    assert "s3cret" not in ended.stdout + ended.stderr
