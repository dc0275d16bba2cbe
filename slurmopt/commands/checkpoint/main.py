"""`slurmopt checkpoint`: lists, shows, verifies, fetches, exports and prunes the checkpoints of a run."""

from __future__ import annotations

import argparse
from importlib import import_module

from slurmopt.errors import InputError

COMMANDS = {
    "list": ("slurmopt.commands.checkpoint.list", "the complete checkpoints: where each lies, how large, how good"),
    "show": ("slurmopt.commands.checkpoint.show", "what is in one: tensors, files, what it refers to"),
    "verify": ("slurmopt.commands.checkpoint.verify", "read every byte and compare every checksum"),
    "fetch": ("slurmopt.commands.checkpoint.fetch", "copy one, whole and verified, to a folder"),
    "export": ("slurmopt.commands.checkpoint.export", "write one as torch.save, safetensors or DCP have it"),
    "prune": ("slurmopt.commands.checkpoint.prune", "delete some of a run that has ended"),
}
"""Each command's module, which has `main(argv)`, and a line of help."""


def main(argv: list[str]) -> int:
    """Runs the command and returns its exit status."""
    name = argv[0] if argv else "--help"
    if name in ("-h", "--help", "help"):
        print(parser().format_help(), end="")
        return 0
    if name not in COMMANDS:
        from slurmopt.config.check import did_you_mean

        hint = did_you_mean(name, COMMANDS)
        raise InputError(f"checkpoint: no command {name!r}{hint}; valid: {', '.join(COMMANDS)}")
    status: int = import_module(COMMANDS[name][0]).main(argv[1:])
    return status


def parser() -> argparse.ArgumentParser:
    """The help of `slurmopt checkpoint`; each of its commands has a parser of its own."""
    width = max(map(len, COMMANDS))
    table = "\n".join(f"  {name:{width}}  {line}" for name, (_, line) in COMMANDS.items())
    parser = argparse.ArgumentParser(
        prog="slurmopt checkpoint",
        usage="slurmopt checkpoint COMMAND [RUN] …",
        description=f"What a run has saved.\n\n{table}\n\nslurmopt checkpoint COMMAND --help says more.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", choices=list(COMMANDS), metavar="COMMAND", help=argparse.SUPPRESS)
    return parser
