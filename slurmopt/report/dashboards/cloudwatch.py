"""A dashboard and alarms of CloudWatch for the metrics that the sink sends there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_WIDTH, _HEIGHT, _ACROSS = 12, 6, 2
_PERIOD = 60
_PANELS: list[tuple[str, list[str], str]] = [
    ("Steps per second", ["StepRate"], "Average"),
    ("Waiting for input, saving (percent of the time)", ["InputShare", "CheckpointShare"], "Average"),
    ("GPU utilization (a kernel runs)", ["GpuUtilization"], "Average"),
    ("GPU activity", ["GpuSmActive", "GpuTensorActive", "GpuDramActive"], "Average"),
    ("GPU memory", ["GpuMemoryUsed"], "Maximum"),
    ("GPU power", ["GpuPower"], "Average"),
    ("GPU temperature", ["GpuTemperature"], "Maximum"),
    ("GPU throttled (percent of the time)", ["GpuThrottledPower", "GpuThrottledThermal"], "Maximum"),
    ("CPU cores", ["NodeCpu"], "Average"),
    ("Memory of the step", ["NodeMemoryUsed"], "Maximum"),
    ("Network", ["NetworkReceive", "NetworkTransmit"], "Average"),
]
"""Title, metrics, statistic."""


def dashboard(namespace: str, dimensions: Mapping[str, str], region: str | None) -> dict[str, Any]:
    """The body of `aws cloudwatch put-dashboard`."""
    return {"widgets": [_widget(index, *panel, namespace, dimensions, region) for index, panel in enumerate(_PANELS)]}


def _widget(
    index: int,
    title: str,
    names: list[str],
    statistic: str,
    namespace: str,
    dimensions: Mapping[str, str],
    region: str | None,
) -> dict[str, Any]:
    row, column = divmod(index, _ACROSS)
    words = [word for pair in dimensions.items() for word in pair]
    properties = {
        "title": title,
        "view": "timeSeries",
        "stat": statistic,
        "period": _PERIOD,
        "metrics": [[namespace, name, *words] for name in names],
        **({} if region is None else {"region": region}),
    }
    place = {"x": column * _WIDTH, "y": row * _HEIGHT, "width": _WIDTH, "height": _HEIGHT}
    return {"type": "metric", **place, "properties": properties}


def alarms(namespace: str, dimensions: Mapping[str, str]) -> list[dict[str, Any]]:
    """What `aws cloudwatch put-metric-alarm --cli-input-json` takes. Missing data is no alarm: a run has ended, or
    waits for its next attempt."""
    who = " ".join(dimensions.values())
    common = {
        "Namespace": namespace,
        "Dimensions": [{"Name": name, "Value": value} for name, value in dimensions.items()],
        "Period": 300,
        "TreatMissingData": "notBreaching",
    }
    return [
        {
            **common,
            "AlarmName": f"slurmopt {who}: no steps",
            "AlarmDescription": "No rank has made a step for half an hour, although measurements come",
            "MetricName": "StepRate",
            "Statistic": "Maximum",
            "EvaluationPeriods": 6,
            "ComparisonOperator": "LessThanOrEqualToThreshold",
            "Threshold": 0.0,
        },
        {
            **common,
            "AlarmName": f"slurmopt {who}: idle GPU",
            "AlarmDescription": "A GPU of the job has run no kernel for half an hour",
            "MetricName": "GpuUtilization",
            "Statistic": "Minimum",
            "EvaluationPeriods": 6,
            "ComparisonOperator": "LessThanOrEqualToThreshold",
            "Threshold": 0.0,
        },
        {
            **common,
            "AlarmName": f"slurmopt {who}: hot GPU",
            "AlarmDescription": "A GPU has been slowed down by heat for more than a tenth of a quarter of an hour",
            "MetricName": "GpuThrottledThermal",
            "Statistic": "Maximum",
            "EvaluationPeriods": 3,
            "ComparisonOperator": "GreaterThanThreshold",
            "Threshold": 10.0,
        },
    ]
