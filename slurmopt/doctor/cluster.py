"""Checks of Slurm: whether it answers, and whether it lets runs come back, sweeps fit, and reports be exact."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from slurmopt.checks.result import FAIL, PASS, WARN, CheckResult, NotChecked
from slurmopt.errors import SlurmError, SlurmMissing, SlurmUnconfigured
from slurmopt.slurm.cluster.cluster_facts import ClusterFacts
from slurmopt.slurm.cluster.facts import facts
from slurmopt.slurm.hostlist import expand

_SMALL_ARRAY = 1001
"""Slurm's default of MaxArraySize."""
_OLDEST = (22, 5)
_NAMES = 32


def slurm() -> Iterator[CheckResult]:
    """Whether slurmctld answers, and what the cluster allows. NotChecked without Slurm."""
    began = time.monotonic()
    try:
        known = facts(fresh=True)
    except (SlurmMissing, SlurmUnconfigured) as error:
        raise NotChecked(str(error)) from error
    except SlurmError as error:
        yield CheckResult("Slurm", FAIL, str(error), "scontrol ping; on the controller: systemctl status slurmctld")
        return
    milliseconds = (time.monotonic() - began) * 1000
    yield CheckResult("Slurm", PASS, f"{known.version}, cluster {known.cluster}; answers in {milliseconds:.0f} ms")
    yield from of_facts(known)


def of_facts(known: ClusterFacts) -> Iterator[CheckResult]:
    """What these facts about a cluster mean for runs. Pure."""
    yield from _version(known)
    yield from _requeue(known)
    yield from _preemption(known)
    yield from _accounting(known)
    yield from _arrays(known)
    yield from _nodes(known)


def names_of_nodes() -> Iterator[CheckResult]:
    """Whether the names of nodes have addresses here: MASTER_ADDR is one of them. NotChecked without Slurm."""
    try:
        groups = [group for partition in facts().partitions for group in partition.groups]
    except SlurmError as error:
        raise NotChecked("Slurm does not answer") from error
    names = list(dict.fromkeys(name for group in groups for name in expand(group.nodes)))[:_NAMES]
    with ThreadPoolExecutor(_NAMES) as pool:
        unknown = [name for name, is_known in zip(names, pool.map(_has_address, names), strict=True) if not is_known]
    if unknown:
        text = f"{len(unknown)} of {len(names)} names of nodes have no address here: {', '.join(unknown[:4])}"
        yield CheckResult("names of nodes", WARN, text, f"getent hosts {unknown[0]}; add it to DNS or /etc/hosts")
    else:
        yield CheckResult("names of nodes", PASS, f"{len(names)} have an address")


def _has_address(name: str) -> bool:
    try:
        socket.getaddrinfo(name, None)
    except OSError:
        return False
    return True


def _version(known: ClusterFacts) -> Iterator[CheckResult]:
    words = known.version.split(".")
    if len(words) >= 2 and all(word.isdecimal() for word in words[:2]) and tuple(map(int, words[:2])) < _OLDEST:
        text = f"{known.version} is older than 22.05, the oldest release that slurmopt is tested with"
        yield CheckResult("Slurm version", WARN, text)


def _requeue(known: ClusterFacts) -> Iterator[CheckResult]:
    if not known.job_requeue:
        text = "JobRequeue=0: a job that lost its node is not restarted by Slurm; runs ask for it with --requeue"
        yield CheckResult("requeue", WARN, text, "slurm.conf: JobRequeue=1; or `slurmopt tend` in crontab")
    elif known.requeue_in_doubt:
        text = "a job submit plugin of the site may change what a job asks for, --requeue too"
        yield CheckResult("requeue", WARN, text, "slurmopt tend, in crontab, brings runs back where Slurm does not")
    else:
        yield CheckResult("requeue", PASS, "JobRequeue=1: Slurm restarts a job that lost its node")


def _preemption(known: ClusterFacts) -> Iterator[CheckResult]:
    names = [partition.name for partition in known.partitions if partition.preemption_cancels]
    if names:
        text = f"partition {', '.join(names)}: preemption cancels jobs for good (PreemptMode=CANCEL)"
        yield CheckResult("preemption", WARN, text, "slurm.conf: PreemptMode=REQUEUE; or `slurmopt tend` in crontab")
    else:
        yield CheckResult("preemption", PASS, "no partition cancels a job for good")


def _accounting(known: ClusterFacts) -> Iterator[CheckResult]:
    if known.accounting:
        yield CheckResult("accounting", PASS, "sacct has a database")
    else:
        text = "no database: what Slurm forgets of ended jobs is lost, and reports cannot be compared with it"
        yield CheckResult("accounting", WARN, text, "slurm.conf: AccountingStorageType=accounting_storage/slurmdbd")
    if known.enforces_accounts and known.accounts == {}:
        text = "this user has no account, and jobs without one are refused"
        yield CheckResult("account", FAIL, text, "sacctmgr add user $USER account=NAME, by an administrator")


def _arrays(known: ClusterFacts) -> Iterator[CheckResult]:
    size = known.max_array_size
    text = f"MaxArraySize={size}: a sweep of more than {size - 1:,} points becomes several array jobs"
    yield CheckResult("array size", WARN if size < _SMALL_ARRAY else PASS, text)


def _nodes(known: ClusterFacts) -> Iterator[CheckResult]:
    lacking = []
    for partition in known.partitions:
        count = sum(group.count for group in partition.groups)
        missing = count - sum(group.usable for group in partition.groups)
        lacking += [f"{missing} of {count} in {partition.name}"] if missing else []
    if lacking:
        yield CheckResult("nodes", WARN, f"down or drained: {', '.join(lacking)}", "sinfo -R says why")
    else:
        yield CheckResult("nodes", PASS, "none is down or drained")
