"""What one array task of a sweep takes of this machine. More than the machine has is all of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from slurmopt.backends.array.machine import Machine
from slurmopt.units import mebibytes

if TYPE_CHECKING:
    from slurmopt.config.resources import Resources


@dataclass(frozen=True)
class Needs:
    """The share of one array task."""

    cpus: int
    memory: int
    """MiB; 0 where nothing is asked for."""
    gpus: int

    def at_once(self, machine: Machine) -> int:
        """How many such tasks the machine can run at a time."""
        most = [len(machine.cpus) // self.cpus]
        if self.gpus:
            most.append(len(machine.gpus) // self.gpus)
        if self.memory:
            most.append(machine.memory // self.memory)
        return max(1, min(most))


def needs_of(resources: Resources, machine: Machine) -> Needs:
    """The needs of an array task, at most what the machine has."""
    gpus = min(resources.gpus_per_node * resources.least_nodes, len(machine.gpus))
    cpus = len(machine.cpus) if resources.exclusive else _cpus(resources, machine, gpus)
    cpus = min(cpus, len(machine.cpus))
    return Needs(max(1, cpus), min(_memory(resources, cpus, gpus), machine.memory), gpus)


def _cpus(resources: Resources, machine: Machine, gpus: int) -> int:
    """`cpus_per_task` for each rank; where that is not set, the GPUs' equal share of the CPUs, else one for each."""
    ranks = resources.ranks_per_node * resources.least_nodes
    if resources.cpus_per_task is None and gpus:
        return max(ranks, len(machine.cpus) * gpus // len(machine.gpus))
    return ranks * (resources.cpus_per_task or 1)


def _memory(resources: Resources, cpus: int, gpus: int) -> int:
    if resources.memory is not None:
        return mebibytes(resources.memory) * resources.least_nodes
    if resources.memory_per_cpu is not None:
        return mebibytes(resources.memory_per_cpu) * cpus
    return mebibytes(resources.memory_per_gpu) * gpus if resources.memory_per_gpu is not None else 0
