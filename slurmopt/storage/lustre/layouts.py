"""Stripe layouts by file size and count, with their reasons. Pure: nothing is asked and nothing is set."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from slurmopt.units import human_bytes

_MIB, _GIB = 1024**2, 1024**3
_COMPONENTS = (
    (100 * _MIB, "100M", 1),
    (_GIB, "1G", 4),
    (10 * _GIB, "10G", 8),
    (100 * _GIB, "100G", 16),
    (None, "-1", 32),
)
"""The end of each component (bytes, and as lfs writes it) and its largest stripe count: the progressive layout of the
FSx for Lustre guide, with a step at 1 GiB, below which more than 4 stripes cost more in round trips than they gain."""
_SMALL = _MIB
_MANY_SMALL = 100_000
"""Files below 1 MiB that are too many for one folder, by the FSx guide."""
_FILES_OF_AN_OST = 4
"""Files for each OST, from which on they spread evenly by themselves."""

Kind = Literal["datasets", "checkpoints", "logs"]
KINDS: tuple[str, ...] = get_args(Kind)


@dataclass(frozen=True)
class Plan:
    """The layout for a kind of data."""

    options: tuple[str, ...]
    """Options of `lfs setstripe`."""
    reason: str
    advice: str | None = None
    """What would help more than a layout."""


def plan(kind: Kind, file_bytes: int, files: int, osts: int) -> Plan:
    """The layout for `files` files of `file_bytes` each, on `osts` OSTs.

    Datasets are read by all nodes at once, checkpoints are written by all ranks at once, a file each, and logs are
    appended to.
    """
    size = f"{_count(files, 'file')} of {human_bytes(file_bytes)} on {_count(osts, 'OST')}"
    if kind == "logs":
        reason = f"{size}: appending to a file takes all components of a progressive layout at once, so one OST each"
        return Plan(("-c", "1"), reason)
    if osts <= 1:
        return Plan(("-c", "1"), f"{size}: there is one OST")
    if file_bytes < _SMALL:
        advice = None
        if files >= _MANY_SMALL:
            advice = "pack them into shards of 100 MB to 1 GB (tar, WebDataset): each file costs several round trips"
        return Plan(("-c", "1"), f"{size}: below 1 MiB a second stripe is only a further round trip", advice)
    if kind == "checkpoints":
        return _checkpoints(file_bytes, files, osts, size)
    return _datasets(file_bytes, files, osts, size)


def layout(file_bytes: int, files: int, osts: int) -> list[str]:
    """Options of `lfs setstripe` for `files` files of `file_bytes` each, written concurrently, on `osts` OSTs.

    A file gets at most its share of the OSTs (osts / files), so that ranks do not share an OST. Large files get a
    progressive layout, so that small files beside them (the manifest) still use one OST and one round trip.
    """
    return _progressive(file_bytes, max(1, osts // max(1, files)))


def _checkpoints(file_bytes: int, files: int, osts: int, size: str) -> Plan:
    options = tuple(layout(file_bytes, files, osts))
    share = max(1, osts // max(1, files))
    if files >= osts:
        return Plan(options, f"{size}: ranks write at once, and there is no more than one OST for each file")
    return Plan(options, f"{size}: ranks write at once, and {_count(share, 'OST')} is the share of each file")


def _datasets(file_bytes: int, files: int, osts: int, size: str) -> Plan:
    if files >= _FILES_OF_AN_OST * osts and file_bytes <= _GIB:
        return Plan(("-c", "1"), f"{size}: so many files use all OSTs with one each, at the fewest round trips")
    options = _progressive(file_bytes, osts)
    if options[-1] == "32" or (file_bytes > 10 * _GIB and int(options[-1]) >= min(osts, 16)):
        options[-1] = "-1"  # all OSTs: many nodes read the same file
    reason = "all nodes read the same files, so each is on as many OSTs as its size is worth; its beginning is on one"
    return Plan(tuple(options), f"{size}: {reason if '-E' in options else 'of this size, one OST is enough'}")


def _progressive(file_bytes: int, most: int) -> list[str]:
    """A component for each step up to `file_bytes`, with at most `most` stripes."""
    components: list[tuple[str, int]] = []
    for end, word, widest in _COMPONENTS:
        last = end is None or file_bytes <= end
        count = min(widest, most)
        if components and components[-1][1] == count:
            components.pop()
        components.append(("-1" if last else word, count))
        if last:
            break
    if len(components) == 1:
        return ["-c", str(components[0][1])]
    return [option for word, count in components for option in ("-E", word, "-c", str(count))]


def _count(number: int, what: str) -> str:
    return f"1 {what}" if number == 1 else f"{number:,} {what}s"
