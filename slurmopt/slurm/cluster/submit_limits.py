"""Computes how many jobs the user may still submit, from the limits that slurmctld enforces and their use."""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Iterator, Mapping

from slurmopt.config.resources import Resources
from slurmopt.errors import SlurmError, SlurmRefused
from slurmopt.slurm import client
from slurmopt.slurm.cluster.cluster_facts import ClusterFacts
from slurmopt.slurm.environment import clean_environment

SUBMIT_LIMIT = "job submit limit"
"""Part of sbatch's message if too many jobs are in the queue already."""
_TIMEOUT = 10.0
_COUNT = re.compile(r"(\d+)\((\d+)\)")
_OWN = ("MaxSubmitJobs", "GrpSubmitJobs")


def is_submit_limit(error: SlurmRefused) -> bool:
    """Whether sbatch refused because a limit on jobs in the queue is reached."""
    return SUBMIT_LIMIT in str(error)


def submit_room(resources: Resources, facts: ClusterFacts) -> int | None:
    """How many more jobs may be submitted (an array task counts as one); None if no limit is known.

    A site may hide its limits, and slurmctld lists none of a QOS that the user has never used. Then only a refusal
    tells.
    """
    if not facts.enforces_limits:
        return None
    user = pwd.getpwuid(os.geteuid()).pw_name
    argv = ["scontrol", "--oneliner", "show", "assoc_mgr", "flags=assoc,qos", f"users={user}"]
    try:
        output = client.run(argv, _TIMEOUT, clean_environment(os.environ))
    except SlurmError:
        return None
    return parse_room(output, user, resources)


def parse_room(output: str, user: str, resources: Resources) -> int | None:
    """The same, from scontrol's output."""
    records = [dict(re.findall(r"(\w+)=(\S*)", line)) for line in output.splitlines()]
    associations = [record for record in records if "Account" in record]
    own = _own(associations, user, resources.account)
    rooms = [room for record in _with_parents(own, associations) for room in _rooms(record)]
    for line in output.splitlines():
        if line.startswith(f"QOS={resources.qos or 'normal'}("):
            rooms += _of_qos(line, own.get("Account", ""), os.geteuid())
    return min(rooms, default=None)


def _own(associations: list[dict[str, str]], user: str, account: str | None) -> dict[str, str]:
    of_user = [association for association in associations if association.get("UserName", "").startswith(f"{user}(")]
    of_account = [
        association
        for association in of_user
        if (association["Account"] == account if account else association.get("DefAssoc") == "Yes")
    ]
    return next(iter(of_account or of_user), {})


def _with_parents(own: Mapping[str, str], associations: list[dict[str, str]]) -> Iterator[Mapping[str, str]]:
    accounts = {association["Account"]: association for association in associations if not association.get("UserName")}
    yield own
    name = own.get("Account", "")
    while (account := accounts.pop(name, None)) is not None:  # each once, whatever the answer says
        yield {"GrpSubmitJobs": account.get("GrpSubmitJobs", "")}
        name = account.get("ParentAccount", "").split("(")[0]


def _rooms(record: Mapping[str, str]) -> Iterator[int]:
    for name in _OWN:
        if (match := _COUNT.fullmatch(record.get(name, ""))) is not None:
            yield int(match[1]) - int(match[2])


def _of_qos(line: str, account: str, uid: int) -> Iterator[int]:
    groups = re.search(r"GrpSubmitJobs=(\S*)", line)
    user = re.search(rf"\b{uid}={{[^}}]*MaxSubmitJobsPU=([^\s}}]+)", line)
    whole = re.search(rf"\b{re.escape(account)}={{[^}}]*MaxSubmitJobsPA=([^\s}}]+)", line) if account else None
    for limit in (groups, user, whole):
        if limit is not None and (match := _COUNT.fullmatch(limit[1])) is not None:
            yield int(match[1]) - int(match[2])
