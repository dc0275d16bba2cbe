"""Many runs from one launch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(kw_only=True)
class Sweep:
    """Reserved: sweeps are not there yet."""
