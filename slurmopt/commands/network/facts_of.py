"""What `network show` and `network explain` share: the facts, the network that is chosen, and the user's variables."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from slurmopt.config.network import NETWORK_KINDS, NetworkOptions
from slurmopt.errors import InputError
from slurmopt.network.facts.gather import gather
from slurmopt.network.facts.node_facts import NodeFacts
from slurmopt.network.lint.setting import SECRETS
from slurmopt.network.settings import Applied, Choice, applied, choose
from slurmopt.runs import options

_PREFIXES = ("NCCL_", "TORCH_", "FI_", "OFI_", "RDMAV_", "GLOO_")


class Explained(NamedTuple):
    """The facts, and what follows from them."""

    facts: NodeFacts
    choice: Choice
    variables: list[Applied]
    own: dict[str, str]
    """The user's variables about the network that no setting has; of a secret only the name."""


def parser(command: str, description: str) -> argparse.ArgumentParser:
    """The options of both commands."""
    parser = options.parser(f"network {command}", description)
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="a launch, such as +experiment=mine")
    parser.add_argument("--facts", type=Path, metavar="FILE", help="of a node whose `network show --json` this is")
    parser.add_argument("--nodes", type=_nodes, metavar="N", help="nodes of the job (default: the launch's, else 2)")
    parser.add_argument("--kind", choices=NETWORK_KINDS, help="network.kind (default: the launch's, else auto)")
    options.add_json(parser)
    return parser


def explained(args: argparse.Namespace) -> Explained:
    """The facts of the file or of this machine, and what follows for the launch."""
    if args.facts is None:
        facts = gather()
    else:
        from slurmopt.network.facts.facts_file import read

        facts = read(args.facts)
    variables: Mapping[str, str] = os.environ
    options, nodes = NetworkOptions(), args.nodes
    if args.overrides:
        launched = _launched(args.overrides)
        variables = {**os.environ, **launched.variables}
        options, nodes = launched.options, nodes or launched.nodes
    if args.kind is not None:
        options = replace(options, kind=args.kind)
    choice = choose(facts, options, nodes or 2)
    settings = applied(choice, variables)
    names = {each.setting.name for each in settings}
    own = {
        name: "…" if name in SECRETS else value
        for name, value in variables.items()
        if name.startswith(_PREFIXES) and name not in names
    }
    return Explained(facts, choice, settings, dict(sorted(own.items())))


class _Launched(NamedTuple):
    options: NetworkOptions
    nodes: int
    variables: dict[str, str]


def _launched(overrides: list[str]) -> _Launched:
    """What a launch with these overrides has of the network. Nothing is submitted."""
    from slurmopt.launching import run_plan

    with contextlib.redirect_stdout(sys.stderr):  # the user's modules and resolvers may print
        settings = run_plan.plan([*overrides, "launch.check=false"], None).job.settings
    given = {**settings.network.variables, **settings.environment.variables}
    least = str(settings.resources.nodes).partition("-")[0]
    variables = {name: str(value) for name, value in given.items() if value is not None}
    return _Launched(settings.network.options, int(least) if least.isdecimal() else 2, variables)


def _nodes(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 0 < int(text) < 1_000_000):
        raise argparse.ArgumentTypeError(f"{text!r} is not valid; valid: a number such as 2")
    return int(text)


def refuse_words(overrides: list[str]) -> None:
    """InputError for a word that is no override, such as a file's name."""
    for word in overrides:
        if "=" not in word:
            raise InputError(f"network: {word!r} is no override; a file of facts: --facts {word}")
