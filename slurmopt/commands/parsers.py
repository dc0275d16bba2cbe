"""Finds the parser of a command, for completion and for the man pages. A new command needs nothing but its entry."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from importlib import import_module

from slurmopt.commands import COMMANDS

Table = Mapping[str, tuple[str, str]]
"""Name → the module of the command, and a line of help."""


def subcommands(module: str) -> Table:
    """The commands below the command of a module; {} where it has none."""
    found = getattr(import_module(module), "COMMANDS", {})
    return found if isinstance(found, dict) else {}


def parser_of(module: str) -> argparse.ArgumentParser | None:
    """The parser of a command's module; None where it parses its words itself."""
    make = getattr(import_module(module), "parser", None)
    return None if make is None else make()


def descend(words: list[str]) -> tuple[str | None, Table, list[str]]:
    """Follows the names of commands at the beginning of `words`. Returns the module of the last one, the commands below
    it, and the words that follow. The module is None where there is no command of that name."""
    module, table, rest = None, COMMANDS, words
    while rest and table:
        if rest[0] not in table:
            return None, {}, rest
        module = table[rest[0]][0]
        table, rest = subcommands(module), rest[1:]
    return module, table, rest


def shown_options(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """The options that the help shows."""
    return [action for action in parser._actions if action.option_strings and action.help != argparse.SUPPRESS]


def help_of(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    """The help of an argument, with its placeholders filled in."""
    if not action.help or action.help == argparse.SUPPRESS:
        return ""
    return " ".join(parser._get_formatter()._expand_help(action).split())
