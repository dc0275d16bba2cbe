"""NCCL's model beside what a benchmark measured on the same nodes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from slurmopt.collectives.recording import Recording, Row
from slurmopt.errors import InputError
from slurmopt.planning.calibration import interval
from slurmopt.planning.hardware import Cluster
from slurmopt.planning.ranges import Range
from slurmopt.planning.speed.collectives import COLLECTIVES, seconds

LEAST = 1 << 20
"""Bytes; smaller collectives are no part of a step's time."""


def corrected(cluster: Cluster, recording: Recording, place: str) -> Cluster:
    """The cluster with the 90 % interval of measured by model over all sizes from 1 MiB on. Raises InputError where the
    recording is of no use for it; `place` names it."""
    if recording.backend != "nccl":
        raise InputError(f"{place} is of {recording.backend}, not of nccl: it tells nothing of these collectives")
    ratios = [
        row.seconds / modelled for row in _rows(recording.rows) if (modelled := _model(row, recording, cluster)) > 0
    ]
    found = interval(ratios)
    if found is None:
        names = ", ".join(COLLECTIVES)
        raise InputError(f"{place} has fewer than two sizes from 1 MiB on; valid: a recording of {names}")
    return replace(cluster, slower=Range(found.low, found.high))


def _rows(rows: Iterable[Row]) -> Iterable[Row]:
    return (row for row in rows if row.collective in COLLECTIVES and row.size >= LEAST and row.world > 1)


def _model(row: Row, recording: Recording, cluster: Cluster) -> float:
    nodes = max(1, min(len(recording.nodes), row.world))
    return seconds(row.collective, row.size, row.world, nodes, cluster)
