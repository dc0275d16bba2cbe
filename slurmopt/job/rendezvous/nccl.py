"""Environment variables for NCCL; values that the user has set take precedence."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from slurmopt.config.network import NetworkOptions
from slurmopt.job.facts.rank_facts import RankFacts
from slurmopt.job.rendezvous.addresses import interface_to_peers
from slurmopt.network.facts.gather import gather
from slurmopt.network.facts.node_facts import NodeFacts
from slurmopt.network.settings import Choice, applied, choose


def nccl_exports(options: NetworkOptions, facts: RankFacts, environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that `environ` lacks. On each node one rank says in its log what is set and why."""
    is_alone = facts.nodes == 1  # then nothing depends on the machine
    node = NodeFacts() if is_alone else gather(interface_to_peers(facts, environ), environ=environ)
    choice = choose(node, options, facts.nodes)
    if facts.local_rank == 0 and not is_alone:
        _say(choice, environ)
    return {each.setting.name: each.setting.value for each in applied(choice, environ) if each.own is None}


def _say(choice: Choice, environ: Mapping[str, str]) -> None:
    new = [f"{each.setting.name}={each.setting.value}" for each in applied(choice, environ) if each.own is None]
    print(f"slurmopt: network: {choice.kind} ({choice.reason}); {' '.join(new) or 'nothing is set'}", file=sys.stderr)
    for warning in choice.warnings:
        print(f"slurmopt: network: {warning}", file=sys.stderr)
