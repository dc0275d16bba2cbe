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
    return None if make is None else make()


def shown_options(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """The options that the help shows."""
    return [action for action in parser._actions if action.option_strings and action.help != argparse.SUPPRESS]


def help_of(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    """The help of an argument, with its placeholders filled in."""
    if not action.help or action.help == argparse.SUPPRESS:
        return ""
    return " ".join(parser._get_formatter()._expand_help(action).split())
