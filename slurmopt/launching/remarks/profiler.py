"""A profiler that is not there."""

from __future__ import annotations

import shutil

from slurmopt.config.schema import Settings


def missing_profiler(settings: Settings) -> str | None:
    """A line if `task.profiler` is not on PATH here; else None. Modules, setup lines and containers may bring it."""
    name, environment = settings.task.profiler, settings.environment
    brings = environment.modules or environment.setup or environment.container.image or settings.task.python
    if name is None or brings or shutil.which(name) is not None:
        return None
    return f"task.profiler: {name} is not on PATH here; where compute nodes lack it, the training runs unprofiled"
