"""The time of a collective by NCCL's own model, by which it chooses among its algorithms and protocols.

time = latency + S / algbw. Latencies and the shares of the bandwidth are those of NCCL's src/graph/tuning.cc, read in
the middle of 2026. NCCL takes the fastest for each size: a tree for small sizes on many nodes, a ring or its switches
(NVLS) for large ones. Its correction of trees of middle sizes is left out.

S is the size in bytes as nccl-tests has it: of all-gather and reduce-scatter the whole, not a rank's part.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from slurmopt.planning.hardware import Cluster

ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER = "all_reduce", "all_gather", "reduce_scatter"
COLLECTIVES = (ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER)
RING, TREE, NVLS, NVLS_TREE = "ring", "tree", "nvls", "nvls-tree"
LL, LL128, SIMPLE = "LL", "LL128", "Simple"
_PROTOCOLS = (LL, LL128, SIMPLE)

_MICRO = 1e-6
_BASE = {TREE: (6.8, 14.0, 8.4), RING: (6.6, 14.0, 8.4)}
_NVLINK = {TREE: (0.6, 1.25, 4.0), RING: (0.6, 1.9, 3.4)}
_PCIE = {TREE: (1.0, 1.9, 4.0), RING: (1.0, 2.5, 5.7)}
_NETWORK = {TREE: (5.0, 8.5, 14.0), RING: (2.7, 4.0, 14.0)}
_NVLS_INSIDE, _NVLS_NETWORK = 25.0, 18.0
"""Microseconds: of a call, of a step inside of a node, of one between nodes; for LL, LL128 and Simple."""
_OVERHEAD = 1.0
"""Microseconds of a message to the network; three times as much with Simple."""
_PLATEAU = 1.4
"""What a ring over nodes with Simple has in addition, as a factor of its latency."""
_SHARE = {LL: 0.5, LL128: 0.92, SIMPLE: 1.0}
_TREE_SHARE = 0.92
_NVLS_SHARE = 5 / 6
_LATEST_PLATEAU = 64
"""Bytes of a rank and channel from which the plateau counts."""


@dataclass(frozen=True)
class Choice:
    """One algorithm with one protocol."""

    algorithm: str
    protocol: str
    seconds: float
    latency: float
    """The seconds of a call without data."""


def fastest(collective: str, size: float, ranks: int, nodes: int, cluster: Cluster) -> Choice:
    """What NCCL would take for `size` bytes over so many ranks on so many nodes."""
    return min(choices(collective, size, ranks, nodes, cluster), key=lambda choice: choice.seconds)


def seconds(collective: str, size: float, ranks: int, nodes: int, cluster: Cluster) -> float:
    """Its time; 0 for one rank."""
    return 0.0 if ranks < 2 else fastest(collective, size, ranks, nodes, cluster).seconds


def choices(collective: str, size: float, ranks: int, nodes: int, cluster: Cluster) -> list[Choice]:
    """All that NCCL chooses from."""
    found = []
    for at, protocol in enumerate(_PROTOCOLS):
        for algorithm in (RING, TREE) if collective == ALL_REDUCE else (RING,):
            latency = _latency(algorithm, at, collective, size, ranks, nodes, cluster)
            rate = _rate(algorithm, protocol, collective, ranks, nodes, cluster)
            found.append(Choice(algorithm, protocol, latency + size / rate, latency))
    found.extend(_of_switches(collective, size, ranks, nodes, cluster))
    return found


def _of_switches(collective: str, size: float, ranks: int, nodes: int, cluster: Cluster) -> list[Choice]:
    inside = cluster.gpu.switched and ranks // nodes <= cluster.domain and ranks > nodes
    if not inside or (nodes > 1 and collective != ALL_REDUCE):
        return []
    if nodes == 1:
        latency, rate, name = _NVLS_INSIDE * _MICRO, cluster.gpu.link, NVLS
    else:
        steps = 2 * math.log2(nodes)
        latency, name = (_NVLS_INSIDE + steps * _NVLS_NETWORK) * _MICRO, NVLS_TREE
        rate = min(cluster.gpu.link, _network(ranks, nodes, cluster) / (1 if nodes == 2 else 2))
    return [Choice(name, SIMPLE, latency + size / (_NVLS_SHARE * rate), latency)]


def _network(ranks: int, nodes: int, cluster: Cluster) -> float:
    """Bytes per second that the ranks of a node have of its network: those of their own adapters."""
    share = min(1.0, ranks / nodes / cluster.gpus_per_node)
    return cluster.network * share


def _is_linked(ranks: int, nodes: int, cluster: Cluster) -> bool:
    return cluster.gpu.domain > 1 and ranks <= nodes * cluster.domain


def _latency(algorithm: str, at: int, collective: str, size: float, ranks: int, nodes: int, cluster: Cluster) -> float:
    linked = _is_linked(ranks, nodes, cluster)
    step, hop = (_NVLINK if linked else _PCIE)[algorithm][at], _NETWORK[algorithm][at]
    base, simple = _BASE[algorithm][at], at == _PROTOCOLS.index(SIMPLE)
    if algorithm == TREE:
        return (base + 2 * ((ranks / nodes - 1) * step + math.log2(nodes) * hop)) * _MICRO
    once = 2 if collective == ALL_REDUCE else 1
    steps, between = once * (ranks - 1), once * (nodes - 1)
    overhead = _OVERHEAD * (3 if simple else 1) if nodes > 1 else 0.0
    found = base + (steps - between) * max(step, overhead) + between * (hop + overhead)
    plateau = simple and nodes > 1 and collective == ALL_REDUCE and size / ranks >= _LATEST_PLATEAU
    return found * (_PLATEAU if plateau else 1.0) * _MICRO


def _rate(algorithm: str, protocol: str, collective: str, ranks: int, nodes: int, cluster: Cluster) -> float:
    """algbw in bytes per second of an infinite size."""
    rate = cluster.gpu.link if nodes == 1 else min(cluster.gpu.link, _network(ranks, nodes, cluster))
    if ranks > nodes and cluster.domain == 1:
        rate = min(rate, cluster.gpu.link)
    rate *= _SHARE[protocol]
    if algorithm == TREE:
        return rate * _TREE_SHARE / 2
    return rate * ranks / ((2 if collective == ALL_REDUCE else 1) * (ranks - 1))
