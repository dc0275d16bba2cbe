"""`slurmopt tune`: looks for settings of a training by short trials of it."""

from __future__ import annotations

from slurmopt.commands.group import Group

COMMANDS = {
    "batch": (
        "slurmopt.commands.tune.batch",
        "the largest batch size that fits, and the smallest that is fast",
    ),
    "loader": ("slurmopt.commands.tune.loader", "how many workers the DataLoader needs"),
}
"""Each command's module, and a line of help."""

_GROUP = Group("tune", "COMMAND [OPTIONS]", "Looks for settings of a training by short trials of it.", COMMANDS)
main, parser = _GROUP.main, _GROUP.parser
