"""What gloo is told by environment variables; a value of the user's own wins."""

from __future__ import annotations

from collections.abc import Mapping

from slurmopt.runtime.addresses import interface_to_peers
from slurmopt.runtime.ranks import RankFacts

INTERFACE, LAZY = "GLOO_SOCKET_IFNAME", "TORCH_GLOO_LAZY_INIT"


def gloo_exports(facts: RankFacts, environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that `environ` lacks.

    - Connections are made when a collective first needs them. Otherwise each group connects each rank with each other
      one at its start: with 1,024 ranks two groups take about 2,000 file descriptors in every rank.
    - By default gloo takes the interface of the address to which the host name resolves. Debian maps it to 127.0.1.1,
      where no other node answers.
    """
    found = {LAZY: "1"}
    if facts.nodes > 1 and INTERFACE not in environ and (interface := interface_to_peers(facts, environ)):
        found[INTERFACE] = interface
    return {name: value for name, value in found.items() if name not in environ}
