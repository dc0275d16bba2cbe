"""Finding ports that nobody uses."""

import random
import socket

from cluster.errors import ClusterError

# Below the range that the kernel hands out to clients, and below the ports from 15000 to 30000 at which the ranks of
# slurmopt's jobs meet, so that neither takes a port of ours while its daemon is down.
LOWEST, HIGHEST = 10000, 15000
TRIES = 200


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
    """The first of `count` free ports; a random place keeps clusters that start together apart."""
    for _ in range(TRIES):
        first = random.randrange(LOWEST, HIGHEST - count)
        if all(is_free(port) for port in range(first, first + count)):
            return first
    raise ClusterError(f"found no {count} free ports in a row between {LOWEST} and {HIGHEST}")
