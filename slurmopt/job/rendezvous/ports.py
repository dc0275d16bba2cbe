"""Chooses free ports for the rendezvous."""

from __future__ import annotations

import os
import socket

_PORTS = range(15000, 30000)
"""Below those that the kernel gives to clients."""


def free_port(taken: set[int]) -> int:
    """A port that nobody listens at; other array tasks of this node look for theirs too, so not the next best one."""
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
