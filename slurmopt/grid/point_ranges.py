"""Sets of point numbers, written as in Slurm: "0-999,1200"."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import accumulate

_SPAN = re.compile(r"([0-9]{1,12})(?:-([0-9]{1,12}))?")


class Ranges:
    """A sorted set of numbers from 0, stored as spans: a million consecutive numbers take no more memory than one."""

    def __init__(self, spans: Iterable[tuple[int, int]] = ()) -> None:
        """`spans`: (first, last) pairs, both included, in any order; they may overlap."""
        self.spans = _merged(spans)
        self._before = [0, *accumulate(last - first + 1 for first, last in self.spans)]

    @classmethod
    def parse(cls, text: str) -> Ranges:
        """Parses "3,7-9"; "" is the empty set. Raises ValueError for anything else."""
        spans = []
        for part in text.split(",") if text else []:
            match = _SPAN.fullmatch(part.strip())
            if match is None:
                raise ValueError(f"{text[:80]!r} are no numbers; valid: a form such as 3,7-9")
            first, last = int(match[1]), int(match[2] or match[1])
            if last < first:
                raise ValueError(f"{part.strip()!r} ends below its start; did you mean {last}-{first}?")
            spans.append((first, last))
        return cls(spans)

    @classmethod
    def of(cls, numbers: Iterable[int]) -> Ranges:
        """From single numbers. Consecutive ones are joined while reading, so that a million need no million pairs."""
        return cls(_runs(numbers))

    def __str__(self) -> str:
        return ",".join(f"{first}-{last}" if first < last else str(first) for first, last in self.spans)

    def __repr__(self) -> str:
        return f"Ranges.parse({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ranges) and self.spans == other.spans

    def __hash__(self) -> int:
        return hash(tuple(self.spans))

    def __len__(self) -> int:
        return self._before[-1]

    def __iter__(self) -> Iterator[int]:
        for first, last in self.spans:
            yield from range(first, last + 1)

    def __contains__(self, number: int) -> bool:
        at = bisect_right(self.spans, number, key=lambda span: span[0]) - 1
        return at >= 0 and number <= self.spans[at][1]

    def __getitem__(self, position: int) -> int:
        """The number at `position` from 0; IndexError past the end."""
        if not 0 <= position < len(self):
            raise IndexError(position)
        at = bisect_right(self._before, position) - 1
        return self.spans[at][0] + position - self._before[at]

    def position(self, number: int) -> int:
        """Where `number` stands; ValueError where it does not."""
        at = bisect_right(self.spans, number, key=lambda span: span[0]) - 1
        if at < 0 or number > self.spans[at][1]:
            raise ValueError(f"{number} is not among {self}")
        return self._before[at] + number - self.spans[at][0]

    def slice(self, start: int, stop: int) -> Ranges:
        """The numbers at positions `start` to `stop` (not included)."""
        spans = []
        for (first, last), offset in zip(self.spans, self._before, strict=False):
            low, high = max(first, first + start - offset), min(last, first + stop - offset - 1)
            if low <= high:
                spans.append((low, high))
        return Ranges(spans)

    def union(self, other: Ranges) -> Ranges:
        """The numbers in either set."""
        return Ranges([*self.spans, *other.spans])

    def difference(self, other: Ranges) -> Ranges:
        """The numbers that are not in `other`."""
        spans = []
        removed = iter([*other.spans, (float("inf"), float("inf"))])
        cut = next(removed)
        for first, last in self.spans:
            while cut[1] < first:
                cut = next(removed)
            start = first
            while cut[0] <= last:
                if start < cut[0]:
                    spans.append((start, int(cut[0]) - 1))
                start = int(cut[1]) + 1
                if cut[1] > last:
                    break
                cut = next(removed)
            if start <= last:
                spans.append((start, last))
        return Ranges(spans)

    def intersection(self, other: Ranges) -> Ranges:
        """The numbers in both sets."""
        return self.difference(self.difference(other))


def _runs(numbers: Iterable[int]) -> Iterator[tuple[int, int]]:
    iterator = iter(numbers)
    first = last = next(iterator, None)
    if first is None or last is None:
        return
    for number in iterator:
        if number != last + 1:
            yield first, last
            first = number
        last = number
    yield first, last


def _merged(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for first, last in sorted(spans):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], last))
        else:
            merged.append((first, last))
    return merged
