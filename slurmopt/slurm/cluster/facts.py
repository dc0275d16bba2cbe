"""Asks Slurm what the cluster has and allows, at most once a minute for each user."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

from slurmopt.errors import SlurmError
from slurmopt.slurm import client
from slurmopt.slurm.cluster import cache
from slurmopt.slurm.cluster.cluster_facts import ClusterFacts
from slurmopt.slurm.cluster.parse_facts import NODE_FORMAT, cluster_facts
from slurmopt.slurm.environment import clean_environment

MAX_AGE = 60.0
"""Seconds for which an answer is used."""

_ASK_TIMEOUT = 20.0
_ACCOUNTS_TIMEOUT = 5.0
"""Association limits are fetched with a short timeout; a launch does not wait for them."""


def facts(fresh: bool = False) -> ClusterFacts:
    """The cluster's facts, at most a minute old. Raises SlurmMissing or SlurmUnreachable."""
    stored = None if fresh else cache.read("facts", MAX_AGE)
    if stored is not None:
        try:
            return ClusterFacts.from_json(stored[0])
        except (TypeError, KeyError, AttributeError):
            pass  # left by another version, or damaged: ask again
    asked_at = time.time()
    answer = _ask()
    cache.write("facts", answer.as_json(), asked_at)
    return answer


def cluster_name() -> str | None:
    """The cluster's name, from the environment of a job or the last answer; Slurm is not asked."""
    return os.environ.get("SLURM_CLUSTER_NAME") or _last_known().get("cluster") or None


def in_cluster() -> dict[str, str]:
    """Fields for the journal beside a job id, which has no meaning on another cluster; {} if the cluster's name is
    unknown."""
    name = cluster_name()
    return {"cluster": name} if name else {}


def requeue_in_doubt() -> bool:
    """`ClusterFacts.requeue_in_doubt` from the last answer; Slurm is not asked."""
    return bool(_last_known().get("requeue_in_doubt"))


def _last_known() -> dict[str, Any]:
    stored = cache.read("facts", float("inf"))
    return stored[0] if stored is not None and isinstance(stored[0], dict) else {}


def _ask() -> ClusterFacts:
    from concurrent.futures import ThreadPoolExecutor

    environment = clean_environment(os.environ)

    def answer(argv: list[str], timeout: float = _ASK_TIMEOUT) -> Callable[[], str]:
        return pool.submit(client.run, argv, timeout, environment).result

    with ThreadPoolExecutor(4) as pool:
        config = answer(["scontrol", "show", "config"])
        partitions = answer(["scontrol", "--all", "--oneliner", "show", "partition"])
        nodes = answer(["sinfo", "--noheader", "--all", "--exact", "--format", NODE_FORMAT])
        accounts = pool.submit(_accounts, environment).result
        return cluster_facts(config(), partitions(), nodes(), accounts())


def _accounts(environment: dict[str, str]) -> str | None:
    """This user's associations; None without accounting, permission, or an answer in time."""
    import pwd

    try:
        user = pwd.getpwuid(os.geteuid()).pw_name
        argv = ["sacctmgr", "--noheader", "--parsable2", "show", "assoc", f"user={user}", "format=cluster,account,qos"]
        return client.run(argv, _ACCOUNTS_TIMEOUT, environment)
    except (SlurmError, KeyError):
        return None
