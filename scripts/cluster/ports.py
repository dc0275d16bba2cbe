"""Finding ports that nobody uses."""

import random
import socket

from cluster.errors import ClusterError

# Below the range that the kernel hands out to clients, and below the ports from 15000 to 30000 at which the ranks of
# slurmopt's jobs meet, so that neither takes a port of ours while its daemon is down.
LOWEST, HIGHEST = 10000, 15000
BLOCK = 50
"""Ports that a small cluster has for itself."""
_claims: list[socket.socket] = []


def is_free(port: int) -> bool:
    """Whether a daemon could listen there."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


def free_block(count: int) -> int:
    """The first of `count` free ports in a row. Clusters that start together get different ones, because a block is
    claimed until this process ends, when its daemons listen; and so does one that starts while a daemon of another is
    down, because all ports of a block must be free."""
    size = -(-count // BLOCK) * BLOCK
    places = list(range(LOWEST, HIGHEST - size + 1, BLOCK))
    random.shuffle(places)
    for first in places:
        ports = range(first, first + size)
        if all(_claim(one) for one in ports[::BLOCK]) and all(is_free(port) for port in ports):
            return first
    raise ClusterError(f"found no {count} free ports in a row between {LOWEST} and {HIGHEST}")


def _claim(first: int) -> bool:
    """Whether no other process has claimed the block; the kernel forgets the claim when this process ends."""
    claim = socket.socket(socket.AF_UNIX)
    try:
        claim.bind(f"\0slurm-cluster-ports-{first}")
    except OSError:
        claim.close()
        return False
    _claims.append(claim)
    return True
