"""A cluster: its nodes, the network between them, its topology and its storage."""

from __future__ import annotations

from dataclasses import dataclass

from slurmopt.planning.hardware import Cluster, Gpu, cluster

SWITCH, RAILS, FAT_TREE = "switch", "rails", "fat-tree"
TOPOLOGIES = {SWITCH: (1,), RAILS: (1, 2, 3), FAT_TREE: (2, 3)}
"""Each kind, and how many tiers of switches it can have. `switch`: all nodes on one; `rails`: the adapters of the same
number of several nodes on one leaf; `fat-tree`: all adapters of a node on one leaf."""
SIZES = ("small", "medium", "large")
_GBIT = 1e9 / 8


@dataclass(frozen=True, kw_only=True)
class Node:
    """One node."""

    instance: str
    """What it is called where it is bought, such as p5.48xlarge."""
    gpu: Gpu
    gpus: int
    domain: int
    """GPUs of a node that its links (NVLink) join."""


@dataclass(frozen=True, kw_only=True)
class Network:
    """The network of a node, for collectives."""

    kind: str
    """A word of network.kind, such as efa."""
    gbits: float
    """Gbit/s of a node, one way."""
    adapters: int


@dataclass(frozen=True, kw_only=True)
class Topology:
    """How switches join the nodes."""

    kind: str
    tiers: int
    oversubscription: float
    """The bandwidth of a leaf's nodes by that of its links upwards; 1 is non-blocking."""
    leaf_nodes: int | None
    """Nodes that reach each other without passing more than one leaf; None where that is not known."""
    ports: int | None
    """Ports of a switch, of an adapter's rate each; None where that is not known."""

    def endpoints(self) -> float | None:
        """The adapters that so many tiers of such switches can join, 2(k/2)^(tiers - 1) leaves with k·o/(1 + o) ports
        down each; k³/4 for three tiers without oversubscription. Al-Fares and others, SIGCOMM 2008, section 2.2."""
        if self.ports is None or (down := self.ports_down()) is None:
            return None
        return 1.0 * down if self.tiers == 1 else 2 * (self.ports / 2) ** (self.tiers - 1) * down

    def ports_down(self) -> float | None:
        """Ports of a leaf towards nodes."""
        if self.ports is None:
            return None
        return self.ports if self.tiers == 1 else self.ports * self.oversubscription / (1 + self.oversubscription)


@dataclass(frozen=True, kw_only=True)
class Storage:
    """The shared file system."""

    kind: str
    write: float
    """Bytes per second of all nodes together."""
    of_node: float
    """Bytes per second between a node and the file system."""
    capacity: float | None
    """Bytes; None where that is not known."""


@dataclass(frozen=True, kw_only=True)
class Nvme:
    """The disks of a node."""

    disks: int
    capacity: float
    """Bytes of all of them."""


@dataclass(frozen=True, kw_only=True)
class Preset:
    """One cluster."""

    name: str
    size: str
    """A word of SIZES: for people, nothing follows from it."""
    profile: str | None
    """The profile of conf/cluster/ that goes with it."""
    nodes: int
    node: Node
    network: Network
    topology: Topology
    storage: Storage
    nvme: Nvme | None
    sources: dict[str, str]
    """Section, and `nodes` → where its numbers stand."""
    assumed: tuple[str, ...]
    """The keys whose numbers no source has."""

    @property
    def gpus(self) -> int:
        return self.nodes * self.node.gpus

    def shared_by(self, nodes: int) -> float:
        """By how much links between leaves are oversubscribed for a training on so many nodes: not at all where one
        leaf can have them all."""
        leaf = self.topology.leaf_nodes
        return 1.0 if leaf is not None and nodes <= leaf else self.topology.oversubscription

    def hardware(self, nodes: int) -> Cluster:
        """So many nodes of it as the formulas of a step take them, with the rate of a node to another leaf."""
        return cluster(self.node.gpu, self.node.gpus, self.network.gbits / self.shared_by(nodes))

    def network_of_node(self) -> float:
        """Bytes per second of a node, one way."""
        return self.network.gbits * _GBIT
