"""A recording beside an earlier one: the same collectives, sizes and links."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

from slurmopt.collectives.recording import Recording, Row

SLOWER = 0.9
"""Below this share of the earlier bus bandwidth, a collective is called slower."""
_SLOWER_LINK = 0.67


@dataclass(frozen=True)
class Change:
    """One row, or one link, now and earlier."""

    name: str
    size: int
    now: float
    """GB/s: busbw of a row, the bandwidth of a link."""
    earlier: float

    @property
    def ratio(self) -> float:
        return self.now / self.earlier


@dataclass(frozen=True)
class Comparison:
    """What is the same size, and what it says."""

    rows: list[Change]
    links: list[Change]
    remarks: list[str]
    """Why the two can hardly be compared, or what only one of them has."""

    @property
    def slower(self) -> list[str]:
        """The collectives whose median ratio is low, and the links."""
        return [*self._slower_collectives(), *self._slower_links()]

    def _slower_collectives(self) -> Iterator[str]:
        for name in dict.fromkeys(row.name for row in self.rows):
            ratio = median(row.ratio for row in self.rows if row.name == name)
            if ratio < SLOWER:
                yield f"{name} has {ratio:.0%} of its earlier bus bandwidth (median over its sizes)"

    def _slower_links(self) -> Iterator[str]:
        for link in self.links:
            if link.ratio < _SLOWER_LINK:
                yield f"{link.name} has {link.ratio:.0%} of its earlier bandwidth"


def compared(now: Recording, earlier: Recording) -> Comparison:
    """`now` beside `earlier`."""
    rows = []
    for row in now.rows:
        before = _like(row, earlier)
        if row.seconds > 0 and before is not None and before.busbw > 0:
            rows.append(Change(row.collective, row.size, row.busbw, before.busbw))
    links_before = {frozenset((link.first, link.second)): link for link in earlier.links if link.bandwidth > 0}
    links = [
        Change(link.name, link.size, link.bandwidth / 1e9, links_before[ends].bandwidth / 1e9)
        for link in now.links
        if (ends := frozenset((link.first, link.second))) in links_before
    ]
    return Comparison(rows, links, list(_remarks(now, earlier, len(rows))))


def _like(row: Row, earlier: Recording) -> Row | None:
    """The earlier row of the same collective and size: of the same program where it has one, and in place alike."""
    same = [each for each in earlier.rows if (each.collective, each.size) == (row.collective, row.size)]
    return max(same, key=lambda each: (each.source == row.source, each.in_place == row.in_place), default=None)


def _remarks(now: Recording, earlier: Recording, common: int) -> Iterator[str]:
    for what, one, other in (
        ("ranks", now.world, earlier.world),
        ("nodes", len(now.nodes), len(earlier.nodes)),
        ("backend", now.backend, earlier.backend),
        ("device", now.device, earlier.device),
        ("torch", now.torch, earlier.torch),
    ):
        if one != other:
            yield f"{what}: {one or 'unknown'}, earlier {other or 'unknown'}"
    if common < len(now.rows):
        yield f"{len(now.rows) - common} of {len(now.rows)} rows have no earlier one of the same collective and size"
