"""How the ranks find and reach each other."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from slurmopt.config.check import one_of, readable
from slurmopt.errors import ConfigError
from slurmopt.units import seconds

PROCESS_GROUP_BACKENDS = ("auto", "nccl", "gloo")


@dataclass(kw_only=True)
class Network:
    """How the ranks find and reach each other."""

    backend: str = "auto"
    """torch.distributed's backend: `nccl`, `gloo`, or `auto`: nccl where each rank has a GPU of its own, else gloo."""

    timeout: str = "10m"
    """How long to wait for all ranks to arrive, and for a collective."""

    variables: dict[str, Any] = field(default_factory=dict)
    """NCCL, FI and EFA variables of this cluster. An experiment's `environment.variables` win over these."""

    def __post_init__(self) -> None:
        one_of(self.backend, PROCESS_GROUP_BACKENDS, "network.backend")
        readable(self.timeout, seconds, "network.timeout")
        for name in self.variables:
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", str(name)):
                raise ConfigError("is not a name for an environment variable", f"network.variables.{name}")
