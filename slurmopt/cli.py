"""The `slurmopt` command: looks the subcommand up in the table of `slurmopt.commands`, and calls it.

`slurmopt.exit_status` tells of the exit statuses.
"""

from __future__ import annotations

import sys
from importlib import import_module

from slurmopt import __version__
from slurmopt.commands import COMMANDS
from slurmopt.errors import InputError
from slurmopt.exit_status import guarded

_HIDDEN = {"_complete": "slurmopt.commands.complete.main"}


def main(argv: list[str] | None = None) -> int:
    """Runs one subcommand and returns the exit status."""
    words = sys.argv[1:] if argv is None else argv
    # A log may hold any character, and a terminal may know only some.
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    return guarded(_dispatch, words, " ".join(words[: 2 if _has_commands(words) else 1]))


def _has_commands(words: list[str]) -> bool:
    """Whether the first word is a command that has commands of its own."""
    module, _ = COMMANDS.get(words[0] if words else "", ("", ""))
    return module.endswith(".main")


def _dispatch(words: list[str]) -> int:
    if words[:1] == ["help"] and words[1:]:
        words = [*words[1:], "--help"]  # the same as `COMMAND --help`, also of a command below a command
    name = words[0] if words else "--help"
    if name in ("-h", "--help", "help"):
        print(_help())
        return 0
    if name == "--version":
        print(f"slurmopt {__version__}")
        return 0
    module = _HIDDEN[name] if name in _HIDDEN else _module(name)
    status: int = import_module(module).main(words[1:])
    return status


def _module(name: str) -> str:
    if name not in COMMANDS:
        from slurmopt.config.check import did_you_mean

        hint = did_you_mean(name, COMMANDS)
        raise InputError(f"no command {name!r}{hint}; valid: {', '.join(COMMANDS)}")
    return COMMANDS[name][0]


def _help() -> str:
    width = max(map(len, COMMANDS))
    table = "\n".join(f"  {name:{width}}  {line}" for name, (_, line) in COMMANDS.items())
    return f"""usage: slurmopt COMMAND [words]     one Hydra config becomes a GPU training that Slurm cannot lose

{table}

See slurmopt help COMMAND, or man slurmopt-COMMAND. RUN is a name (its latest run), NAME/ID, an ID or a prefix of one,
a folder, a Slurm job ID, or nothing for the latest run. A sweep is named in the same way; its points are SWEEP/17,
SWEEP/3-9.

example: slurmopt launch +experiment=quickstart"""
