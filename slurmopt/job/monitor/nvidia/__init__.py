"""NVIDIA's GPUs, measured with NVML: counters, gauges, GPM, XID errors, and the processes of others."""

from __future__ import annotations

import os

from slurmopt.job.monitor.nvidia.devices import granted
from slurmopt.job.monitor.nvidia.source import NvidiaSource
from slurmopt.job.monitor.source import Source


def open_source() -> Source | None:
    """The source of this job's NVIDIA GPUs, or None where it has none.

    Returns at once: NVML is loaded and started, which may take a driver minutes, by the first `read`. Facts and absent
    columns are known after it.
    """
    words = granted(os.environ)
    return None if words == [] else NvidiaSource(words)
