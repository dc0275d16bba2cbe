"""Who talks to whom while links are measured: a round-robin tournament, so that nobody is in two pairs at a time."""

from __future__ import annotations

MOST_ROUNDS = 32
"""More endpoints than this have no time for all pairs: each then meets this many others, evenly spread."""

Pairs = list[tuple[int, int]]


def rounds(count: int, most: int = MOST_ROUNDS) -> list[Pairs]:
    """The rounds for `count` endpoints 0, 1, …: in each, every endpoint is in one pair at most, and over all of them
    each pair meets once, by the circle method. With more than `most` rounds, an even choice of them."""
    if count < 2:
        return []
    size = count + count % 2
    total = size - 1
    chosen = range(total) if total <= most else sorted({at * total // most for at in range(most)})
    return [_round(number, size, count) for number in chosen]


def _round(number: int, size: int, count: int) -> Pairs:
    circle = [(number + at) % (size - 1) for at in range(size - 1)]
    found = [(size - 1, circle[0])]
    found += [(circle[at], circle[-at]) for at in range(1, size // 2)]
    return sorted((min(pair), max(pair)) for pair in found if max(pair) < count)
