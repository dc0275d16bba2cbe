"""Finds the parser of a command, for completion and for the man pages. A new command needs nothing but its entry."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from importlib import import_module

Table = Mapping[str, tuple[str, str]]
"""Name → the module of the command, and a line of help."""


def subcommands(module: str) -> Table:
    """The commands below the command of a module; {} where it has none."""
    found = getattr(import_module(module), "COMMANDS", {})
    return found if isinstance(found, dict) else {}


def parser_of(module: str) -> argparse.ArgumentParser | None:
    """The parser of a command's module; None where it has none."""
    make = getattr(import_module(module), "parser", None)
    if make is None and module == "slurmopt.launch":
        return _launch_parser()
    return None if make is None else make()


def _launch_parser() -> argparse.ArgumentParser:
    """The options of `slurmopt launch`, whose words Hydra parses."""
    parser = argparse.ArgumentParser(prog="slurmopt launch", usage="slurmopt launch [options] [overrides]")
    parser.description = (
        "Composes a Hydra config, checks it against the cluster, renders the job script and submits it exactly once. "
        "Overrides are Hydra's: key=value, +key=value for a new key, group=option. `slurmopt launch --help` lists the "
        "groups and the keys."
    )
    parser.add_argument("-m", "--multirun", action="store_true", help="keys with several values make a sweep")
    parser.add_argument("--config-dir", metavar="DIR", help="the folder of your configs, instead of conf/")
    parser.add_argument("--cfg", choices=["job", "hydra", "all"], help="print the composed config")
    parser.add_argument("--info", metavar="WHAT", help="print what Hydra knows, such as defaults")
    return parser


def shown_options(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """The options that the help shows."""
    return [action for action in parser._actions if action.option_strings and action.help != argparse.SUPPRESS]


def help_of(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    """The help of an argument, with its placeholders filled in."""
    if not action.help or action.help == argparse.SUPPRESS:
        return ""
    return " ".join(parser._get_formatter()._expand_help(action).split())
