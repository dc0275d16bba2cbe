"""`slurmopt network show`: the network of this machine, or of the node whose facts a file has, and what follows.

`--json` prints one object: `facts` (the fields of `slurmopt.network.facts.node_facts.NodeFacts`), `kind`, `reason`,
`warnings` about the choice, `variables` (name → the value that a rank gets) and `own` (name → value of the user's
other variables about the network). The file that it makes is what `--facts` takes.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import asdict, fields

from slurmopt import command_output
from slurmopt.commands.network import facts_of
from slurmopt.commands.network.facts_of import Explained
from slurmopt.errors import one_line
from slurmopt.network.facts.node_facts import Interface, NodeFacts, RdmaDevice

_WIDTH = 11


def main(argv: list[str]) -> int:
    """Runs the command and returns its exit status."""
    args = parser().parse_args(argv)
    facts_of.refuse_words(args.overrides)
    found = facts_of.explained(args)
    for warning in found.choice.warnings:
        command_output.warn(one_line(warning))
    if args.json:
        command_output.print_json(_as_dict(found))
    else:
        print("\n".join(_lines(found)))
    return 0


def parser() -> argparse.ArgumentParser:
    """The options of `slurmopt network show`."""
    return facts_of.parser("show", "Show the network of a node, and the variables that the ranks of a job get.")


def _as_dict(found: Explained) -> dict[str, object]:
    return {
        "facts": asdict(found.facts),
        "kind": found.choice.kind,
        "reason": found.choice.reason,
        "warnings": list(found.choice.warnings),
        "variables": {each.setting.name: each.own or each.setting.value for each in found.variables},
        "own": found.own,
    }


def _lines(found: Explained) -> Iterator[str]:
    facts = found.facts
    yield from _block("node", [" ".join(filter(None, (facts.node or "unknown", facts.instance)))])
    yield from _block("interfaces", [_interface(one, facts) for one in facts.interfaces])
    yield from _block("RDMA", [_device(one) for one in facts.rdma] or ["no EFA, InfiniBand or RoCE device"])
    yield from _block("GPUs", [f"{facts.gpus}" + (f", linked by {facts.gpu_links}" if facts.gpu_links else "")])
    yield from _block("versions", [_versions(facts)])
    yield from _block("network", [f"{found.choice.kind}: {found.choice.reason}"])
    shown = [f"{each.setting.name}={each.own or each.setting.value}" + _whose(each.own) for each in found.variables]
    own = [f"{name}={value}  (yours)" for name, value in found.own.items()]
    yield from _block("variables", [*shown, *own] or ["none is needed"])


def _whose(own: str | None) -> str:
    return "" if own is None else "  (yours)"


def _block(title: str, lines: list[str]) -> Iterator[str]:
    for number, line in enumerate(lines):
        yield f"{title if number == 0 else '':{_WIDTH}}{one_line(line)}"


def _interface(one: Interface, facts: NodeFacts) -> str:
    what = [one.kind, *([] if one.up else ["down"]), *([] if one.gbits is None else [f"{one.gbits:g} Gbit/s"])]
    towards = "  (to the other nodes)" if one.name == facts.towards_peers else ""
    return f"{one.name}  {', '.join(what)}  {' '.join(one.addresses)}".rstrip() + towards


def _device(one: RdmaDevice) -> str:
    what = [one.kind, "active" if one.active else "no link", *([] if one.gbits is None else [f"{one.gbits:g} Gbit/s"])]
    return f"{one.name}  {', '.join(what)}"


def _versions(facts: NodeFacts) -> str:
    known = [(item.name.replace("_", " "), getattr(facts.versions, item.name)) for item in fields(facts.versions)]
    return ", ".join(f"{name} {version}" for name, version in known if version) or "none found"
