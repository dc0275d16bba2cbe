"""What a cluster's topology and storage come to: bisection bandwidth, network of a GPU, and the time of a save."""

from __future__ import annotations

from dataclasses import dataclass

from slurmopt.planning.clusters.preset import Preset
from slurmopt.planning.states import checkpoint_bytes

NETWORK, FILE_SYSTEM = "network", "file system"


def bisection(preset: Preset, nodes: int | None = None) -> float:
    """Bytes per second, one way, between the two halves of so many nodes (default: all) where the cut is worst:
    ⌊n/2⌋·B/o, B a node's network, o the oversubscription of the links between leaves; o = 1 where one leaf has all
    nodes. 0 for one node. Dally and Towles, Principles and Practices of Interconnection Networks (2004), section 3.1.2;
    oversubscription as in Al-Fares and others, SIGCOMM 2008, section 2.1."""
    count = preset.nodes if nodes is None else nodes
    return count // 2 * preset.network_of_node() / preset.shared_by(count)


def network_of_gpu(preset: Preset) -> float:
    """Bytes per second of each GPU, one way, to GPUs of other nodes while all of the cluster communicate."""
    return preset.network_of_node() / preset.shared_by(preset.nodes) / preset.node.gpus


@dataclass(frozen=True, kw_only=True)
class Save:
    """A checkpoint of the whole training state."""

    size: float
    """Bytes of all ranks together."""
    seconds: float
    """From the first to the last byte on the shared file system."""
    limit: str
    """What sets the time: NETWORK, between a node and the file system, or FILE_SYSTEM."""
    fits: bool
    """Whether the file system has room for it; True where its capacity is not known."""


def save(preset: Preset, nodes: int, parameters: float, precision: str, optimizer: str) -> Save:
    """C = bytes of a node / min(its network, its share of the file system), when each of `nodes` writes an equal part
    and nobody else writes."""
    size = checkpoint_bytes(parameters, precision, optimizer)
    storage = preset.storage
    share = storage.write / nodes
    limit = NETWORK if storage.of_node < share else FILE_SYSTEM
    fits = storage.capacity is None or size <= storage.capacity
    return Save(size=size, seconds=size / nodes / min(storage.of_node, share), limit=limit, fits=fits)
