"""`slurmopt network`: the network of a node, the variables that follow from it, and those that are wrong."""

from __future__ import annotations

from slurmopt.commands.group import Group

COMMANDS = {
    "show": ("slurmopt.commands.network.show", "interfaces, RDMA devices, versions, and the variables of the ranks"),
    "lint": ("slurmopt.commands.network.lint", "find variables that are removed, misspelt, contradictory or dangerous"),
    "explain": ("slurmopt.commands.network.explain", "each of these variables: why, and by which document"),
}
"""Each command's module, and a line of help."""

_GROUP = Group("network", "COMMAND …", "The network of a node.", COMMANDS)
main, parser = _GROUP.main, _GROUP.parser
