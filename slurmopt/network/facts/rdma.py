"""The RDMA devices of this node, from /sys/class/infiniband, where the kernel lists InfiniBand, RoCE and EFA alike."""

from __future__ import annotations

import ipaddress
import os
from pathlib import Path

from slurmopt.config.network import EFA, INFINIBAND, ROCE
from slurmopt.kernel_files import text
from slurmopt.network.facts.node_facts import RdmaDevice

_AMAZON = "0x1d0f"
_BY_LINK_LAYER = {"InfiniBand": INFINIBAND, "Ethernet": ROCE}
_V2 = "RoCE v2"


def rdma_devices(folder: Path) -> tuple[RdmaDevice, ...]:
    """Those of `folder`, which is /sys/class/infiniband, by name; without those of a kind that NCCL cannot use."""
    devices = (_device(folder / name) for name in _names(folder))
    return tuple(device for device in devices if device is not None)


def _names(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _device(path: Path) -> RdmaDevice | None:
    ports = [path / "ports" / port for port in _names(path / "ports")]
    layers = [_word(port / "link_layer") for port in ports]
    kind = EFA if _word(path / "device/vendor") == _AMAZON else next(map(_BY_LINK_LAYER.get, layers), None)
    if kind is None:
        return None
    return RdmaDevice(
        name=path.name,
        kind=kind,
        active=any(_word(port / "state").endswith("ACTIVE") for port in ports),  # "4: ACTIVE"
        gbits=_gbits(ports),
        gid_index=_gid_index(ports) if kind == ROCE else None,
    )


def _word(path: Path) -> str:
    return (text(path) or "").strip()


def _gbits(ports: list[Path]) -> float | None:
    """The sum of the ports' rates, such as `400 Gb/sec (4X NDR)`."""
    rates = [_word(port / "rate").split(" ")[0] for port in ports]
    known = [float(rate) for rate in rates if rate.replace(".", "", 1).isdecimal()]
    return sum(known) or None


def _gid_index(ports: list[Path]) -> int | None:
    """The index of the first GID that is RoCE v2 with an IPv4 address, as ::ffff:10.0.0.1 is one."""
    for port in ports:
        indices = sorted(int(name) for name in _names(port / "gids") if name.isdecimal())
        for index in indices:
            if _word(port / f"gid_attrs/types/{index}") == _V2 and _is_ipv4(_word(port / f"gids/{index}")):
                return index
    return None


def _is_ipv4(gid: str) -> bool:
    try:
        return ipaddress.IPv6Address(gid).ipv4_mapped is not None
    except ValueError:
        return False
