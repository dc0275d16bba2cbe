"""Arithmetic on spans of time: sorted lists of (start, end) that do not touch each other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

Span = tuple[float, float]


def union(spans: Iterable[Span]) -> list[Span]:
    """The time that any of them covers."""
    joined: list[Span] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        elif end > start:
            joined.append((start, end))
    return joined


def intersection(first: Sequence[Span], second: Sequence[Span]) -> list[Span]:
    """The time that both cover. Both are unions."""
    common, a, b = [], 0, 0
    while a < len(first) and b < len(second):
        start, end = max(first[a][0], second[b][0]), min(first[a][1], second[b][1])
        if start < end:
            common.append((start, end))
        if first[a][1] < second[b][1]:
            a += 1
        else:
            b += 1
    return common


def without(first: Sequence[Span], second: Sequence[Span]) -> list[Span]:
    """The time that the first covers and the second does not. Both are unions."""
    left, at = [], 0
    for start, end in first:
        while at < len(second) and second[at][1] <= start:
            at += 1
        place, following = start, at
        while following < len(second) and second[following][0] < end:
            if second[following][0] > place:
                left.append((place, second[following][0]))
            place = max(place, second[following][1])
            following += 1
        if place < end:
            left.append((place, end))
    return left


def total(spans: Iterable[Span]) -> float:
    """The length of all of them."""
    return sum(end - start for start, end in spans)
