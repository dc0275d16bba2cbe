"""A command that has commands of its own, such as `slurmopt checkpoint list`."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module

from slurmopt.errors import InputError


@dataclass(frozen=True)
class Group:
    """One such command."""

    name: str
    words: str
    """What follows its name in the usage line."""
    about: str
    commands: Mapping[str, tuple[str, str]]
    """Name → the module with `main(argv)` and `parser()`, and a line of help."""

    def main(self, argv: list[str]) -> int:
        """Runs one of the commands and returns its exit status."""
        name = argv[0] if argv else "--help"
        if name in ("-h", "--help", "help"):
            print(self.parser().format_help(), end="")
            return 0
        if name not in self.commands:
            from slurmopt.config.check import did_you_mean

            hint = did_you_mean(name, self.commands)
            raise InputError(f"{self.name}: no command {name!r}{hint}; valid: {', '.join(self.commands)}")
        status: int = import_module(self.commands[name][0]).main(argv[1:])
        return status

    def parser(self) -> argparse.ArgumentParser:
        """Its help; each of its commands has a parser of its own."""
        program, width = f"slurmopt {self.name}", max(map(len, self.commands))
        table = "\n".join(f"  {name:{width}}  {line}" for name, (_, line) in self.commands.items())
        parser = argparse.ArgumentParser(
            prog=program,
            usage=f"{program} {self.words}",
            description=f"{self.about}\n\n{table}\n\n{program} COMMAND --help says more.",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        parser.add_argument("command", choices=list(self.commands), metavar="COMMAND", help=argparse.SUPPRESS)
        return parser
