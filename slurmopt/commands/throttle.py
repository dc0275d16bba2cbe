"""`slurmopt throttle SWEEP 8`: how many array tasks of a sweep may run at a time, from now on; 0 is no limit.

What runs goes on running. Array jobs that are submitted later take the same limit.

`--json` prints one object: `name`, `id`, `folder`, `at_once` (null: no limit) and `jobs`, those that were told.
"""

from __future__ import annotations

import argparse
import json

from slurmopt.errors import RunError, SlurmError, SlurmRefused
from slurmopt.run_folder import events
from slurmopt.run_folder.files import replace_text
from slurmopt.run_folder.sweep_layout import SweepFolder
from slurmopt.runs import options
from slurmopt.runs.find import Selection, pick
from slurmopt.runs.ownership import refuse_others
from slurmopt.runs.status.state import ALIVE
from slurmopt.runs.submit.exactly_once import run_lock
from slurmopt.sweeps.status.point_states import SweepStates
from slurmopt.sweeps.status.query import standing

_TIMEOUT = 30.0


def main(argv: list[str]) -> int:
    """The command; returns the exit status."""
    given = parser().parse_args(argv)
    found = pick(given.sweep, given.folder)
    if not isinstance(found, Selection) or found.points is not None:
        raise RunError(f"{given.sweep} is no sweep as such; only those have several array tasks to limit")
    refuse_others(found.sweep.run)
    seen = standing(found.sweep, fresh=True)
    if seen.problem:
        raise SlurmError(seen.problem)
    if not seen.alive and not seen.numbers("unsubmitted"):
        raise RunError(f"{seen.label} has ended already: {seen.state}")
    jobs = throttle(seen, given.at_once)
    if given.json:
        sweep = found.sweep
        answer = {"name": sweep.name, "id": sweep.id, "folder": str(sweep.path)}
        print(json.dumps({**answer, "at_once": given.at_once or None, "jobs": jobs}))
    else:
        print(_said(seen, given.at_once, jobs))
    return 0


def parser() -> argparse.ArgumentParser:
    """The options of `slurmopt throttle`."""
    made = options.parser("throttle", "How many array tasks of a sweep may run at a time, from now on.")
    made.add_argument("sweep", metavar="SWEEP", help=options.RUN_HELP)
    made.add_argument("at_once", type=_at_once, metavar="N", help="at most so many; 0: no limit")
    options.add_json(made)
    return made


def _at_once(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 8):
        raise argparse.ArgumentTypeError(f"{text!r} is not valid; valid: 0 (no limit), 1, 2, …")
    return int(text)


def throttle(seen: SweepStates, at_once: int) -> list[str]:
    """Tells the array jobs that still have something to start, and the sweep's config for later ones. The jobs."""
    waiting = seen.numbers(*ALIVE)
    jobs = [one.job for one in seen.submissions if one.job is not None and one.points.both(waiting)]
    with run_lock(seen.sweep.run):
        _keep(seen.sweep, at_once)
        for job in jobs:
            _update(job, at_once)
        events.append(seen.sweep.events, "throttle", at_once=at_once or None, jobs=jobs)
    return jobs


def _update(job: str, at_once: int) -> None:
    """Always the whole array: of some of its tasks Slurm would split them off, and lose the limit of all."""
    from slurmopt.slurm import client

    try:
        client.run(["scontrol", "update", f"JobId={job}", f"ArrayTaskThrottle={at_once}"], _TIMEOUT)
    except SlurmRefused as error:
        # It complains as soon as one of the tasks has ended, and says of the others that it worked.
        said = str(error)
        if "No error" not in said and "already finished" not in said.lower():
            raise


def _keep(sweep: SweepFolder, at_once: int) -> None:
    """In config.yaml, which array jobs that are submitted later are made from."""
    from omegaconf import OmegaConf

    from slurmopt.runs.recovery.changed_config import stored_config

    stored = stored_config(sweep.run)
    group = stored.get("sweep")
    stored["sweep"] = {**(group if isinstance(group, dict) else {}), "at_once": at_once or None}
    replace_text(sweep.config, OmegaConf.to_yaml(OmegaConf.create(stored)))


def _said(seen: SweepStates, at_once: int, jobs: list[str]) -> str:
    limit = f"at most {at_once} array tasks run at a time" if at_once else "no limit on array tasks at a time"
    alive = sum(count for word, count in seen.counts().items() if word in ALIVE)
    which = f"job {', '.join(jobs)}" if jobs else "the array jobs to come"
    return f"{seen.label}: {limit} ({which}; {alive:,} points go on); slurmopt status {seen.label}"
