"""Checks a config against what the cluster has and allows, before anything is submitted."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from slurmopt import command_output
from slurmopt.errors import CheckError, SlurmUnreachable
from slurmopt.slow_notice import slow_notice

if TYPE_CHECKING:
    from slurmopt.config.resources import Resources
    from slurmopt.config.schema import Settings
    from slurmopt.slurm.cluster.cluster_facts import ClusterFacts


def check(settings: Settings, tolerant: bool) -> None:
    """Raises CheckError with all that the cluster cannot give; `tolerant` of a cluster that does not answer."""
    from slurmopt.slurm.cluster.facts import facts
    from slurmopt.slurm.cluster.limits import findings, idle_gpus, remarks, with_site_defaults

    resources = with_site_defaults(settings.resources, os.environ)
    try:
        with slow_notice("asking Slurm what the cluster has"):
            known = facts()
            lines = findings(resources, known)
    except SlurmUnreachable as error:
        if not tolerant:
            raise
        command_output.warn(f"not checked against the cluster: {error}")
        return
    if lines:
        raise CheckError(lines)
    alone = settings.task.per == "rank" and not settings.sweep.packed  # a process that stands for one rank only
    idle = idle_gpus(resources) if alone else []
    for line in [*remarks(resources, known), *idle, *_needs_tending(settings, resources, known)]:
        command_output.warn(line)


def _needs_tending(settings: Settings, resources: Resources, known: ClusterFacts) -> list[str]:
    """A line where Slurm would not bring the run back by itself, with the way out."""
    from slurmopt.runs.submit.exactly_once import cron_line
    from slurmopt.slurm.cluster.limits import cancelled_by_preemption

    names = cancelled_by_preemption(resources, known)
    if not names:
        return []
    why = f"partition {', '.join(names)}: a job of higher priority ends this one for good (PreemptMode=CANCEL)"
    return [f"{why}; this line of crontab brings it back: {cron_line(Path(settings.launch.folder))}"]
