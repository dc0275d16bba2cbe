"""Finds jobs that squeue has forgotten in Slurm's accounting, with sacct."""

from __future__ import annotations

import os
from collections.abc import Mapping

from slurmopt.slurm import client
from slurmopt.slurm.environment import clean_environment
from slurmopt.slurm.queue_entry import without_placeholder

_TIMEOUT = 30.0
_SINCE = "now-30days"


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


def _sacct(fields: str, *options: str) -> list[tuple[str, ...]]:
    """This user's jobs of the last weeks, one row of `fields` each. The first field is JobID."""
    mark = f"<{os.urandom(8).hex()}>"
    argv = [
        "sacct", "--noheader", "--allocations", "--parsable", f"--delimiter={mark}", f"--user={os.geteuid()}",
        f"--starttime={_SINCE}", f"--format={fields}", *options,
    ]  # fmt: skip
    cells = client.run(argv, _TIMEOUT, clean_environment(os.environ)).split(mark)
    rows = zip(*[iter(cells)] * (fields.count(",") + 1), strict=False)
    return [(row[0].strip(), *row[1:]) for row in rows]
