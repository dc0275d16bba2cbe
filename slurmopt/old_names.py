"""Leads from old module names to the new ones, for job scripts of earlier launches (`python -m NAME`)."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

MOVED = {
    "slurmopt.runtime": "slurmopt.job",
    "slurmopt.runtime.aftermath": "slurmopt.job.supervisor.previous_attempts",
    "slurmopt.runtime.lead": "slurmopt.job.supervisor.stop_lead_time",
    "slurmopt.runtime.lookout": "slurmopt.job.watchdog.watchdog",
    "slurmopt.runtime.notify": "slurmopt.job.supervisor.notify",
    "slurmopt.runtime.pack": "slurmopt.job.pack",
    "slurmopt.runtime.point": "slurmopt.job.worker.point",
    "slurmopt.runtime.spawn": "slurmopt.job.worker.spawn",
    "slurmopt.runtime.verdict": "slurmopt.job.supervisor.verdict",
    "slurmopt.folder": "slurmopt.run_folder",
    "slurmopt.folder.private": "slurmopt.run_folder.private",
    "slurmopt.sweeps.more": "slurmopt.sweeps.submit.backlog",
}
"""Old name → new name. The programs in a package's folder, `__main__` among them, are found by the package."""


class OldNames:
    """A finder for `sys.meta_path` that knows the old names alone."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """The module of the new name, to be loaded under the old one; None for all other names."""
        if name not in MOVED:
            return None
        from importlib.util import find_spec, spec_from_file_location

        moved = find_spec(MOVED[name])
        if moved is None or moved.origin is None:
            return None
        locations = moved.submodule_search_locations
        return spec_from_file_location(name, moved.origin, submodule_search_locations=locations)


def install() -> None:
    """Has `import` and `python -m` find the old names, once all other finders have found nothing."""
    sys.meta_path.append(OldNames)
