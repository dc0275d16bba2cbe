"""Gathers the facts about this node from the kernel's files and from what is installed.

Nothing here waits: no metadata service and no driver is asked, and no library is loaded.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from slurmopt.config.network import EFA
from slurmopt.kernel_files import text
from slurmopt.network.facts import installed
from slurmopt.network.facts.interfaces import interfaces
from slurmopt.network.facts.node_facts import NVSWITCH, NodeFacts
from slurmopt.network.facts.rdma import rdma_devices

_EC2 = "Amazon EC2"


def gather(
    towards_peers: str | None = None, root: Path = Path("/"), environ: Mapping[str, str] = os.environ
) -> NodeFacts:
    """The facts about this node. `towards_peers`: the interface over which the other nodes of the job are reached.
    `root`: where `sys`, `proc` and `dev` are; tests lay out trees of their own."""
    rdma = rdma_devices(root / "sys/class/infiniband")
    return NodeFacts(
        node=environ.get("SLURMD_NODENAME") or os.uname().nodename,
        instance=_instance(root),
        interfaces=interfaces(root / "sys/class/net"),
        towards_peers=towards_peers,
        rdma=rdma,
        gpus=_gpus(root),
        gpu_links=_gpu_links(root),
        versions=installed.versions(root, environ, asks_libfabric=any(device.kind == EFA for device in rdma)),
    )


def _instance(root: Path) -> str | None:
    """The EC2 instance type, from the firmware's tables: the metadata service may not be there, and then one waits."""
    dmi = root / "sys/devices/virtual/dmi/id"
    if (text(dmi / "sys_vendor") or "").strip() != _EC2:
        return None
    return (text(dmi / "product_name") or "").strip() or None


def _gpus(root: Path) -> int:
    try:
        return len(os.listdir(root / "proc/driver/nvidia/gpus"))
    except OSError:
        return 0


def _gpu_links(root: Path) -> str | None:
    """NVSwitch has a device file of its own. Only the driver knows of other links, and it may take seconds."""
    return NVSWITCH if (root / "dev/nvidia-nvswitch0").exists() else None
