"""Finds the address and the network interface of this node that other nodes can reach."""

from __future__ import annotations

import errno
import ipaddress
import re
import socket
from collections.abc import Mapping

from slurmopt.job.facts.rank_facts import RankFacts
from slurmopt.network.facts.addresses import interface_addresses

_SINGLE_COMMA = re.compile(r",(?![^\[]*\])")
_BACKLOG = 1024
"""The length of the accept queue: the ranks of a large job connect at once. The kernel lowers it to its own limit."""


def listen(host: str, port: int = 0) -> socket.socket:
    """Listens at `host` only, if it is an address of this node; at all addresses if `host` is a name or an address of
    another machine. Port 0 chooses a free port. OSError if another process listens there."""
    try:
        family = socket.AF_INET6 if ipaddress.ip_address(host).version == 6 else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        if error.errno != errno.EADDRNOTAVAIL:
            raise
    except ValueError:
        pass
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, backlog=_BACKLOG, dualstack_ipv6=True)
    return socket.create_server(("", port), backlog=_BACKLOG)


def meeting_address(facts: RankFacts, environ: Mapping[str, str]) -> str:
    """The address at which rank 0 listens: that of the route to the other nodes, 127.0.0.1 if there are none, or
    MASTER_ADDR if the route is unknown."""
    return "127.0.0.1" if facts.nodes == 1 else _address_to_peers(facts, environ) or facts.master_addr


def own_host(name: str | None, facts: RankFacts) -> str:
    """An address of this node that other nodes can reach: that of its name, else that of the route to MASTER_ADDR.

    If both are loopback addresses (a hosts file that maps the name to 127.0.1.1), the name, which other nodes resolve
    differently.
    """
    resolved = _resolved(name) if name else None
    towards = source_address(facts.master_addr, facts.master_port)
    outside = [host for host in (resolved, towards) if host is not None and not is_loopback(host)]
    return outside[0] if outside else (name if name and resolved else towards or "127.0.0.1")


def interface_to_peers(facts: RankFacts, environ: Mapping[str, str]) -> str | None:
    """The network interface over which this node reaches the other nodes of its job; None if unknown.

    That is the interface of the route to MASTER_ADDR. On the node of rank 0, where that name may be a loopback
    address, it is the interface of the route to the last node of the job.
    """
    address = _address_to_peers(facts, environ)
    return None if address is None else dict(interface_addresses()).get(address)


def _address_to_peers(facts: RankFacts, environ: Mapping[str, str]) -> str | None:
    names = [facts.master_addr, last_node(environ.get("SLURM_JOB_NODELIST", ""))]
    sources = [source_address(name, facts.master_port) for name in names if name]
    return next((address for address in sources if address is not None and not is_loopback(address)), None)


def last_node(nodelist: str) -> str:
    """The last name of a list in Slurm's notation: `node[1-4,7]` gives `node7`; empty for an empty list."""
    last = _SINGLE_COMMA.split(nodelist)[-1]
    return re.sub(r"\[([^\]]*)\]", lambda match: re.split("[,-]", match[1])[-1], last)


def source_address(host: str, port: int) -> str | None:
    """The address of this node on the route to `host`. No packet is sent. None if there is no such host or route."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(address)
            return str(probe.getsockname()[0])
    except OSError:
        return None


def is_loopback(address: str) -> bool:
    return address.startswith("127.") or address == "::1"


def _resolved(name: str) -> str | None:
    try:
        return str(socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)[0][4][0])
    except OSError:
        return None
