"""The names of variables that are looked at. A launch imports this each time, so it has nothing else."""

from __future__ import annotations

import re

_PREFIXES = (
    *("NCCL_", "TORCH_NCCL_", "TORCH_FR_", "TORCH_GLOO_", "TORCH_DISTRIBUTED_", "TORCH_DIST_"),
    *("OFI_NCCL_", "FI_", "RDMAV_", "GLOO_"),
)
PATTERN = f"(?<![A-Za-z0-9_])(?:{'|'.join(_PREFIXES)})[A-Z0-9_]+"
NAME = re.compile(PATTERN)
"""A name that is looked at. The case counts: `nccl_debug` is a key of somebody's config."""
