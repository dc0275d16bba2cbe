"""Asks scontrol before a job counts as gone: a site's wrapper or cache may answer for squeue with an empty list."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from slurmopt.errors import SlurmMissing, SlurmRefused, SlurmUnreachable
from slurmopt.slurm import client
from slurmopt.slurm.environment import clean_environment
from slurmopt.slurm.queue_entry import Queue, QueueEntry

_TIMEOUT = 30.0
_WHO = re.compile(r"^JobId=(\d+)(?: ArrayJobId=(\d+) ArrayTaskId=(\S+))?", re.MULTILINE)
_USER = re.compile(r"^   UserId=\S*\((\d+)\)", re.MULTILINE)
_STATE = re.compile(r"^   JobState=(\S+) Reason=(.*?) Dependency=", re.MULTILINE)
_RESTARTS = re.compile(r"^   Requeue=(\d) Restarts=(\d+)", re.MULTILINE)
_END = re.compile(r"^   StartTime=\S+ EndTime=(\d+)", re.MULTILINE)
_LINE = re.compile(r"^   (NodeList|BatchHost|Command|Comment)=(.*)$", re.MULTILINE)


def completed(jobs: Queue, wanted: Iterable[str]) -> Queue:
    """`jobs`, completed by those of `wanted` that squeue lacks and scontrol has. One call of scontrol for each job or
    array.

    `wanted` has ids such as `7`, `7_3`, or of a whole array. Raises scontrol's failure.
    """
    listed = {job.partition("_")[0] for job in jobs}
    absent = dict.fromkeys(job.partition("_")[0] for job in wanted if job not in jobs)
    missing = [entry for job in absent if job not in listed for entry in _show(job)]
    if not missing:
        return jobs
    merged = Queue({**jobs, **{entry.job_id: entry for entry in missing}})
    merged.age = jobs.age
    return merged


def all_jobs() -> dict[str, QueueEntry]:
    """This user's jobs as scontrol lists them. It lists the jobs of all users, so it is called only if squeue lists
    none or lacks one."""
    return {entry.job_id: entry for entry in map(_entry, filter(_is_mine, _records(_said())))}


def users_of(job: str) -> set[int]:
    """The user ids that own the job according to Slurm; empty if Slurm has no such job."""
    return {int(user) for user in _USER.findall(_said(job))}


def _show(job: str) -> list[QueueEntry]:
    """The job, or the tasks of the array, as scontrol lists them; empty if Slurm has no such job."""
    return [_entry(record) for record in _records(_said(job))]


def _records(output: str) -> list[str]:
    records = [record for record in output.split("\n\n") if _WHO.search(record)]
    if output and not records and "No jobs in the system" not in output:
        raise SlurmUnreachable("squeue does not list a job that was submitted, and scontrol says nothing; try again")
    return records


def _is_mine(record: str) -> bool:
    return (user := _USER.search(record)) is None or int(user[1]) == os.geteuid()


def _said(*job: str) -> str:
    """The output of `scontrol show job`; "" if there is no such job, or no scontrol."""
    environment = {**clean_environment(os.environ), "SLURM_BITSTR_LEN": "0"}
    try:
        return client.run(["scontrol", "show", "job", *job], _TIMEOUT, environment, time_format="%s") or "\n"
    except SlurmMissing:  # a machine that has squeue alone
        return ""
    except SlurmRefused as error:
        if "invalid job id" in str(error).lower():
            return ""
        raise


def _entry(record: str) -> QueueEntry:
    who, state, restarts = _WHO.search(record), _STATE.search(record), _RESTARTS.search(record)
    end, lines = _END.search(record), dict(_LINE.findall(record))
    assert who is not None
    nodes, host, command, comment = (lines.get(name, "") for name in ("NodeList", "BatchHost", "Command", "Comment"))
    return QueueEntry(
        job_id=_job_id(who),
        state=state[1] if state else "UNKNOWN",
        reason=state[2] if state and state[2] != "None" else "",
        nodes="" if nodes == "(null)" else nodes,
        start=None,
        time_used=None,
        time_limit=None,
        restarts=int(restarts[2]) if restarts else 0,
        batch_host=host,
        comment=comment.strip(),
        command=command,
        end=float(end[1]) if end else None,
        requeue=restarts[1] == "1" if restarts else None,
    )


def _job_id(who: re.Match[str]) -> str:
    """The id in the form of squeue's JobArrayID."""
    job, array, task = who.groups()
    if array is None:
        return str(job)
    return f"{array}_{task}" if task.isdecimal() else f"{array}_[{task}]"
