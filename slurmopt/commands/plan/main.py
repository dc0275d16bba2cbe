"""`slurmopt plan`: what a training needs, before it waits in a queue."""

from __future__ import annotations

from slurmopt import command_output
from slurmopt.commands.group import Group

COMMANDS = {
    "shapes": (
        "slurmopt.commands.plan.shapes.main",
        "compare shapes of an experiment: `slurmopt plan +experiment=NAME` is the same",
    ),
    "cluster": (
        "slurmopt.commands.plan.cluster.main",
        "compare clusters for an experiment: time, money, network",
    ),
    "storage": ("slurmopt.commands.plan.storage", "size a file system for checkpoints, and choose a class of S3"),
    "probe": ("slurmopt.commands.plan.probe", "time the steps on a few numbers of nodes, and predict others"),
    "size": ("slurmopt.commands.plan.size.main", "what the runs of a name need, beside what they ask for"),
    "memory": ("slurmopt.commands.plan.memory", "the memory of a model in training, by part and phase"),
    "prices": ("slurmopt.commands.plan.price_lists", "make a file of prices of the price lists of clouds"),
    "spot": (
        "slurmopt.commands.plan.spot.main",
        "replay a training over a trace of how many spot instances there were",
    ),
    "capacity": ("slurmopt.commands.plan.capacity.main", "how many GPUs to commit to, out of what jobs have used"),
}
"""Each command's module, and a line of help."""

_GROUP = Group(
    "plan",
    "[COMMAND] [OPTIONS] [KEY=VALUE ...]",
    "Says whether a training fits, how long it takes and what it costs, before it is launched.",
    COMMANDS,
)
parser = _GROUP.parser


def main(argv: list[str]) -> int:
    """Runs one of the commands, `shapes` if none is named, and returns its exit status."""
    is_named = not argv or argv[0] in (*COMMANDS, "help", "-h", "--help")
    is_override = not is_named and (argv[0].startswith("-") or "=" in argv[0])
    if is_override:
        command_output.name("plan shapes")
    return _GROUP.main(["shapes", *argv] if is_override else argv)
