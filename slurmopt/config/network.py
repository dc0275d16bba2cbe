"""The communication between the ranks."""

from __future__ import annotations

import ipaddress
import json
import re
from dataclasses import asdict, dataclass, field
from typing import Any

from slurmopt.config.check import environment_variables, one_of, readable, text_or_null
from slurmopt.errors import ConfigError
from slurmopt.run_folder.json_values import from_json
from slurmopt.units import seconds

PROCESS_GROUP_BACKENDS = ("auto", "nccl", "gloo")
AUTO, EFA, INFINIBAND, ROCE, ETHERNET, NONE = "auto", "efa", "infiniband", "roce", "ethernet", "none"
NETWORK_KINDS = (AUTO, EFA, INFINIBAND, ROCE, ETHERNET, NONE)
DEBUG_LEVELS = ("version", "warn", "info", "trace")
_INTERFACE = re.compile(r"[A-Za-z0-9_.:-]{1,15}")  # IFNAMSIZ of Linux


@dataclass(frozen=True, kw_only=True)
class NetworkOptions:
    """What the ranks are told of the network between the nodes, for NCCL's variables."""

    kind: str = AUTO
    interface: str | None = None
    """The name of an interface, or a subnet such as 10.1.0.0/16, which is looked for on each node."""
    debug: str | None = None
    """A word of DEBUG_LEVELS."""

    def to_argument(self) -> str:
        """The kind alone where that says all, else JSON without spaces: one argument in the job script."""
        told = {name: value for name, value in asdict(self).items() if value is not None}
        return self.kind if told.keys() == {"kind"} else json.dumps(told, separators=(",", ":"))


def from_argument(word: str) -> NetworkOptions:
    """Parses what `NetworkOptions.to_argument` wrote. Raises ValueError."""
    options = from_json(NetworkOptions, word) if word.startswith("{") else NetworkOptions(kind=word)
    if options.kind not in NETWORK_KINDS:
        raise ValueError(f"{options.kind!r} is not one of {', '.join(NETWORK_KINDS)}")
    return options


@dataclass(kw_only=True)
class Network:
    """The communication between the ranks."""

    kind: str = AUTO
    """The network between the nodes, for NCCL: `efa`, `infiniband`, `roce`, `ethernet`; `auto`: the fastest that a node
    has; `none`: no variable is set. `slurmopt network explain` shows what follows; your own variables take
    precedence."""

    interface: str | None = None
    """The interface of the sockets between nodes, for NCCL and gloo: a name such as `ens5`, or a subnet such as
    `10.1.0.0/16`, whose interface is found on each node. Default: that of the route to the other nodes."""

    debug: str | None = None
    """NCCL's debug level: `version`, `warn`, `info` or `trace`. Default: `warn`."""

    backend: str = "auto"
    """torch.distributed's backend: `nccl`, `gloo`, or `auto`: nccl if each rank has its own GPU, else gloo."""

    timeout: str = "10m"
    """The timeout of the rendezvous and of a collective."""

    variables: dict[str, Any] = field(default_factory=dict)
    """NCCL, FI and EFA variables of this cluster. `environment.variables` of an experiment take precedence."""

    def __post_init__(self) -> None:
        one_of(self.kind, NETWORK_KINDS, "network.kind")
        one_of(self.backend, PROCESS_GROUP_BACKENDS, "network.backend")
        readable(self.timeout, seconds, "network.timeout")
        environment_variables(self.variables, "network.variables")
        self._check_interface()
        if self.debug is not None:
            one_of(str(self.debug), DEBUG_LEVELS, "network.debug")
        for name in ("interface", "debug"):
            if self.kind == NONE and getattr(self, name) is not None:
                raise ConfigError("has no effect with network.kind=none; use network.variables", f"network.{name}")

    @property
    def options(self) -> NetworkOptions:
        """What the ranks are told."""
        return NetworkOptions(kind=self.kind, interface=self.interface, debug=self.debug)

    def _check_interface(self) -> None:
        text_or_null(self.interface, "network.interface")
        if self.interface is None or _INTERFACE.fullmatch(self.interface) or subnet(self.interface) is not None:
            return
        valid = "a name such as ens5, or a subnet such as 10.1.0.0/16"
        raise ConfigError(f"{self.interface!r} is not valid; valid: {valid}", "network.interface")


def subnet(word: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    """The subnet; None for the name of an interface."""
    try:
        return ipaddress.ip_network(word, strict=False) if "/" in word else None
    except ValueError:
        return None
