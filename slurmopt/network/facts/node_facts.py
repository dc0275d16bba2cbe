"""The facts about one node that decide which variables its ranks need."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass, field

from slurmopt.config.network import EFA, ETHERNET, INFINIBAND, ROCE, subnet

RDMA_KINDS = (EFA, INFINIBAND, ROCE)
LOOPBACK, VIRTUAL = "loopback", "virtual"
INTERFACE_KINDS = (ETHERNET, INFINIBAND, LOOPBACK, VIRTUAL)
NVSWITCH, NVLINK, PCIE = "nvswitch", "nvlink", "pcie"
GPU_LINKS = (NVSWITCH, NVLINK, PCIE)


@dataclass(frozen=True, kw_only=True)
class Interface:
    """A network interface of the kernel."""

    name: str
    kind: str = ETHERNET
    """A word of INTERFACE_KINDS. `virtual`: bridges and veth pairs of containers, which lead to no other node."""
    up: bool = True
    addresses: tuple[str, ...] = ()
    gbits: float | None = None
    """Its speed in Gbit/s; None where the kernel does not know it."""


def chosen_interface(word: str, interfaces: Iterable[Interface]) -> str | None:
    """The name of the interface that `network.interface` chooses: itself, or the first that is up with an address in
    the subnet; None if none has one."""
    wanted = subnet(word)
    if wanted is None:
        return word
    for one in interfaces:
        if one.up and any(ipaddress.ip_address(address) in wanted for address in one.addresses):
            return one.name
    return None


@dataclass(frozen=True, kw_only=True)
class RdmaDevice:
    """An EFA, InfiniBand or RoCE device."""

    name: str
    kind: str
    """A word of RDMA_KINDS."""
    active: bool = True
    """Whether a port of it has a link."""
    gbits: float | None = None
    gid_index: int | None = None
    """Of a RoCE device: the index of its RoCE v2 GID with an IPv4 address; None where there is none."""


@dataclass(frozen=True, kw_only=True)
class Versions:
    """Versions of what is installed, as each names itself; None where it is not found."""

    nccl: str | None = None
    plugin: str | None = None
    """Of aws-ofi-nccl, the plugin by which NCCL uses EFA."""
    libfabric: str | None = None
    efa_driver: str | None = None
    driver: str | None = None
    """Of NVIDIA's kernel driver."""
    cuda: str | None = None
    torch: str | None = None


@dataclass(frozen=True, kw_only=True)
class NodeFacts:
    """What one node has."""

    node: str = ""
    instance: str | None = None
    """The EC2 instance type, such as p5.48xlarge; None outside of EC2."""
    interfaces: tuple[Interface, ...] = ()
    towards_peers: str | None = None
    """The interface over which the other nodes of the job are reached; None where there is no job, or one node."""
    rdma: tuple[RdmaDevice, ...] = ()
    gpus: int = 0
    gpu_links: str | None = None
    """A word of GPU_LINKS; None where it is not known."""
    versions: Versions = field(default_factory=Versions)

    def devices(self, kind: str) -> list[RdmaDevice]:
        """The active RDMA devices of that kind."""
        return [device for device in self.rdma if device.kind == kind and device.active]

    def candidates(self) -> list[Interface]:
        """The interfaces over which other nodes may be reached: up, with an address, on a real network."""
        real = (ETHERNET, INFINIBAND)
        return [one for one in self.interfaces if one.up and one.addresses and one.kind in real]
