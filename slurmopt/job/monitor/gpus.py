"""Chooses the source of this node's GPUs, by their vendor."""

from __future__ import annotations

from slurmopt.job.monitor import amd, nvidia, other_gpus
from slurmopt.job.monitor.source import Source


def open_source() -> Source | None:
    """The source of this job's GPUs, or None where it has none. Returns at once; see each vendor's module.

    NVIDIA is last, because it also says so where GPUs were granted that nobody can measure.
    """
    return other_gpus.open_source() or amd.open_source() or nvidia.open_source()
