"""The latest values of a node, for Prometheus, which comes and asks."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, Sequence

from slurmopt.job.sinks.prometheus.exposition import Line
from slurmopt.job.sinks.record import Place, Record
from slurmopt.run_folder.series.export_names import RUN_INFO, TRAINING_METRIC, TRAINING_STEP, UPDATED, sample

MOST_NAMES = 200
"""Names of `progress` that are exposed: each is a series that Prometheus keeps."""


class Latest:
    """Written by the sink's thread, read by that of the HTTP server too."""

    def __init__(self, place: Place, slot: int) -> None:
        self._lock = threading.Lock()
        self._common = {"node": place.node, "slot": str(slot)}
        self._info = _info(place)
        self._step: int | None = None
        self._metrics: dict[str, float] = {}
        self._row: Mapping[str, float] = {}

    def take(self, records: Sequence[Record]) -> None:
        """Keeps the last value of each metric, and the last row."""
        with self._lock:
            for record in records:
                if record.hardware:
                    self._row = record.values
                else:
                    self._step = record.step if record.step is not None else self._step
                    self._metrics.update(_known(record.values, self._metrics))

    def lines(self) -> list[Line]:
        """All series of this node, with their values."""
        with self._lock:
            step, metrics, row = self._step, dict(self._metrics), self._row
        lines = [
            Line(RUN_INFO, {**self._common, **self._info}, 1.0),
            Line(UPDATED, self._common, round(time.time(), 3)),
        ]
        if step is not None:
            lines.append(Line(TRAINING_STEP, self._common, float(step)))
        lines += [Line(TRAINING_METRIC, {**self._common, "name": name}, value) for name, value in metrics.items()]
        return [*lines, *self._of_row(row)]

    def _of_row(self, row: Mapping[str, float]) -> Iterable[Line]:
        for column, value in row.items():
            found = sample(column)
            if found is not None:
                yield Line(found.measurement, {**self._common, **found.labels}, value * found.measurement.scale)


def _known(values: Mapping[str, float], known: Mapping[str, float]) -> dict[str, float]:
    new = [name for name in values if name not in known][: max(0, MOST_NAMES - len(known))]
    return {name: value for name, value in values.items() if name in known or name in new}


def _info(place: Place) -> dict[str, str]:
    """The labels that join a run's series with the run: only here, so that a new job makes one new series."""
    environ = place.environ
    array = environ.get("SLURM_ARRAY_JOB_ID")
    job = f"{array}_{environ.get('SLURM_ARRAY_TASK_ID')}" if array else environ.get("SLURM_JOB_ID", "")
    user = environ.get("SLURM_JOB_USER") or environ.get("USER", "")
    return {
        "run": place.run,
        "experiment": place.folder.name,
        "job": job,
        "user": user,
        "attempt": str(place.attempt),
    }
