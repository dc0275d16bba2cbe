"""Finds the slow link, or the slow node, among links that were measured one by one.

Of each link the logarithms of its latency and of its time per byte are compared with the median of the links, in units
of their median absolute deviation (MAD), both taken without the slowest links: as many as one node has, so that one bad
node, which has half of the links or more in a small job, does not move them. A node is slow if its links are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from math import log
from statistics import median

_NORMAL = 1.4826
"""MAD → standard deviation of a normal distribution."""
_DEVIATIONS = 3.5
_LEAST = {"latency": 0.2, "bandwidth": 0.12}
"""The smallest deviation, as a logarithm: links that are all alike within a few percent have no outlier below 2.0 times
the latency, or 1.5 times the time per byte."""
_OF_A_NODE = 0.8
"""The share of its links that must be slow for a node to be slow."""


@dataclass(frozen=True)
class Link:
    """What was measured between two endpoints: nodes, or the ranks of one node."""

    first: str
    second: str
    latency: float
    """Seconds of an exchange of eight bytes."""
    bandwidth: float
    """Bytes per second in each direction while both send."""
    size: int = 0
    """Bytes of the exchange that gave the bandwidth."""

    @property
    def name(self) -> str:
        return f"{self.first} ↔ {self.second}"


@dataclass(frozen=True)
class Outlier:
    """A slow link, or a slow node."""

    kind: str
    """`link` or `node`."""
    name: str
    """`node1 ↔ node2`, or `node1`."""
    measure: str
    """`latency` (seconds) or `bandwidth` (bytes per second)."""
    value: float
    """Of a node the median of its links."""
    usual: float
    """The median of the links that are not slow."""
    links: int
    """How many slow links this stands for."""

    @property
    def factor(self) -> float:
        """How many times slower than usual."""
        return self.value / self.usual if self.measure == "latency" else self.usual / self.value


def outliers(links: Sequence[Link]) -> list[Outlier]:
    """The slow nodes, then the slow links that no slow node explains; the slowest first. Fewer than three links give
    nothing to compare with."""
    if len(links) < 3:
        return []
    found = [*_slow(links, "latency"), *_slow(links, "bandwidth")]
    return sorted(found, key=lambda one: (one.kind != "node", -one.factor))


def _slow(links: Sequence[Link], measure: str) -> list[Outlier]:
    usable = [link for link in links if getattr(link, measure) > 0]
    if len(usable) < 3:
        return []
    costs = [log(_cost(link, measure)) for link in usable]
    usual, limit = _usual(costs, _most_links(usable), _LEAST[measure])
    slow = [link for link, cost in zip(usable, costs, strict=True) if cost - usual > limit]
    others = [link for link, cost in zip(usable, costs, strict=True) if cost - usual <= limit]
    normal = median(getattr(link, measure) for link in others or usable)
    nodes = _slow_nodes(usable, slow)
    left = [link for link in slow if link.first not in nodes and link.second not in nodes]
    of_nodes = [_of_node(name, its, measure, normal) for name, its in nodes.items()]
    return of_nodes + [Outlier("link", link.name, measure, getattr(link, measure), normal, 1) for link in left]


def _cost(link: Link, measure: str) -> float:
    return link.latency if measure == "latency" else 1 / link.bandwidth


def _most_links(links: Sequence[Link]) -> int:
    return max(len(its) for its in _by_node(links).values())


def _by_node(links: Sequence[Link]) -> Mapping[str, list[Link]]:
    found: dict[str, list[Link]] = {}
    for link in links:
        found.setdefault(link.first, []).append(link)
        found.setdefault(link.second, []).append(link)
    return found


def _usual(costs: Sequence[float], left_out: int, least: float) -> tuple[float, float]:
    """The median of the costs without the `left_out` largest, and how far above it is too far."""
    kept = sorted(costs)[: max(1, len(costs) - left_out)]
    middle = median(kept)
    spread = _NORMAL * median(abs(cost - middle) for cost in kept)
    return middle, _DEVIATIONS * max(spread, least)


def _slow_nodes(links: Sequence[Link], slow: Sequence[Link]) -> dict[str, list[Link]]:
    """The nodes with at least two slow links that are nearly all of theirs; the worst first, and each link belongs to
    one node only: a neighbour of a slow node is not slow for that."""
    nodes: dict[str, list[Link]] = {}
    of_node, slow_of_node = _by_node(links), _by_node(slow)
    worst = [(-len(its), name) for name, its in slow_of_node.items()]
    heapify(worst)
    while worst:
        count, name = heappop(worst)
        own, its = _without(nodes, slow_of_node[name]), _without(nodes, of_node[name])
        if len(own) < -count:  # the others belong to a worse node
            heappush(worst, (-len(own), name))
        elif len(own) < 2 or len(own) < _OF_A_NODE * len(its):
            break
        else:
            nodes[name] = own
    return nodes


def _without(nodes: Mapping[str, object], links: Sequence[Link]) -> list[Link]:
    return [link for link in links if link.first not in nodes and link.second not in nodes]


def _of_node(name: str, its: Sequence[Link], measure: str, usual: float) -> Outlier:
    value = median(getattr(link, measure) for link in its)
    return Outlier("node", name, measure, value, usual, len(its))
