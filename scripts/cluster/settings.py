"""What was asked for at start; kept in the cluster's folder for the later commands."""

import json
from dataclasses import asdict, dataclass

from cluster.errors import ClusterError, UsageError
from cluster.layout import Layout


@dataclass(frozen=True, kw_only=True)
class Settings:
    """One cluster."""

    nodes: int
    """How many nodes: node1, node2, …"""
    gpus: int
    """GPUs in each node."""
    max_array_size: int
    """Slurm's MaxArraySize: the largest index of an array job, plus one."""
    first_port: int
    """The cluster owns this port and those after it, `ports_needed` in all."""
    accounting: bool
    """Whether slurmdbd and MariaDB run."""
    users: list[str]
    """Who gets an association in the accounting database, besides root."""
    limits: bool
    """Whether the limits of users, accounts and QOS are enforced."""
    cgroups: bool
    """Whether memory limits are real."""
    release: str = ""
    """Slurm's release, such as 24.11; empty for the one that is installed here."""

    @property
    def node_names(self) -> list[str]:
        """node1, node2, …"""
        return [f"node{number}" for number in range(1, self.nodes + 1)]

    @property
    def controller_port(self) -> int:
        """slurmctld's."""
        return self.first_port

    @property
    def slurmdbd_port(self) -> int:
        """slurmdbd's."""
        return self.first_port + 1

    @property
    def database_port(self) -> int:
        """MariaDB's."""
        return self.first_port + 2

    @property
    def node_port(self) -> int:
        """The first slurmd's; the others follow."""
        return self.first_port + 3


def ports_needed(nodes: int) -> int:
    """slurmctld, slurmdbd and MariaDB, then one for each slurmd."""
    return 3 + nodes


def save(layout: Layout, settings: Settings) -> None:
    """Write the marker: from now on the folder is a cluster's."""
    layout.marker.write_text(json.dumps(asdict(settings), indent=2) + "\n")


def load(layout: Layout) -> Settings:
    """Read the marker, or say that there is no cluster."""
    if not layout.marker.is_file():
        raise ClusterError(f"no cluster in {layout.folder}: start one first")
    return Settings(**json.loads(layout.marker.read_text()))


def check_node(settings: Settings, node: str) -> str:
    """The node's name, if the cluster has it."""
    if node not in settings.node_names:
        raise UsageError(f"no node {node!r}: this cluster has {', '.join(settings.node_names)}")
    return node
