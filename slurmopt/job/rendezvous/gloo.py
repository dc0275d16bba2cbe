"""Environment variables for gloo; values that the user has set take precedence."""

from __future__ import annotations

from collections.abc import Mapping

from slurmopt.job.facts.rank_facts import RankFacts
from slurmopt.job.rendezvous.addresses import interface_to_peers
from slurmopt.network.facts.interfaces import interfaces
from slurmopt.network.facts.node_facts import chosen_interface

INTERFACE, LAZY = "GLOO_SOCKET_IFNAME", "TORCH_GLOO_LAZY_INIT"
_MOST_RANKS = 224
"""Up to this world size each rank is connected with every other rank from the start, and notices at once that one has
ended. That many need 1,024 open files, which nearly every site allows."""
_GROUPS, _OTHER_FILES = 4, 128
"""Process groups: the default one, two of the checkpointer and one of the user. And the other files that a rank has
open."""


def lacks_files(world_size: int, open_files: int) -> bool:
    """Whether a rank with this limit on open files cannot be connected with every other rank. All ranks must act alike
    on it: gloo hangs if only some make connections lazily."""
    return world_size * _GROUPS + _OTHER_FILES > open_files


def gloo_exports(
    facts: RankFacts, environ: Mapping[str, str], ranks_each: int = 1, asked: str | None = None
) -> dict[str, str]:
    """The variables that `environ` lacks. `ranks_each` is the number of ranks that each process of `facts` starts, as
    torchrun does; it is the same on all nodes. `asked`: network.interface.

    - In a large world connections are made when a collective first needs them. Otherwise each group connects each rank
      with each other one: with 1,024 ranks that is a million connections and, in every rank, 1,023 file descriptors.
    - By default gloo takes the interface of the address to which the host name resolves. Debian maps it to 127.0.1.1,
      where no other node answers. The ranks of one node need no interface that other machines reach.
    """
    exports = {}
    if facts.world_size * ranks_each > _MOST_RANKS:
        exports[LAZY] = "1"
    if INTERFACE not in environ and facts.world_size * ranks_each > 1:
        interface = "lo" if facts.nodes == 1 else _chosen(asked) or interface_to_peers(facts, environ)
        exports |= {INTERFACE: interface} if interface else {}
    return {name: value for name, value in exports.items() if name not in environ}


def _chosen(asked: str | None) -> str | None:
    return None if asked is None else chosen_interface(asked, interfaces())
