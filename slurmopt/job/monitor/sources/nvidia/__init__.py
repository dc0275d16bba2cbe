"""NVIDIA's GPUs, measured with NVML: counters, gauges, GPM, XID errors, and the processes of others."""

from __future__ import annotations

import os
from pathlib import Path

from slurmopt.job.monitor.sources.nvidia.devices import granted
from slurmopt.job.monitor.sources.nvidia.source import NvidiaSource
from slurmopt.job.monitor.sources.other_gpus import intel_gpus
from slurmopt.job.monitor.sources.source import Source


def open_source() -> Source | None:
    """The source of this job's NVIDIA GPUs, or None where it has none. Starts NVML, which may take a driver minutes.

    Where GPUs were granted that NVML cannot show, its facts and an event say why, and `read` gives nothing.
    """
    words = granted(os.environ)
    if words == [] or intel_gpus(os.environ, Path("/")):
        return None
    source = NvidiaSource(words)
    source.open()
    return source
