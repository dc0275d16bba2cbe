"""Says at launch what is wrong with the config's variables of NCCL, torch, aws-ofi-nccl and libfabric."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slurmopt.errors import one_line
from slurmopt.network.lint.names import NAME

if TYPE_CHECKING:
    from slurmopt.config.schema import Settings
    from slurmopt.network.lint.setting import Setting


def variable_lines(settings: Settings) -> list[str]:
    """A line for each finding. Where none of the variables is one of those, the table is not read."""
    groups = {
        "network.variables": settings.network.variables,
        "environment.variables": settings.environment.variables,
    }
    if not any(NAME.fullmatch(name) for variables in groups.values() for name in variables):
        return []
    from slurmopt.network.lint.check import findings
    from slurmopt.network.lint.reading.mappings import of_config
    from slurmopt.network.lint.versions import Versions, installed

    merged: dict[str, Setting] = {}
    keys: dict[str, str] = {}
    for key, variables in groups.items():  # the later ones take precedence
        of_group = of_config(variables)
        merged |= {one.name: one for one in of_group}
        keys |= dict.fromkeys((one.name for one in of_group), key)
    # The job finds what this machine has, unless something is loaded around it.
    own = settings.environment
    versions = Versions() if own.container.image or own.modules or own.setup else installed()
    found = findings(merged.values(), versions)
    return [one_line(f"{keys[one.setting.name]}: {one.setting.shown()} {one.what}; mend: {one.mend}") for one in found]
