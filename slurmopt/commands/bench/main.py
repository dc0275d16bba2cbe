"""`slurmopt bench`: measures the machine."""

from __future__ import annotations

from slurmopt.commands.group import Group

COMMANDS = {
    "collectives": (
        "slurmopt.commands.bench.collectives",
        "all_reduce and its kin: bandwidth, latency, slow links and nodes",
    ),
}
"""Each command's module, and a line of help."""

_GROUP = Group("bench", "COMMAND [OPTIONS]", "Measures what a training depends on.", COMMANDS)
main, parser = _GROUP.main, _GROUP.parser
