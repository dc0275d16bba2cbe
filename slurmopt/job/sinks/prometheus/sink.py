"""Exposes a node's latest values to Prometheus: a file for node_exporter, or an HTTP server of its own."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path

from slurmopt.config.metrics import Prometheus
from slurmopt.job.sinks.prometheus.exposition import exposition
from slurmopt.job.sinks.prometheus.http_server import MetricsServer
from slurmopt.job.sinks.prometheus.latest import Latest
from slurmopt.job.sinks.prometheus.slots import SlotFile
from slurmopt.job.sinks.record import Place, Record, SinkError, Unusable
from slurmopt.run_folder.exposed_files import note_exposed

_EVERY = 5.0
"""Seconds between two files."""
RUN_LABEL = "__slurmopt_run"
"""Tells whose entry it is. Prometheus drops labels of two underscores, so it makes no series anew."""


def open_sink(options: Prometheus, place: Place) -> Exposed:
    """Claims the files and starts the server. Raises SinkError."""
    textfile = _slot_file(options.textfile, "textfile", "prom", place)
    try:
        return Exposed(options, place, textfile, _slot_file(options.file_sd, "file_sd", "json", place))
    except SinkError:
        if textfile is not None:
            textfile.remove()
        raise


def _slot_file(option: str | None, name: str, ending: str, place: Place) -> SlotFile | None:
    if option is None:
        return None
    folder = Path(place.filled(option, f"metrics.prometheus.{name}")).expanduser()
    if not folder.is_absolute():
        raise Unusable(f"metrics.prometheus.{name}: {str(folder)!r} is no absolute path")
    file = SlotFile(folder, place.node, ending)
    note_exposed(place.folder, place.attempt, file.path)
    return file


class Exposed:
    """The latest values of this node, in the file and at the address that are configured."""

    def __init__(self, options: Prometheus, place: Place, textfile: SlotFile | None, target: SlotFile | None) -> None:
        self._textfile, self._target = textfile, target
        claimed = textfile or target
        self._latest = Latest(place, claimed.slot if claimed is not None else 0)
        self._written = float("-inf")
        self._server: MetricsServer | None = None
        if options.http is not None:
            token = place.filled(options.token, "metrics.prometheus.token") if options.token else None
            if token == "":
                raise Unusable("metrics.prometheus.token is empty here")
            self._server = MetricsServer(options.http, token, self._text)
            self._announce(self._server.port, options.http.rpartition(":")[0], place)
        self.write([])

    def write(self, records: Sequence[Record]) -> None:
        self._latest.take(records)
        if self._textfile is not None and time.monotonic() - self._written >= _EVERY:
            self._written = time.monotonic()
            self._textfile.replace(self._text())

    def close(self, outcome: str | None) -> None:
        """Takes away what would be read for ever."""
        if self._server is not None:
            self._server.close()
        for file in (self._target, self._textfile):
            if file is not None:
                file.remove()

    def _text(self) -> str:
        return exposition(self._latest.lines())

    def _announce(self, port: int, host: str, place: Place) -> None:
        """Prometheus finds the port here. The label `instance` does not name it, so that the next attempt, with another
        port, goes on with the same series."""
        if self._target is None:
            return
        address = place.node if host in ("0.0.0.0", "[::]") else host  # noqa: S104 - compared, not bound
        labels = {"instance": f"{place.node}-{self._target.slot}", RUN_LABEL: place.run}
        target = {"targets": [f"{address}:{port}"], "labels": labels}
        self._target.replace(json.dumps([target]) + "\n")
