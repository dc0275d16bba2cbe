"""Writes the versions that a run uses into `environment.txt`."""

from __future__ import annotations

import os
import sys
from typing import Any

from slurmopt.job.facts.rank_facts import RankFacts
from slurmopt.run_folder.access.files import open_append
from slurmopt.run_folder.layout import RunFolder


def note(folder: RunFolder, attempt: int, facts: RankFacts) -> None:
    """Adds this attempt's section. Only what the task has imported itself is asked: nothing is imported for this.

    A point of a sweep has none of its own: a thousand times the same.
    """
    if folder.in_sweep:
        return
    lines = [f"\n[attempt {attempt}]", *(f"{name}: {value}" for name, value in _facts(facts).items())]
    try:
        with os.fdopen(open_append(folder.environment), "a", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
    except OSError as error:
        print(f"slurmopt: {folder.environment.name} cannot be written: {error}", file=sys.stderr)


def _facts(facts: RankFacts) -> dict[str, str]:
    system = os.uname()
    versions = {
        "node of rank 0": facts.node,
        "nodes": str(facts.nodes),
        "ranks": str(facts.world_size),
        "python": f"{sys.version.split()[0]} ({sys.executable})",
        "system": f"{system.sysname} {system.release} {system.machine}",
    }
    torch = sys.modules.get("torch")
    return versions if torch is None else versions | _torch_facts(torch)


def _torch_facts(torch: Any) -> dict[str, str]:
    versions = {"torch": str(torch.__version__), "cuda": str(torch.version.cuda)}
    if torch.cuda.is_initialized():
        versions["gpu"] = str(torch.cuda.get_device_name())
    return versions
