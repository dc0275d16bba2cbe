"""Secrets that a job takes from the environment of its launch, and that are not there."""

from __future__ import annotations

import os
from collections.abc import Mapping

from slurmopt.config.composition.deferred import DEFERRED
from slurmopt.config.schema import Settings
from slurmopt.errors import one_line
from slurmopt.importing.shell.known_names import is_secret


def unset_secrets(settings: Settings, environ: Mapping[str, str] = os.environ) -> str | None:
    """A line if `environment.variables` read secrets that are not set here; else None. Other variables may come from
    modules or from Slurm, and a secret from a line of `environment.setup` that names it."""
    values = settings.environment.variables.values()
    reads = {match[1] for value in values for match in DEFERRED.finditer(str(value)) if match[2] is None}
    setup = "\n".join(settings.environment.setup)
    missing = sorted(name for name in reads if is_secret(name) and name not in environ and name not in setup)
    if not missing:
        return None
    which = f"{one_line(', '.join(missing))} {'is' if len(missing) == 1 else 'are'} not set here"
    return f"environment.variables: {which}: export before you launch, or the job ends before the training"
