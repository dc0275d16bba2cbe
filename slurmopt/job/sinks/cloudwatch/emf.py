"""Writes CloudWatch's embedded metric format: lines of JSON that the CloudWatch agent sends as logs and metrics."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from slurmopt.job.sinks.cloudwatch.collected import Dimensions, Values
from slurmopt.job.sinks.record import Place, SinkError, Unusable
from slurmopt.run_folder.access.files import open_append
from slurmopt.run_folder.layout import folder_name

MOST_METRICS = 50
"""In a line. The format takes 100, and 256 KB."""
MOST_VALUES = 100
_AWS = "_aws"
"""The field of a line that declares its metrics. A metric with this name, or a dimension's, gets a `_` behind it."""
LARGEST_FILE = 64 << 20
"""Bytes; the file then becomes NAME.1."""


class EmfFile:
    """The file of this node."""

    def __init__(self, folder: str, namespace: str, place: Place) -> None:
        path = Path(folder).expanduser()
        if not path.is_absolute():
            raise Unusable(f"metrics.cloudwatch.emf: {folder!r} is no absolute path")
        run = f"{place.folder.name}-{place.folder.id}"
        self.path = path / f"slurmopt-{folder_name(run)}-{folder_name(place.node)}.log"
        self._namespace = namespace

    def send(self, values: Sequence[Values], at: float) -> None:
        """Appends the values of an interval. Raises SinkError."""
        data = "".join(json.dumps(each) + "\n" for each in documents(values, self._namespace, at)).encode()
        try:
            descriptor = open_append(self.path)
            try:
                size = os.fstat(descriptor).st_size
                if os.write(descriptor, data) < len(data):
                    os.ftruncate(descriptor, size)
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            finally:
                os.close(descriptor)
            if size > LARGEST_FILE:
                os.replace(self.path, self.path.with_suffix(".log.1"))
        except OSError as error:
            raise SinkError(f"{self.path} cannot be written: {error.strerror}") from error

    def close(self) -> None:
        """Leaves the file to the agent, which may not have read all of it."""


def documents(values: Iterable[Values], namespace: str, at: float) -> Iterator[dict[str, Any]]:
    """A document for each combination of dimensions, or several where it has many metrics."""
    groups: dict[Dimensions, list[Values]] = {}
    for each in values:
        groups.setdefault(each.dimensions, []).append(each)
    for dimensions, group in groups.items():
        for start in range(0, len(group), MOST_METRICS):
            yield _document(dimensions, group[start : start + MOST_METRICS], namespace, at)


def _document(dimensions: Dimensions, group: list[Values], namespace: str, at: float) -> dict[str, Any]:
    taken = {_AWS, *(name for name, _ in dimensions)}
    names = [f"{each.name}_" if each.name in taken else each.name for each in group]
    directive = {
        "Namespace": namespace,
        "Dimensions": [[name for name, _ in dimensions]],
        "Metrics": [{"Name": name, "Unit": each.unit} for name, each in zip(names, group, strict=True)],
    }
    head = {_AWS: {"Timestamp": round(at * 1000), "CloudWatchMetrics": [directive]}, **dict(dimensions)}
    return {**head, **{name: _few(each) for name, each in zip(names, group, strict=True)}}


def _few(values: Values) -> list[float]:
    """The values, or as many of them, evenly spaced by rank, as the format takes."""
    ordered = sorted(values.counts.elements())
    if len(ordered) <= MOST_VALUES:
        return ordered
    last = len(ordered) - 1
    return [ordered[round(index * last / (MOST_VALUES - 1))] for index in range(MOST_VALUES)]
