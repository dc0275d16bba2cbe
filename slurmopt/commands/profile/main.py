"""`slurmopt profile`: traces of a running run, and what they say."""

from __future__ import annotations

from slurmopt import command_output
from slurmopt.commands.group import Group

COMMANDS = {
    "trace": (
        "slurmopt.commands.profile.trace",
        "trace ranks of a running run for some steps; `slurmopt profile RUN` is the same",
    ),
    "memory": ("slurmopt.commands.profile.memory", "say what a training keeps in memory, by phase, module and line"),
    "show": ("slurmopt.commands.profile.show", "say what traces show: of a run, or from elsewhere"),
    "compare": ("slurmopt.commands.profile.compare", "say what became slower from one profile to another"),
}
"""Each command's module, and a line of help."""

_GROUP = Group(
    "profile", "[COMMAND] [OPTIONS] [RUN]", "Traces ranks of a running run, and says what traces show.", COMMANDS
)
parser = _GROUP.parser


def main(argv: list[str]) -> int:
    """Runs one of the commands, `trace` if none is named, and returns its exit status."""
    is_named = not argv or argv[0] in (*COMMANDS, "help", "-h", "--help")
    if not is_named:
        command_output.name("profile trace")
    return _GROUP.main(argv if is_named else ["trace", *argv])
