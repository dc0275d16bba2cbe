"""The checks of one machine, a login node or a compute node, as lists."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from slurmopt.checks.side_by_side import Check
from slurmopt.doctor import cluster, containers, gpus, limits, network, places, python
from slurmopt.doctor.folder import folder_of_runs
from slurmopt.doctor.places import Place
from slurmopt.network.facts.gather import gather

_GPU_SECONDS, _FOLDER_SECONDS = 8.0, 9.0
"""A driver that no process keeps loaded starts slowly, and a loaded file system answers slowly."""


def of_machine(folder: Path, used: Sequence[Place] = ()) -> list[Check]:
    """What is checked on every machine. `folder`: that of the runs; `used`: other places that runs will use."""
    facts = gather()
    return [
        Check("Python", python.python),
        Check("torch", partial(python.torch, facts.versions)),
        Check("pynvml", python.nvml_packages),
        Check("GPUs", gpus.gpus, within=_GPU_SECONDS),
        Check("network", partial(network.network, facts)),
        Check("network variables", partial(network.variables, os.environ)),
        Check("locked memory", partial(limits.locked_memory, bool(facts.rdma))),
        Check("open files", limits.open_files),
        Check("shared memory", limits.shared_memory),
        Check("containers", partial(containers.containers, bool(facts.gpus))),
        Check("folder of runs", partial(folder_of_runs, folder), within=_FOLDER_SECONDS),
        *places.checks(used),
    ]


def of_login_node(folder: Path, used: Sequence[Place] = ()) -> list[Check]:
    """Those of a machine, and of Slurm."""
    of_slurm = [
        Check("Slurm", cluster.slurm),
        Check("names of nodes", cluster.names_of_nodes),
        Check("pyxis", containers.pyxis),
    ]
    return [*of_slurm, *of_machine(folder, used)]
