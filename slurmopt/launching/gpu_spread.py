"""How many nodes a total number of GPUs needs, as sbatch's `--gpus` leaves it to Slurm."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from slurmopt.errors import SlurmError

if TYPE_CHECKING:
    from slurmopt.config.resources import Resources


def fewest_nodes(resources: Resources) -> int:
    """The fewest nodes on which `resources.gpus_per_node` GPUs, if that were the total, are evenly divided.

    1 where the GPUs are on no nodes of these partitions, or the cluster does not answer: the check of the launch says
    so.
    """
    from slurmopt.slurm.cluster.facts import facts
    from slurmopt.slurm.cluster.limits import chosen_partitions, with_site_defaults

    total, kind = resources.gpus_per_node, resources.gpu_type
    try:
        partitions = chosen_partitions(with_site_defaults(resources, os.environ), facts())
    except SlurmError:
        return 1
    groups = [group for partition in partitions for group in partition.groups]
    most = max((group.gpu_count if kind is None else group.gpus.get(kind, 0) for group in groups), default=0)
    return next((total // each for each in range(min(most, total), 0, -1) if total % each == 0), 1)
