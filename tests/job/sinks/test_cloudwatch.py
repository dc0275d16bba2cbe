"""CloudWatch: what arrives at a real server (moto's), and what a request may hold."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from job.harness import Runner, wait_for
from job.sinks.conftest import sinks, write_series

from slurmopt.job.rendezvous.ports import free_port
from slurmopt.job.sinks.cloudwatch import sink as cloudwatch
from slurmopt.job.sinks.cloudwatch.collected import MOST_NAMES, Collected, Values
from slurmopt.job.sinks.cloudwatch.emf import documents
from slurmopt.job.sinks.record import Place, Record
from slurmopt.report.dashboards import cloudwatch as exported
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.series import export_names

boto3 = pytest.importorskip("boto3")
pytest.importorskip("moto")

STAMP = datetime(2026, 1, 1, tzinfo=timezone.utc)
KEYS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_EC2_METADATA_DISABLED": "true"}
ROW = {f"gpu{gpu}.{name}": 10.0 * gpu for gpu in range(8) for name in export_names.GPU} | {"rank0.input.share": 0.25}


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The endpoint of moto's server."""
    port = free_port(set())
    command = [sys.executable, "-m", "moto.server", "-p", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    endpoint = f"http://127.0.0.1:{port}"
    wait_for(lambda: _answers(endpoint), "moto's server")
    yield endpoint
    process.kill()
    process.wait()


def _answers(endpoint: str) -> bool:
    import urllib.error
    import urllib.request

    try:
        urllib.request.urlopen(f"{endpoint}/moto-api/", timeout=5).close()
    except urllib.error.URLError:
        return False
    return True


@pytest.fixture
def place(tmp_path: Path) -> Place:
    folder = RunFolder(tmp_path / "runs" / "test" / "one")
    folder.make()
    return Place(folder, 0, "node1", 0, {})


def arrived(endpoint: str, namespace: str) -> dict[str, list[dict[str, str]]]:
    """Metric → the dimensions of its series at the server."""
    keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test", "region_name": "us-east-1"}
    client = boto3.client("cloudwatch", endpoint_url=endpoint, **keys)
    found: dict[str, list[dict[str, str]]] = {}
    for page in client.get_paginator("list_metrics").paginate(Namespace=namespace):
        for metric in page["Metrics"]:
            dimensions = {each["Name"]: each["Value"] for each in metric["Dimensions"]}
            if dimensions not in found.setdefault(metric["MetricName"], []):
                found[metric["MetricName"]].append(dimensions)
    return found


TRAIN = """
import slurmopt
def main(config):
    for step in range(1, 101):
        slurmopt.progress(step, loss=1 / step, nothing=float("nan"))
"""


@pytest.mark.slow
@pytest.mark.parametrize("of_gpu", [False, True])
def test_a_runs_metrics_arrive_in_few_metrics(runner: Runner, server: str, of_gpu: bool) -> None:
    namespace, node = f"test-{of_gpu}", os.uname().nodename
    write_series(runner.folder, node, [ROW])
    runner.lone_function("train", TRAIN)
    runner.environment = KEYS
    options = {"namespace": namespace, "endpoint": server, "region": "us-east-1", "gpu": of_gpu}
    assert runner.run(1, *sinks(cloudwatch=options), "--function", "train.main") == 0
    assert runner.log(0) == ""
    found = arrived(server, namespace)
    assert found["loss"] == [{"Experiment": "test"}]
    assert found["InputShare"] == [{"Experiment": "test"}]
    assert "nothing" not in found
    own = [{"Experiment": "test", "GPU": str(gpu), "Node": node} for gpu in range(8)]
    assert sorted(found["GpuPower"], key=str) == (sorted(own, key=str) if of_gpu else [{"Experiment": "test"}])
    assert set(found) <= {"loss", *export_names.cloudwatch_names()}


def values(count: int, name: str = "loss", of_values: int = 1, dimensions: int = 2) -> list[Values]:
    texts = tuple((f"dimension {number}", "é" * 100) for number in range(dimensions))
    return [_filled(Values(f"{name} {index}", "None", texts), of_values) for index in range(count)]


def _filled(each: Values, count: int) -> Values:
    each.counts.update(-1.2345678901234567e-100 * number for number in range(1, count + 1))
    return each


def request_bytes(batch: list[dict[str, Any]]) -> int:
    """The size of the request that botocore makes of the batch, before it compresses it."""
    client = boto3.client("cloudwatch", region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="b")
    model = client.meta.service_model.operation_model("PutMetricData")
    request = client._serializer.serialize_to_request({"Namespace": "n", "MetricData": batch}, model)
    body = request["body"]
    if isinstance(body, dict):  # the query protocol
        from urllib.parse import urlencode

        return len(urlencode(body))
    return len(body)


@pytest.mark.parametrize(("count", "of_values", "dimensions"), [(2500, 1, 0), (2500, 1, 30), (1200, 150, 3)])
def test_no_request_is_larger_than_cloudwatch_takes(count: int, of_values: int, dimensions: int) -> None:
    data = [cloudwatch.datum(each, STAMP) for each in values(count, of_values=of_values, dimensions=dimensions)]
    parts = list(cloudwatch.batches(data))
    assert [each for part in parts for each in part] == data
    assert max(map(len, parts)) <= 1000
    assert max(map(request_bytes, parts)) <= 1_000_000
    assert len(parts) < count / 4, "a request for each metric would be slow and dear"


def test_many_values_become_their_sum_and_bounds() -> None:
    (few,) = values(1, of_values=150)
    (many,) = values(1, of_values=151)
    assert len(cloudwatch.datum(few, STAMP)["Values"]) == 150
    statistics = cloudwatch.datum(many, STAMP)["StatisticValues"]
    assert statistics["SampleCount"] == 151
    assert statistics["Sum"] == pytest.approx(sum(many.counts))
    assert (statistics["Minimum"], statistics["Maximum"]) == (min(many.counts), max(many.counts))


def test_what_cloudwatch_would_refuse_is_left_out(place: Place) -> None:
    collected = Collected({}, False, place)
    bad = {"nan": math.nan, "inf": -math.inf, "huge": 2.0**361, "good": 2.0**360, "naïve\n": 1.0}
    collected.add([Record(1.0, 1, bad), Record(1.0, 1, {f"loss_{step}": 1.0 for step in range(1000)})])
    names = [each.name for each in collected.take()]
    assert names[:2] == ["good", "na_ve_"]
    assert len(names) == MOST_NAMES - 3
    assert collected.take() == []


def test_requests_come_once_in_an_interval(place: Place) -> None:
    class Target:
        sent: list[list[Values]] = []

        def send(self, values: list[Values], at: float) -> None:
            self.sent.append(values)

        def close(self) -> None:
            pass

    target: Any = Target()
    interval = cloudwatch.Interval(Collected({}, False, place), target, 1000.0)
    for step in range(100):
        interval.write([Record(1.0, step, {"loss": 0.5})])
    assert target.sent == []
    interval.close(None)
    ((loss,),) = target.sent
    assert loss.counts == {0.5: 100}


@pytest.mark.slow
def test_lines_for_the_agent_are_within_the_formats_limits(runner: Runner, tmp_path: Path) -> None:
    folder = tmp_path / "emf"
    folder.mkdir()
    runner.lone_function("train", TRAIN)
    options = {"namespace": "slurmopt", "emf": str(folder), "dimensions": {"Team": "vision"}}
    assert runner.run(1, *sinks(cloudwatch=options), "--function", "train.main") == 0
    (file,) = folder.iterdir()
    (document,) = map(json.loads, file.read_text().splitlines())
    (directive,) = document["_aws"]["CloudWatchMetrics"]
    assert directive["Namespace"] == "slurmopt"
    assert directive["Dimensions"] == [["Team"]]
    assert document["Team"] == "vision"
    assert sorted(document["loss"]) == pytest.approx(sorted(1 / step for step in range(1, 101)))

    many = list(documents(values(220, of_values=300), "slurmopt", 0.0))
    assert sum(len(each["_aws"]["CloudWatchMetrics"][0]["Metrics"]) for each in many) == 220
    for each in many:
        (directive,) = each["_aws"]["CloudWatchMetrics"]
        assert len(directive["Metrics"]) <= 100
        assert all(len(each[metric["Name"]]) <= 100 for metric in directive["Metrics"])
        assert len(json.dumps(each)) < 256 * 1024


def test_a_metric_named_like_a_field_of_the_line_replaces_none(place: Place) -> None:
    collected = Collected({"Team": "vision"}, False, place)
    collected.add([Record(1.0, 1, {"_aws": 1.0, "Team": 2.0})])
    (document,) = documents(collected.take(), "slurmopt", 0.0)
    assert document["_aws"]["CloudWatchMetrics"][0]["Namespace"] == "slurmopt"
    assert (document["Team"], document["Team_"], document["_aws_"]) == ("vision", [2.0], [1.0])


def test_dashboard_and_alarms_name_only_what_is_sent(server: str) -> None:
    """And a server of CloudWatch's API takes them."""
    dimensions = {"Experiment": "gpt"}
    widgets = exported.dashboard("slurmopt", dimensions, "us-east-1")["widgets"]
    metrics = [metric for widget in widgets for metric in widget["properties"]["metrics"]]
    assert all(metric[0] == "slurmopt" and metric[2:] == ["Experiment", "gpt"] for metric in metrics)
    alarms = exported.alarms("slurmopt", dimensions)
    named = {metric[1] for metric in metrics} | {alarm["MetricName"] for alarm in alarms}
    assert named <= set(export_names.cloudwatch_names())
    client = boto3.client(
        "cloudwatch", endpoint_url=server, region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="b"
    )
    client.put_dashboard(DashboardName="test", DashboardBody=json.dumps({"widgets": widgets}))
    for alarm in alarms:
        client.put_metric_alarm(**alarm)
    assert len(client.describe_alarms()["MetricAlarms"]) == len(alarms)
