"""Which storage a training needs: a file system that is large and fast enough, and a class of S3 by lifetime."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

_TIB, _MB = 2.0**40, 1e6
_FIRST_SIZES, _STEP = (1.2, 2.4), 2.4
"""TiB: a file system has 1.2, 2.4, or a multiple of 2.4 (FSx for Lustre user guide, storage capacity)."""
FILE_SYSTEMS = {
    "fsx-persistent-125": 125.0,
    "fsx-scratch-2": 100.0,
    "fsx-persistent-250": 250.0,
    "fsx-persistent-500": 500.0,
    "fsx-persistent-1000": 1000.0,
}
"""MB/s of writing that come with each TiB (FSx for Lustre user guide, performance; SCRATCH_2 reads twice as fast)."""
S3_CLASSES = {"s3-standard": 0, "s3-standard-ia": 30, "s3-onezone-ia": 30, "s3-glacier-ir": 90}
"""Days for which an object is billed at least (S3 user guide, storage classes). Intelligent-Tiering is not among them:
it moves what nobody has read for 30 days, and checkpoints live for days."""
_DAYS_OF_MONTH = 730 / 24
CAPACITY, THROUGHPUT = "capacity", "throughput"


@dataclass(frozen=True, kw_only=True)
class FileSystem:
    """A file system of one type that is enough."""

    name: str
    tib: float
    write: float
    """Bytes per second."""
    limit: str
    """CAPACITY or THROUGHPUT: what sets the size."""
    a_month: float | None
    """What it costs; None where no rate is known."""


@dataclass(frozen=True, kw_only=True)
class Bucket:
    """A class of S3 for objects of a lifetime."""

    name: str
    billed_days: float
    cost: float | None
    """Of keeping the objects over their lifetime; None where no rate is known."""


def file_systems(capacity: float, throughput: float, rates: Mapping[str, float]) -> list[FileSystem]:
    """Of each type the smallest that holds so many bytes and writes so many a second: throughput is bought with
    capacity. `rates`: name → price of a gigabyte (10⁹ bytes) and month. The cheapest first, then the smallest."""
    found = []
    for name, per_tib in FILE_SYSTEMS.items():
        for_room, for_speed = capacity / _TIB, throughput / (per_tib * _MB)
        tib = _rounded_up(max(for_room, for_speed))
        found.append(
            FileSystem(
                name=name,
                tib=tib,
                write=tib * per_tib * _MB,
                limit=CAPACITY if for_room >= for_speed else THROUGHPUT,
                a_month=rates[name] * tib * _TIB / 1e9 if name in rates else None,
            )
        )
    return sorted(found, key=lambda each: (each.a_month is None, each.a_month or 0.0, each.tib))


def buckets(size: float, days: float, rates: Mapping[str, float]) -> list[Bucket]:
    """What keeping so many bytes for so many days costs in each class, the cheapest first; those without a rate last,
    in the order of their least billed time."""
    found = []
    for name, least in S3_CLASSES.items():
        billed = max(days, least)
        cost = rates[name] * size / 1e9 * billed / _DAYS_OF_MONTH if name in rates else None
        found.append(Bucket(name=name, billed_days=billed, cost=cost))
    return sorted(found, key=lambda each: (each.cost is None, each.cost or 0.0))


def class_by_lifetime(days: float) -> str:
    """The class where no rates are known: one whose least billed time the objects outlive. Objects of a single zone
    are lost with it, so that `s3-onezone-ia` is never the answer."""
    if days < S3_CLASSES["s3-standard-ia"]:
        return "s3-standard"
    return "s3-standard-ia" if days < S3_CLASSES["s3-glacier-ir"] else "s3-glacier-ir"


def _rounded_up(tib: float) -> float:
    for size in _FIRST_SIZES:
        if tib <= size:
            return size
    return round(math.ceil(tib / _STEP - 1e-9) * _STEP, 1)
