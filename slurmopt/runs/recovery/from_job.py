"""Submits a run again from inside its job, which is about to end and which Slurm will not bring back."""

from __future__ import annotations

import sys
from pathlib import Path

from slurmopt.errors import SlurmError, SubmissionNotNoted
from slurmopt.runs import journal as journals
from slurmopt.runs.find import find
from slurmopt.runs.journal import returns
from slurmopt.runs.ownership import config_of, refuse_foreign_run
from slurmopt.runs.recovery.bring_back import write_end
from slurmopt.runs.recovery.orphans import Orphan, is_unfinished
from slurmopt.runs.submit.exactly_once import run_lock


def submit_from_job(job: str, name: str | None) -> int:
    """Submits the run `name` to start after its job `job` is over; returns the exit status."""
    from slurmopt.config.composition.settings import load
    from slurmopt.runs.recovery.resubmit import submit_again

    run = find(name, Path())
    refuse_foreign_run(run)
    _, settings = load(config_of(run))
    with run_lock(run):
        journal = journals.read(run)
        # Nothing to do where it has ended, was cancelled, or is submitted already.
        if journal.local or not is_unfinished(journal) or journal.attempt is None:
            return 0
        orphan = Orphan(journal, "COMPLETING")
        end = orphan.end or write_end(orphan, settings)
        if end is None or not returns(end):
            return 0
        try:
            new_job = submit_again(run, journal.backend or "sbatch", settings, after=job)
        except SlurmError as error:
            is_submitted = isinstance(error, SubmissionNotNoted)
            prefix = "" if is_submitted else "not submitted again from here: "
            verb = "notes it" if is_submitted else "does it"
            print(f"slurmopt: {prefix}{error}; `slurmopt tend` on a login node {verb}", file=sys.stderr)
            return 1
    print(f"slurmopt: submitted again as job {new_job}, which starts when this one is over", file=sys.stderr)
    return 0
