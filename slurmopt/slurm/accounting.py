"""Finds jobs in Slurm's accounting, with sacct: those that squeue has forgotten, and what jobs were allocated."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from slurmopt.slurm import client
from slurmopt.slurm.environment import clean_environment
from slurmopt.slurm.queue_entry import without_placeholder

_TIMEOUT = 30.0
_SINCE = "now-30days"
_EVER = "2000-01-01"


def job_with_token(token: str) -> str | None:
    for job_id, state, nodes, *texts in _sacct("JobID,State,NodeList,Comment,SubmitLine"):
        refused = state == "FAILED" and without_placeholder(nodes) == ""
        if not refused and any(token in text for text in texts):
            return job_id.split("_")[0].split("+")[0]
    return None


def states_in_accounting(scripts: Mapping[str, str]) -> dict[str, str]:
    """The final Slurm states of jobs that squeue has forgotten, by one call of sacct. `scripts` maps job ids to their
    scripts.

    Jobs that accounting does not know, or knows with another script (the id was used again), are left out. Raises
    sacct's failure.
    """
    rows = _sacct("JobID,State,SubmitLine", f"--jobs={','.join(scripts)}")
    return {job_id: state for job_id, state, line in rows if job_id in scripts and scripts[job_id] in line}


@dataclass(frozen=True)
class Allocated:
    """What Slurm has noted of one start of a job: each requeue gives another. Times are seconds since the epoch."""

    job: str
    """`A_a` for an array task."""
    start: float
    end: float | None
    """None while it runs."""
    seconds: int
    """How long it was allocated, without the time for which it was suspended: ElapsedRaw."""
    gpus: int
    cpus: int
    nodes: str
    """A hostlist."""
    state: str


def allocations(jobs: Iterable[str], timeout: float = _TIMEOUT) -> list[Allocated]:
    """The starts of the jobs, oldest first, of whichever user; jobs that accounting does not know are left out.

    Raises sacct's failure; SlurmRefused where the site keeps no accounting.
    """
    named = sorted(set(jobs))
    if not named:
        return []
    fields = "JobID,Start,End,ElapsedRaw,AllocTRES,State,NodeList"
    options = (f"--jobs={','.join(named)}", "--duplicates", "--allusers")
    rows = _sacct(fields, *options, since=_EVER, user="", timeout=timeout)
    found = [one for row in rows if (one := _allocated(row)) is not None and one.job in named]
    return sorted(found, key=lambda one: one.start)


def _allocated(row: tuple[str, ...]) -> Allocated | None:
    """One row; None where it never started."""
    job, start, end, elapsed, tres, state, nodes = row
    if not (start.isdecimal() and elapsed.isdecimal()):
        return None
    units = _tres(tres)
    typed = sum(count for name, count in units.items() if name.startswith("gres/gpu:"))
    return Allocated(
        job=job,
        start=float(start),
        end=float(end) if end.isdecimal() else None,
        seconds=int(elapsed),
        gpus=units.get("gres/gpu", typed),
        cpus=units.get("cpu", 0),
        nodes=without_placeholder(nodes),
        state=state.split(" ")[0],
    )


def _tres(text: str) -> dict[str, int]:
    """The whole numbers in `cpu=8,gres/gpu=4,mem=64G`."""
    pairs = (item.partition("=") for item in text.split(","))
    return {name: int(count) for name, _, count in pairs if count.isdecimal()}


def _sacct(
    fields: str, *options: str, since: str = _SINCE, user: str | None = None, timeout: float = _TIMEOUT
) -> list[tuple[str, ...]]:
    """Jobs of the last weeks, or since `since`, one row of `fields` each. The first field is JobID. `user`: this one
    where it is None; "" for no choice."""
    mark = f"<{os.urandom(8).hex()}>"
    of_user = [f"--user={os.geteuid() if user is None else user}"] if user != "" else []
    argv = [
        "sacct", "--noheader", "--allocations", "--parsable", f"--delimiter={mark}", *of_user,
        f"--starttime={since}", f"--format={fields}", *options,
    ]  # fmt: skip
    cells = client.run(argv, timeout, clean_environment(os.environ), time_format="%s").split(mark)
    rows = zip(*[iter(cells)] * (fields.count(",") + 1), strict=False)
    return [(row[0].strip(), *row[1:]) for row in rows]
