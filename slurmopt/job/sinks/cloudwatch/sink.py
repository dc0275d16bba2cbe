"""Sends metrics to Amazon CloudWatch: by PutMetricData, or as lines that the CloudWatch agent reads.

The limits of PutMetricData, which are ours to keep: 1,000 metrics and 1 MB a request, 150 values a metric (more become
sum, minimum and maximum), 30 dimensions, no NaN or infinity, at most 2^360.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Iterator, Sequence
from typing import Any

from slurmopt.config.metrics import CloudWatch
from slurmopt.errors import one_line
from slurmopt.job.sinks.cloudwatch.collected import Collected, Values
from slurmopt.job.sinks.cloudwatch.emf import EmfFile
from slurmopt.job.sinks.record import Place, Record, Sink, SinkError, Unusable
from slurmopt.units import seconds

MOST_METRICS = 1000
MOST_VALUES = 150
MOST_BYTES = 900_000
"""Of a request before compression, by an estimate that is never too small."""
_OF_A_METRIC, _OF_A_DIMENSION, _OF_A_VALUE = 400, 100, 150
"""Bytes of a metric in a request in the query protocol, without its texts; of one of its dimensions, its values."""
_CONNECT_SECONDS, _READ_SECONDS, _ATTEMPTS = 3, 5, 2


def open_sink(options: CloudWatch, place: Place) -> Sink:
    """The sink of this node. Raises SinkError."""
    key = "metrics.cloudwatch"
    dimensions = {
        name: place.filled(value, f"{key}.dimensions.{name}") for name, value in options.dimensions.items()
    } or {"Experiment": place.folder.name}
    collected = Collected(dimensions, options.gpu, place)
    namespace, every = options.namespace or "", seconds(options.every)
    if options.emf is not None:
        return Interval(collected, EmfFile(place.filled(options.emf, f"{key}.emf"), namespace, place), every)
    filled = {
        name: None if (text := getattr(options, name)) is None else place.filled(text, f"{key}.{name}")
        for name in ("region", "endpoint")
    }
    return Interval(collected, Requests(namespace, filled["region"], filled["endpoint"]), every)


class Interval:
    """Sends what was collected once in an interval."""

    def __init__(self, collected: Collected, target: Requests | EmfFile, every: float) -> None:
        self._collected, self._target, self._every = collected, target, every
        self._sent = time.monotonic()

    def write(self, records: Sequence[Record]) -> None:
        self._collected.add(records)
        if time.monotonic() - self._sent >= self._every:
            self._send()

    def close(self, outcome: str | None) -> None:
        self._send()
        self._target.close()

    def _send(self) -> None:
        self._sent = time.monotonic()
        if values := self._collected.take():
            self._target.send(values, time.time())


class Requests:
    """The API, by boto3."""

    def __init__(self, namespace: str, region: str | None, endpoint: str | None) -> None:
        try:
            import boto3
            from botocore.config import Config
            from botocore.exceptions import BotoCoreError, ClientError
        except ImportError as error:
            raise Unusable("boto3 is not installed for this Python: pip install 'slurmopt[cloudwatch]'") from error
        self._errors = (BotoCoreError, ClientError)
        self._namespace = namespace
        config = Config(
            connect_timeout=_CONNECT_SECONDS,
            read_timeout=_READ_SECONDS,
            retries={"total_max_attempts": _ATTEMPTS, "mode": "standard"},
        )
        try:
            self._client = boto3.client("cloudwatch", region_name=region, endpoint_url=endpoint, config=config)
        except (*self._errors, ValueError) as error:
            raise Unusable(one_line(str(error))) from error

    def send(self, values: Sequence[Values], at: float) -> None:
        """Sends the values of an interval. Raises SinkError once a request fails; the rest is lost."""
        stamp = datetime.datetime.fromtimestamp(at, datetime.timezone.utc)
        for batch in batches([datum(each, stamp) for each in values]):
            try:
                self._client.put_metric_data(Namespace=self._namespace, MetricData=batch)
            except self._errors as error:
                raise SinkError(one_line(str(error))) from error

    def close(self) -> None:
        """Closes the connections."""
        self._client.close()


def datum(values: Values, stamp: datetime.datetime) -> dict[str, Any]:
    """A `MetricDatum`: the values with their counts, or where those are too many, what mean and bounds come from."""
    common = {
        "MetricName": values.name,
        "Dimensions": [{"Name": name, "Value": value} for name, value in values.dimensions],
        "Timestamp": stamp,
        "Unit": values.unit,
    }
    counts = values.counts
    if len(counts) <= MOST_VALUES:
        return {**common, "Values": list(counts), "Counts": [float(count) for count in counts.values()]}
    statistics = {
        "SampleCount": float(counts.total()),
        "Sum": sum(value * count for value, count in counts.items()),
        "Minimum": min(counts),
        "Maximum": max(counts),
    }
    return {**common, "StatisticValues": statistics}


def batches(data: Sequence[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """The data in parts that one request may hold."""
    batch: list[dict[str, Any]] = []
    size = 0
    for each in data:
        own = _size(each)
        if batch and (len(batch) == MOST_METRICS or size + own > MOST_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(each)
        size += own
    if batch:
        yield batch


def _size(data: dict[str, Any]) -> int:
    """At most so many bytes in a request. A character of a text may become nine (%E2%82%AC)."""
    texts = [data["MetricName"], *(text for each in data["Dimensions"] for text in each.values())]
    of_texts = 9 * sum(map(len, texts))
    return (
        of_texts + _OF_A_METRIC + _OF_A_DIMENSION * len(data["Dimensions"]) + _OF_A_VALUE * len(data.get("Values", ()))
    )
