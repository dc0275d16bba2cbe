"""Sends metrics to MLflow by its own client: one run there for all attempts."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Sequence
from typing import Any

from slurmopt.config.metrics import Mlflow
from slurmopt.job.sinks.record import Place, Record, Unusable
from slurmopt.run_folder.outcome import FINISHED, KILLED, REQUEUE

_TAG = "slurmopt.run"
_MOST_METRICS = 1000
"""In a request."""
_DEFAULTS = {"MLFLOW_HTTP_REQUEST_TIMEOUT": "10", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1"}
"""The client's own: 120 seconds and seven retries."""
_STATUS = {FINISHED: "FINISHED", KILLED: "KILLED"}
_NOT_IN_A_NAME = re.compile(r"[^\w.\- :/]+", re.ASCII)


def open_sink(options: Mlflow, place: Place) -> MlflowRun:
    """Finds the run there, or makes it. Raises Unusable, and what the client raises."""
    for name, value in _DEFAULTS.items():
        os.environ.setdefault(name, value)
    try:
        from mlflow.tracking import MlflowClient
    except ImportError as error:
        raise Unusable("mlflow is not installed for this Python: pip install 'slurmopt[mlflow]'") from error
    client = MlflowClient(tracking_uri=place.filled(options.tracking_uri or "", "metrics.mlflow.tracking_uri"))
    name = place.folder.name if options.experiment is None else options.experiment
    experiment = _experiment(client, place.filled(name, "metrics.mlflow.experiment"))
    return MlflowRun(client, _run(client, experiment, f"{place.folder.name}/{place.folder.id}"))


def _experiment(client: Any, name: str) -> str:
    found = client.get_experiment_by_name(name)
    return str(client.create_experiment(name) if found is None else found.experiment_id)


def _run(client: Any, experiment: str, run: str) -> str:
    """The run that an earlier attempt made, told by a tag."""
    found = client.search_runs([experiment], filter_string=f"tags.`{_TAG}` = '{run}'", max_results=1)
    if not found:
        return str(client.create_run(experiment, tags={_TAG: run, "mlflow.runName": run}).info.run_id)
    client.update_run(found[0].info.run_id, status="RUNNING")
    return str(found[0].info.run_id)


class MlflowRun:
    """The run there."""

    def __init__(self, client: Any, run: str) -> None:
        from mlflow.entities import Metric

        self._client, self._run, self._metric = client, run, Metric

    def write(self, records: Sequence[Record]) -> None:
        metrics = [
            self._metric(_name(name, record), value, round(record.time * 1000), record.step or 0)
            for record in records
            for name, value in record.values.items()
            if math.isfinite(value)
        ]
        for start in range(0, len(metrics), _MOST_METRICS):
            self._client.log_batch(self._run, metrics=metrics[start : start + _MOST_METRICS])

    def close(self, outcome: str | None) -> None:
        """A run that comes back goes on there; one that was killed without a word may."""
        if outcome is not None and outcome != REQUEUE:
            self._client.set_terminated(self._run, _STATUS.get(outcome, "FAILED"))


def _name(name: str, record: Record) -> str:
    return _NOT_IN_A_NAME.sub("_", f"hardware/{name}" if record.hardware else name)[:250]
