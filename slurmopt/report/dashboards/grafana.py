"""A Grafana dashboard for the names that the sink for Prometheus exposes."""

from __future__ import annotations

from typing import Any

from slurmopt.run_folder.series.export_names import (
    GPU,
    INTERFACE,
    NODE,
    RANK,
    TRAINING_METRIC,
    TRAINING_STEP,
    UPDATED,
    sample,
)

# The file of a killed job may stay where node_exporter reads it; a row of the sampler comes every 5 minutes at least.
_FRESH = f"(time() - {UPDATED.name} < 600)"
_KEYS = "on (instance, node, slot)"
_JOIN = f' * {_KEYS} group_left (run) (slurmopt_run_info{{run=~"$run"}} and {_KEYS} {_FRESH})'
_ACTIVITY = sample("rank0.input.share")
_WIDTH, _HEIGHT, _ACROSS = 12, 8, 2

# Title, Grafana's unit, names, and what tells the lines of a panel apart.
_PANELS: list[tuple[str, str, list[str], str]] = [
    ("Training metrics", "short", [TRAINING_METRIC.name], "{{run}} {{name}}"),
    ("Step", "short", [TRAINING_STEP.name], "{{run}}"),
    ("Steps per second", "short", [RANK["steps"].name], "{{run}} rank {{rank}}"),
    ("What the ranks spend their time on", "percentunit", [_ACTIVITY.measurement.name if _ACTIVITY else ""],
     "{{run}} rank {{rank}} {{activity}}"),
    ("GPU utilization (a kernel runs)", "percentunit", [GPU["util"].name], "{{node}} GPU {{gpu}}"),
    ("Tensor cores active", "percentunit", [GPU["tensor"].name], "{{node}} GPU {{gpu}}"),
    ("Multiprocessors active", "percentunit", [GPU["sm"].name], "{{node}} GPU {{gpu}}"),
    ("GPU memory bandwidth", "percentunit", [GPU["dram"].name], "{{node}} GPU {{gpu}}"),
    ("GPU memory", "bytes", [GPU["memory"].name], "{{node}} GPU {{gpu}}"),
    ("GPU power", "watt", [GPU["power"].name], "{{node}} GPU {{gpu}}"),
    ("GPU temperature", "celsius", [GPU["temperature"].name], "{{node}} GPU {{gpu}}"),
    ("GPU throttled", "percentunit", [GPU["throttle_power"].name], "{{node}} GPU {{gpu}} {{cause}}"),
    ("CPU cores in use", "short", [NODE["cpu"].name], "{{node}}"),
    ("Memory of the step", "bytes", [NODE["memory"].name], "{{node}}"),
    ("Files", "Bps", [NODE["io_read"].name, NODE["io_write"].name], "{{node}} {{__name__}}"),
    ("Network", "Bps", [INTERFACE["rx"].name, INTERFACE["tx"].name], "{{node}} {{kind}} {{device}}"),
]  # fmt: skip


def dashboard() -> dict[str, Any]:
    """The dashboard as Grafana imports it."""
    return {
        "title": "slurmopt",
        "uid": "slurmopt",
        "schemaVersion": 39,
        "tags": ["slurmopt"],
        "time": {"from": "now-3h", "to": "now"},
        "refresh": "30s",
        "templating": {"list": [_data_source(), _run()]},
        "panels": [_panel(index, *panel) for index, panel in enumerate(_PANELS)],
    }


def _data_source() -> dict[str, Any]:
    return {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}


def _run() -> dict[str, Any]:
    query = "label_values(slurmopt_run_info, run)"
    choice = {"multi": True, "includeAll": True, "refresh": 2, "sort": 2}
    return {"name": "run", "label": "Run", "type": "query", "datasource": _source(), "query": query, **choice}


def _source() -> dict[str, str]:
    return {"type": "prometheus", "uid": "${datasource}"}


def _panel(index: int, title: str, unit: str, names: list[str], legend: str) -> dict[str, Any]:
    row, column = divmod(index, _ACROSS)
    targets = [
        {"refId": chr(ord("A") + number), "datasource": _source(), "expr": f"{name}{_JOIN}", "legendFormat": legend}
        for number, name in enumerate(names)
    ]
    return {
        "id": index + 1,
        "type": "timeseries",
        "title": title,
        "datasource": _source(),
        "gridPos": {"x": column * _WIDTH, "y": row * _HEIGHT, "w": _WIDTH, "h": _HEIGHT},
        "fieldConfig": {"defaults": {"unit": unit}, "overrides": []},
        "targets": targets,
    }
