"""The group `resources`: the resources that the job requests from Slurm."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields
from typing import Any

from slurmopt.config.check import AUTO_OFF, at_least, at_most_one, one_line_text, one_of, readable
from slurmopt.errors import ConfigError
from slurmopt.units import mebibytes, seconds

OWN_OPTIONS = {
    "array", "batch", "bootstrap", "comment", "error", "export", "export-file", "hold", "job-name", "no-requeue",
    "ntasks", "open-mode", "output", "parsable", "quiet", "requeue", "signal", "test-only", "wait", "wrap", "chdir",
}  # fmt: skip
"""sbatch options that slurmopt sets itself, or with which it could not manage the run."""
MEMORY = ("memory", "memory_per_cpu", "memory_per_gpu")
"""Mutually exclusive options."""
_NODES = re.compile(r"\s*([0-9]{1,6})(?:\s*-\s*([0-9]{1,6}))?\s*")


@dataclass(kw_only=True)
class Resources:
    """The resources that the job requests from Slurm, with the names of sbatch where they exist."""

    nodes: int | str = 1
    """Number of nodes; or a range such as `2-4`: an attempt starts on as many nodes of this range as are free, and may
    have fewer or more nodes than the previous one."""

    gpus_per_node: int = 0
    """GPUs on each node."""

    gpu_type: str | None = None
    """The GRES type, such as `h100`; any type when left out."""

    tasks_per_node: int | None = None
    """Ranks on each node. Default: one per GPU, else 1."""

    cpus_per_task: int | None = None
    """CPU cores of each rank."""

    cpu_bind: str = "auto"
    """`auto`: ranks with neighbouring GPUs are on one socket (srun's `--distribution=block:block`), and a rank that
    Slurm does not bind to CPUs is bound to those near its GPU, as reported by NVML. `off`: the defaults of Slurm."""

    memory: str | None = None
    """Memory of each node, such as `200GB` (powers of 1024, as in Slurm); `0` is all of it."""

    memory_per_cpu: str | None = None
    """Memory for each CPU; excludes the other two."""

    memory_per_gpu: str | None = None
    """Memory for each GPU; excludes the other two."""

    time: str | None = None
    """Time limit: minutes, `HH:MM:SS`, `D-HH`, or `90m`, `4h`, `1d 12h`. Default: the partition's."""

    partition: str | None = None
    """Partition, or several separated by commas."""

    account: str | None = None
    """The account that is charged."""

    qos: str | None = None
    """Quality of service."""

    constraint: str | None = None
    """Node features, in sbatch's syntax."""

    nodelist: str | None = None
    """Nodes that must be part of the job."""

    exclude: str | None = None
    """Nodes that must not be part of the job."""

    exclusive: bool = False
    """Whether the nodes are shared with no other job."""

    reservation: str | None = None
    """A reservation's name."""

    licenses: str | None = None
    """Licenses, in sbatch's syntax."""

    comment: str | None = None
    """Your own comment; slurmopt appends its token."""

    mail_user: str | None = None
    """The recipient of Slurm's mail."""

    mail_type: str | None = None
    """The events for which Slurm sends mail, such as `END,FAIL`."""

    extra: dict[str, Any] = field(default_factory=dict)
    """Any other sbatch option by its long name, `true` for one without a value: `{switches: 1, contiguous: true}`."""

    def __post_init__(self) -> None:
        self.least_nodes, self.most_nodes = _range(self.nodes)
        self.nodes = f"{self.least_nodes}-{self.most_nodes}" if self.elastic else self.least_nodes
        at_least(self.gpus_per_node, 0, "resources.gpus_per_node")
        at_least(self.tasks_per_node, 1, "resources.tasks_per_node")
        at_least(self.cpus_per_task, 1, "resources.cpus_per_task")
        if self.cpu_bind == "False":  # YAML reads a bare `off` as false
            self.cpu_bind = "off"
        one_of(self.cpu_bind, AUTO_OFF, "resources.cpu_bind")
        memory = {name: getattr(self, name) for name in MEMORY}
        at_most_one(memory, "resources")
        for name, value in memory.items():
            readable(value, mebibytes, f"resources.{name}")
        readable(self.time, seconds, "resources.time")
        if self.gpu_type is not None and not self.gpus_per_node:
            raise ConfigError("needs resources.gpus_per_node", "resources.gpu_type")
        for item in fields(self):
            if isinstance(value := getattr(self, item.name), str):
                one_line_text(value, f"resources.{item.name}")
        self._check_extra()

    def _check_extra(self) -> None:
        for name, value in self.extra.items():
            key = f"resources.extra.{name}"
            if not re.fullmatch(r"[a-z][a-z0-9-]*", str(name)):
                raise ConfigError("is not a long option of sbatch; write it without dashes in front", key)
            if name in OWN_OPTIONS or str(name).replace("-", "_") in {f.name for f in fields(self)} - {"time"}:
                raise ConfigError("is set by slurmopt itself; use the field of that name where there is one", key)
            if isinstance(value, (dict, list)):
                raise ConfigError("must be one value", key)
            one_line_text(None if value is None else str(value), key)

    @property
    def ranks_per_node(self) -> int:
        return self.tasks_per_node or self.gpus_per_node or 1

    @property
    def elastic(self) -> bool:
        """Whether the number of nodes may differ between attempts."""
        return self.least_nodes < self.most_nodes


def _range(nodes: int | str) -> tuple[int, int]:
    """Returns the minimum and maximum of `resources.nodes`: (2, 2) for 2 and "2", (2, 4) for "2-4"."""
    key = "resources.nodes"
    match = _NODES.fullmatch(str(nodes))
    if match is None:
        raise ConfigError(f"{str(nodes)!r} is not valid; valid: a whole number from 1, or a range such as 2-4", key)
    least, most = int(match[1]), int(match[2] or match[1])
    at_least(min(least, most), 1, key)
    if most < least:
        raise ConfigError(f"{str(nodes)!r} ends below its start; did you mean {most}-{least}?", key)
    return least, most
