"""The backends to which a job can be submitted: a table of module names, each imported when it is used."""

from __future__ import annotations

import functools
import shutil
from importlib import import_module

from slurmopt import command_output
from slurmopt.backends.protocol import Backend
from slurmopt.errors import SlurmMissing

_HOMES = {
    "sbatch": "slurmopt.backends.sbatch",
    "submitit": "slurmopt.backends.submitit",
    "local": "slurmopt.backends.local",
}


def choose(name: str) -> str:
    """Resolves `auto`: sbatch if it is configured for a cluster, else local. SlurmMissing if the backend's programs are
    missing."""
    installed = shutil.which("sbatch") is not None
    if name == "auto":
        return "sbatch" if installed and _configured() else "local"
    if name != "local" and not installed:
        raise SlurmMissing(
            f"launch.backend: {name} needs sbatch, which is not on PATH here; "
            "launch from a login node, or use launch.backend=local"
        )
    return name


def _configured() -> bool:
    from slurmopt.slurm.client import configured

    if configured():
        return True
    _say_no_cluster()
    return False


@functools.cache
def _say_no_cluster() -> None:
    """Once: a notebook submits many times."""
    command_output.warn("sbatch is installed but knows of no cluster here: on this machine")


def load(name: str) -> Backend:
    """The backend of that name."""
    backend: Backend = import_module(_HOMES[name]).BACKEND
    return backend
