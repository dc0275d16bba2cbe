"""The source `network`: bytes per second of interfaces, InfiniBand ports and EFA devices, from /sys.

They count for all jobs of the node.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from slurmopt.job.monitor.here import Here
from slurmopt.job.monitor.rates import Rates
from slurmopt.kernel_files import number
from slurmopt.network.facts.interfaces import interfaces
from slurmopt.network.facts.rdma import rdma_devices

_WORDS = 4
"""InfiniBand's port counters are in units of four bytes, by its specification."""
_MOST = 32


def open_source(here: Here) -> NetworkSource:
    """The source of this node."""
    return NetworkSource(here.roots.sys)


class NetworkSource:
    """The counters of each interface and device that the node had when the sampler started."""

    name = "network"

    def __init__(self, sys: Path) -> None:
        self._counters = {**_interfaces(sys / "class/net"), **_devices(sys / "class/infiniband")}
        self._links = _links(sys)
        self._rates = Rates()

    def facts(self) -> dict[str, Any]:
        """`links`: bytes per second that each of them can transfer, where the kernel tells."""
        return {"links": self._links}

    def absent(self) -> dict[str, str]:
        return {}

    def events(self) -> list[dict[str, Any]]:
        return []

    def close(self) -> None:
        """Holds nothing open."""

    def read(self) -> dict[str, float]:
        counters: dict[str, float] = {}
        for column, (paths, unit) in self._counters.items():
            counts = [number(path) for path in paths]
            if None not in counts:
                counters[column] = sum(count for count in counts if count is not None) * unit
        return self._rates.of(counters)


_Counter = tuple[list[str], int]
"""The files whose numbers are added, and the bytes of their unit."""


def _names(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))[:_MOST]
    except OSError:
        return []


def _interfaces(folder: Path) -> dict[str, _Counter]:
    """Those with a device; in a container, which has none of these, all but the loopback."""
    names = [name for name in _names(folder) if name != "lo" and (folder / name / "statistics").is_dir()]
    with_device = [name for name in names if (folder / name / "device").exists()]
    return {
        f"net.{name}.{way}": ([f"{folder}/{name}/statistics/{way}_bytes"], 1)
        for name in with_device or names
        for way in ("rx", "tx")
    }


def _devices(folder: Path) -> dict[str, _Counter]:
    """InfiniBand devices by the counters of their ports, EFA devices by those of Amazon's driver."""
    found: dict[str, _Counter] = {}
    for name in _names(folder):
        ports = [folder / name / "ports" / port for port in _names(folder / name / "ports")]
        for way, word in (("rx", "rcv"), ("tx", "xmit")):
            efa = [f"{port}/hw_counters/{way}_bytes" for port in ports]
            infiniband = [f"{port}/counters/port_{word}_data" for port in ports]
            if ports and all(map(os.path.exists, efa)):
                found[f"efa.{name}.{way}"] = efa, 1
            elif ports and all(map(os.path.exists, infiniband)):
                found[f"ib.{name}.{way}"] = infiniband, _WORDS
    return found


def _links(sys: Path) -> dict[str, float]:
    named = [(f"net.{one.name}", one.gbits) for one in interfaces(sys / "class/net")]
    named += [(f"ib.{one.name}", one.gbits) for one in rdma_devices(sys / "class/infiniband")]
    return {name: gbits * 1e9 / 8 for name, gbits in named if gbits is not None}
