"""Checks of the network of this machine, by the facts from which the ranks' variables follow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from slurmopt.checks.result import PASS, SKIPPED, WARN, CheckResult
from slurmopt.config.network import ETHERNET, NetworkOptions
from slurmopt.network.facts.node_facts import NodeFacts
from slurmopt.network.lint.check import findings
from slurmopt.network.lint.reading.mappings import of_environment
from slurmopt.network.lint.versions import installed
from slurmopt.network.settings import choose


def network(facts: NodeFacts) -> Iterator[CheckResult]:
    """The network that a job on several nodes like this one would use, and what speaks against it."""
    if not facts.candidates():
        text = "no interface with an address leads to other machines"
        yield CheckResult("network", WARN, text, "ip -brief address")
        return
    choice = choose(facts, NetworkOptions(), nodes=2)
    for warning in choice.warnings:
        yield CheckResult("network", WARN, warning, "slurmopt network explain")
    for device in facts.rdma:
        if not device.active:
            yield CheckResult("RDMA", WARN, f"{device.name} ({device.kind}) has no link", "ibstat, or rdma link")
    if choice.kind == ETHERNET and not facts.gpus:
        yield CheckResult("network", SKIPPED, f"{choice.kind}: {choice.reason}; this machine has no GPUs")
    else:
        yield CheckResult("network", PASS, f"{choice.kind}: {choice.reason}")


def variables(environ: Mapping[str, str]) -> Iterator[CheckResult]:
    """What is wrong with the variables of NCCL and its like that a job launched from here would inherit."""
    found = findings(of_environment(environ), installed())
    for one in found:
        yield CheckResult("network variables", one.verdict, f"{one.setting.shown()} {one.what}", one.mend)
    if not found:
        yield CheckResult("network variables", PASS, "nothing in the environment is wrong")
