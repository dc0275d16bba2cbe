"""How many CPUs a rank can use, by its affinity and by the quota of its cgroup."""

from __future__ import annotations

import os

from slurmopt.job.facts.cpus import own_cpus
from slurmopt.job.facts.rank_facts import rank_facts
from slurmopt.job.monitor.here import Roots
from slurmopt.job.monitor.sources import step_cgroup


def usable_cpus() -> int:
    """The CPUs that this rank can use, without those of the other ranks on the node."""
    facts = rank_facts()
    cgroup = step_cgroup.find(os.getpid(), Roots())
    quota = None if cgroup is None else cgroup.cpu_quota()
    own = own_cpus(facts, os.environ)
    return own if quota is None else max(1, min(own, int(quota / facts.local_world_size)))
