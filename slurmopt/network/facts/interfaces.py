"""The network interfaces of this node, from /sys/class/net and getifaddrs(3)."""

from __future__ import annotations

import os
from pathlib import Path

from slurmopt.config.network import ETHERNET, INFINIBAND
from slurmopt.kernel_files import number, text
from slurmopt.network.facts.addresses import interface_addresses
from slurmopt.network.facts.node_facts import LOOPBACK, VIRTUAL, Interface

_KINDS = {1: ETHERNET, 32: INFINIBAND, 772: LOOPBACK}
"""ARPHRD_* of <net/if_arp.h>, as `type` has them."""
_CONTAINER_NAMES = ("docker", "veth", "br-", "virbr", "cni", "flannel", "cali", "podman", "lxc", "tun", "tap")
_UP = 0x1
"""IFF_UP of <net/if.h>."""


def interfaces(folder: Path = Path("/sys/class/net")) -> tuple[Interface, ...]:
    """Those of `folder`, by name."""
    addresses: dict[str, list[str]] = {}
    for address, name in interface_addresses():
        addresses.setdefault(name, []).append(address)
    return tuple(_interface(folder / name, tuple(addresses.get(name, ()))) for name in _names(folder))


def _names(folder: Path) -> list[str]:
    try:
        return sorted(name for name in os.listdir(folder) if (folder / name / "type").exists())
    except OSError:
        return []


def _interface(path: Path, addresses: tuple[str, ...]) -> Interface:
    kind = _KINDS.get(number(path / "type") or 0, VIRTUAL)
    if path.name.startswith(_CONTAINER_NAMES) or (path / "bridge").exists():
        kind = VIRTUAL
    mbits = number(path / "speed") or 0  # -1 where it is not known
    return Interface(
        name=path.name,
        kind=kind,
        up=bool(_flags(path) & _UP),
        addresses=addresses,
        gbits=mbits / 1000 if mbits > 0 else None,
    )


def _flags(path: Path) -> int:
    try:
        return int((text(path / "flags") or "0").strip(), 16)
    except ValueError:
        return 0
