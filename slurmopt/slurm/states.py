"""Maps Slurm's states and reasons to slurmopt's words: one table for states, one for why a job waits."""

from __future__ import annotations

import re

STATES = {
    "BOOT_FAIL": ("BF", "node failure"),
    "CANCELLED": ("CA", "cancelled"),
    "COMPLETED": ("CD", "finished"),
    "CONFIGURING": ("CF", "configuring"),
    "COMPLETING": ("CG", "completing"),
    "DEADLINE": ("DL", "timeout"),
    "FAILED": ("F", "failed"),
    "NODE_FAIL": ("NF", "node failure"),
    "OUT_OF_MEMORY": ("OOM", "out of memory"),
    "PENDING": ("PD", "pending"),
    "PREEMPTED": ("PR", "preempted"),
    "RUNNING": ("R", "running"),
    "RESV_DEL_HOLD": ("RD", "held"),
    "REQUEUE_FED": ("RF", "requeued"),
    "REQUEUE_HOLD": ("RH", "held"),
    "REQUEUED": ("RQ", "requeued"),
    "RESIZING": ("RS", "running"),
    "REVOKED": ("RV", "cancelled"),
    "SIGNALING": ("SI", "running"),
    "SPECIAL_EXIT": ("SE", "held"),
    "STAGE_OUT": ("SO", "completing"),
    "STOPPED": ("ST", "suspended"),
    "SUSPENDED": ("S", "suspended"),
    "TIMEOUT": ("TO", "timeout"),
    "LAUNCH_FAILED": ("LF", "failed"),
    "RECONFIG_FAIL": ("RC", "failed"),
    "POWER_UP_NODE": ("PU", "configuring"),
    "EXPEDITING": ("EX", "pending"),
}
"""Slurm's long form of a state → its compact form, and slurmopt's word."""

WAITING = frozenset({"pending", "configuring", "requeued", "held"})
"""Plain states of a job that has not started."""
OVER = frozenset({"finished", "failed", "cancelled", "timeout", "preempted", "node failure", "out of memory"})
"""slurmopt's words for jobs that have ended; all others may still run."""

_LONG = {compact: word for word, (compact, _) in STATES.items()}


def plain_state(word: str) -> str:
    """slurmopt's word for a state that squeue or sacct prints: "R", "RUNNING", "CANCELLED by 1000", "CANCELLED+".

    An unknown state is returned in lower case.
    """
    first = (word.split() or [""])[0].rstrip("+").upper()
    state = STATES.get(_LONG.get(first, first))
    return state[1] if state else first.lower().replace("_", " ") or "unknown"


def is_over(word: str) -> bool:
    """Whether a job in this Slurm state has ended."""
    return plain_state(word) in OVER


REASONS = {
    "None": "Slurm has not looked at it yet",
    "WaitingForScheduling": "Slurm has not looked at it yet",
    "Priority": "jobs with a higher priority come first",
    "Resources": "waiting for nodes to become free",
    "BeginTime": "its start time has not come (after a requeue Slurm holds a job back for up to two minutes)",
    "Dependency": "waits for another job",
    "DependencyNeverSatisfied": "waits for a job that failed, so it will never start: cancel it",
    "JobHeldUser": "held by you: `scontrol release JOB` lets it go",
    "JobHeldAdmin": "held by an administrator, or after too many failed starts",
    "launch failed requeued held": "held, because it could not be started on its nodes; ask an administrator",
    "JobHoldMaxRequeue": "held, because it was requeued too often",
    "JobLaunchFailure": "could not be started on its nodes",
    "JobArrayTaskLimit": "as many tasks of its array run as it allows at a time",
    "Licenses": "waiting for a license",
    "Reservation": "waiting for its reservation to begin",
    "ReservationDeleted": "its reservation is gone: cancel it",
    "ReqNodeNotAvail": "a node that it needs is down, drained, reserved or busy",
    "NodeDown": "a node that it needs is down",
    "BadConstraints": "no node can ever give what it asks for: cancel it",
    "PartitionDown": "the partition is down",
    "PartitionInactive": "the partition is switched off",
    "PartitionNodeLimit": "more nodes than the partition allows",
    "PartitionTimeLimit": "a longer time than the partition allows",
    "PartitionConfig": "the partition does not allow what it asks for",
    "AccountNotAllowed": "the partition does not take this account",
    "QOSNotAllowed": "the partition does not take this QOS",
    "InvalidAccount": "the account is not valid: cancel it and choose another",
    "InvalidQOS": "the QOS is not valid: cancel it and choose another",
    "Cleaning": "still cleaning up after its last start",
    "Prolog": "its nodes are being prepared",
    "NonZeroExitCode": "its program ended with an error",
    "OutOfMemory": "more memory than it had asked for",
    "TimeLimit": "its time was over",
    "SystemFailure": "Slurm, the network or a file system failed",
    "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions": (
        "nodes that it needs are down, drained or reserved for others"
    ),
}
"""Slurm's reason → an explanation."""

# QOSMaxJobsPerUserLimit, AssocGrpGRES, MaxGRESPerAccount, … and dozens of siblings.
_LIMIT = re.compile(
    r"(QOS|Assoc(?:iation)?)?(Grp|Max|Min)?([A-Za-z]*?)(Per(?:User|Account|Job|Node))?(Minutes|RunMins)?(Limit)?"
)
_OWNERS = {"QOS": "the QOS", "Assoc": "your account", "Association": "your account", None: "your account"}
_SUBJECTS = {
    "gres": "GPUs", "jobs": "jobs", "job": "jobs", "submitjobs": "submitted jobs", "cpu": "CPUs", "cpus": "CPUs",
    "mem": "memory", "memory": "memory", "node": "nodes", "nodes": "nodes", "wall": "time",
    "wallduration": "time", "time": "time", "billing": "billing", "resource": "resources", "walltime": "time",
}  # fmt: skip


def plain_reason(reason: str | None) -> str | None:
    """Why a job waits, with Slurm's own word in parentheses; only Slurm's word if it is unknown, None without a
    reason."""
    word = (reason or "").strip().strip("()").strip()
    if word in ("", "N/A", "null"):
        return None
    key = word if word in REASONS else re.split(r"[,(]", word)[0].strip()
    words = REASONS.get(key) or _limit(key)
    if words is None or key == "None":
        return words or word
    nodes = re.search(r"UnavailableNodes:(\S+)", word)
    return f"{words} ({key}{': ' + nodes[1] if nodes else ''})"


def _limit(key: str) -> str | None:
    match = _LIMIT.fullmatch(key)
    if match is None or not (match[1] or match[2]):
        return None
    subject = _SUBJECTS.get(match[3].lower())
    per = f" {match[4][:3].lower()} {match[4][3:].lower()}" if match[4] else ""
    return f"a limit of {_OWNERS[match[1]]}{' on ' + subject + per if subject else ''} is reached"
