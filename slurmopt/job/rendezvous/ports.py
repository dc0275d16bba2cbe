"""Chooses free ports for the rendezvous."""

from __future__ import annotations

import os
import socket

_PORTS = range(15000, 30000)
"""Below the ephemeral ports that the kernel assigns to clients."""


def free_port(taken: set[int]) -> int:
    """A free port, chosen at random, as other array tasks on this node choose ports at the same time."""
    first = int.from_bytes(os.urandom(4), "little")
    for step in range(len(_PORTS)):
        port = _PORTS[(first + step) % len(_PORTS)]
        if port in taken:
            continue
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("", port))
            except OSError:
                continue
            return port
    raise OSError(f"no port from {_PORTS[0]} to {_PORTS[-1]} is free on {os.uname().nodename}")
