"""What a command accepts, from its parser, as plain JSON.

commands    the commands below it: name → [module, help]
arguments   each with names (of an option; [] for a positional one), nargs, choices, metavar, dest, text, `repeated`
            (may be given twice), `path` (its value is a file), `beside` (the group of those that exclude each other)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from slurmopt.commands.complete.stored import PACKAGE, remembered

if TYPE_CHECKING:
    import argparse

Model = dict[str, Any]


def load(module: str) -> Model:
    """The model of the command that `module` has."""
    places = [PACKAGE / "commands", PACKAGE / "launch.py", PACKAGE / "runs" / "options.py"]
    return remembered(["command", module], places, lambda: _build(module))


def _build(module: str) -> Model:
    from slurmopt.commands.parsers import parser_of, subcommands

    try:
        parser = parser_of(module)
        below = {name: list(entry) for name, entry in subcommands(module).items()}
    except ImportError:  # it needs a package that is not installed
        return {"commands": {}, "arguments": []}
    return {"commands": below, "arguments": [] if parser is None else _arguments(parser)}


def _arguments(parser: argparse.ArgumentParser) -> list[dict[str, Any]]:
    import argparse

    groups = list(enumerate(parser._mutually_exclusive_groups))
    beside = {id(action): number for number, group in groups for action in group._group_actions}
    shown = [one for one in parser._actions if not (one.option_strings and one.help == argparse.SUPPRESS)]
    return [{**_argument(parser, action), "beside": beside.get(id(action))} for action in shown]


def _argument(parser: argparse.ArgumentParser, action: argparse.Action) -> dict[str, Any]:
    import argparse
    from pathlib import Path

    from slurmopt.commands.parsers import help_of

    repeated = (argparse._AppendAction, argparse._CountAction, argparse._ExtendAction)
    return {
        "names": list(action.option_strings),
        "nargs": action.nargs,
        "choices": None if action.choices is None else [str(choice) for choice in action.choices],
        "metavar": action.metavar if isinstance(action.metavar, str) else action.dest,
        "dest": action.dest,
        "text": help_of(parser, action),
        "repeated": isinstance(action, repeated),
        "path": action.type is Path,
    }
