"""Which GPUs the instances of AWS have: its price lists tell how many, not which.

Source: AWS's documentation of instance types, accelerated computing.
"""

from __future__ import annotations

_ONE = ("xlarge", "2xlarge", "4xlarge", "8xlarge", "16xlarge")
_LARGER = {"12xlarge": 4, "24xlarge": 4, "48xlarge": 8}


def _family(name: str, gpu: str) -> dict[str, tuple[str, int]]:
    counts = dict.fromkeys(_ONE, 1) | _LARGER
    return {f"{name}.{size}": (gpu, count) for size, count in counts.items()}


GPUS: dict[str, tuple[str, int]] = {
    "p3.2xlarge": ("V100 16GB", 1),
    "p3.8xlarge": ("V100 16GB", 4),
    "p3.16xlarge": ("V100 16GB", 8),
    "p3dn.24xlarge": ("V100 32GB", 8),
    "p4d.24xlarge": ("A100 40GB", 8),
    "p4de.24xlarge": ("A100 80GB", 8),
    "p5.4xlarge": ("H100", 1),
    "p5.48xlarge": ("H100", 8),
    "p5e.48xlarge": ("H200", 8),
    "p5en.48xlarge": ("H200", 8),
    "p6-b200.48xlarge": ("B200", 8),
    "p6-b300.48xlarge": ("B300", 8),
    "p6e-gb200.36xlarge": ("GB200", 4),
    **_family("g5", "A10G"),
    **_family("g6", "L4"),
    **_family("g6e", "L40S"),
}
"""Instance → words of the GPU's name, and how many."""
