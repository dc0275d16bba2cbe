"""A host with several interfaces, one of which leads nowhere: NCCL's sockets get the one that reaches the peers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from separate_hosts import Host, require_hosts, two_hosts

from slurmopt.config.network import NetworkOptions

SAY = """
import json, os, sys
from slurmopt.config.network import from_argument
from slurmopt.job.facts.rank_facts import facts_from
from slurmopt.job.rendezvous.gloo import gloo_exports
from slurmopt.job.rendezvous.nccl import nccl_exports
options, facts = from_argument(sys.argv[1]), facts_from(os.environ)
exports = gloo_exports(facts, os.environ, asked=options.interface) | nccl_exports(options, facts, os.environ)
print("EXPORTS " + json.dumps(exports))
"""
HOSTS_FILE = "127.0.0.1 localhost\n10.78.0.1 node1\n10.78.0.2 node2\n"


def exports(host: Host, folder: Path, kind: str = "auto", **own: str) -> tuple[dict[str, Any], str]:
    """The variables of rank 0 on this host, and what it said."""
    ranks = {
        "RANK": "0",
        "LOCAL_RANK": "0",
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "1",
        "NODE_RANK": "0",
        "NNODES": "2",
    }
    env = {**os.environ, **ranks, "MASTER_ADDR": "node2", "MASTER_PORT": "29500", **own}
    process = host.start([sys.executable, "-c", SAY, kind], env, folder)
    said, _ = process.communicate(timeout=120)
    assert process.returncode == 0, said
    (line,) = [line for line in said.splitlines() if line.startswith("EXPORTS ")]
    return json.loads(line.removeprefix("EXPORTS ")), said


@pytest.mark.slow
def test_the_interface_that_reaches_the_other_nodes_is_taken(tmp_path: Path) -> None:
    require_hosts()
    with two_hosts(["10.78.0.1/24", "10.78.0.2/24"], [HOSTS_FILE] * 2) as (host, _):
        alone, _ = exports(host, tmp_path)
        assert "NCCL_SOCKET_IFNAME" not in alone
        _add(host, "aaa0", "10.99.0.1/24")  # by its name NCCL would take it first
        _add(host, "docker0", "172.17.0.1/16")
        several, said = exports(host, tmp_path)
        assert several["NCCL_SOCKET_IFNAME"] == "=cable"
        assert "slurmopt: network: ethernet (no EFA, InfiniBand or RoCE device); NCCL_SOCKET_IFNAME==cable" in said
        own, _ = exports(host, tmp_path, NCCL_SOCKET_IFNAME="aaa0", NCCL_DEBUG="INFO")
        assert not {"NCCL_SOCKET_IFNAME", "NCCL_DEBUG"} & own.keys()
        assert exports(host, tmp_path, "none")[0] == {"GLOO_SOCKET_IFNAME": "cable"}
        for asked in ("aaa0", "10.99.0.0/16"):
            chosen, said = exports(host, tmp_path, NetworkOptions(interface=asked).to_argument())
            assert chosen["NCCL_SOCKET_IFNAME"] == "=aaa0"
            assert chosen["GLOO_SOCKET_IFNAME"] == "aaa0"
        _, said = exports(host, tmp_path, "efa")
        assert "slurmopt: network: network.kind=efa, but this node has no active EFA device" in said


def _add(host: Host, name: str, address: str) -> None:
    try:
        _ip(host, "link", "add", name, "type", "dummy")
    except subprocess.CalledProcessError:  # a kernel without dummy devices: a cable whose other end nobody has
        _ip(host, "link", "add", name, "type", "veth", "peer", "name", f"{name}-end")
        _ip(host, "link", "set", f"{name}-end", "up")
    _ip(host, "address", "add", address, "dev", name)
    _ip(host, "link", "set", name, "up")


def _ip(host: Host, *words: str) -> None:
    subprocess.run(["ip", "-n", host.namespace, *words], check=True, capture_output=True)
