"""The communication between the ranks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from slurmopt.config.check import environment_variables, one_of, readable
from slurmopt.units import seconds

PROCESS_GROUP_BACKENDS = ("auto", "nccl", "gloo")


@dataclass(kw_only=True)
class Network:
    """The communication between the ranks."""

    backend: str = "auto"
    """torch.distributed's backend: `nccl`, `gloo`, or `auto`: nccl if each rank has its own GPU, else gloo."""

    timeout: str = "10m"
    """The timeout of the rendezvous and of a collective."""

    variables: dict[str, Any] = field(default_factory=dict)
    """NCCL, FI and EFA variables of this cluster. `environment.variables` of an experiment take precedence."""

    def __post_init__(self) -> None:
        one_of(self.backend, PROCESS_GROUP_BACKENDS, "network.backend")
        readable(self.timeout, seconds, "network.timeout")
        environment_variables(self.variables, "network.variables")
