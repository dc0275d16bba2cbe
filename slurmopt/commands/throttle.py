"""`slurmopt throttle SWEEP 8`: limits the number of array tasks of a sweep that run at a time; 0 is no limit.

Running tasks go on. Array jobs that are submitted later get the same limit.

`--json` prints one object: `name`, `id`, `folder`, `at_once` (null: no limit) and `jobs`, the changed array jobs.
"""

from __future__ import annotations

import argparse

from slurmopt import command_output
from slurmopt.backends.array.state import is_local
from slurmopt.errors import RunError, SlurmError, SlurmRefused
from slurmopt.run_folder import events
from slurmopt.run_folder.access.files import replace_text
from slurmopt.run_folder.sweep_layout import SweepFolder
from slurmopt.runs import options
from slurmopt.runs.find import Selection, select
from slurmopt.runs.ownership import refuse_others
from slurmopt.runs.status.state import ALIVE
from slurmopt.runs.submit.exactly_once import run_lock
from slurmopt.sweeps.status.point_states import SweepStates
from slurmopt.sweeps.status.query import sweep_states

_TIMEOUT = 30.0


def main(argv: list[str]) -> int:
    """Runs the command and returns its exit status."""
    args = parser().parse_args(argv)
    selection = select(args.sweep, args.folder)
    if not isinstance(selection, Selection) or selection.points is not None:
        raise RunError(f"{args.sweep} is not a whole sweep; only a whole sweep has array tasks to limit")
    refuse_others(selection.sweep.run)
    states = sweep_states(selection.sweep, fresh=True)
    if states.problem:
        raise SlurmError(states.problem)
    if not states.alive and not states.numbers("unsubmitted"):
        raise RunError(f"{states.label} has ended already: {states.state}")
    jobs = throttle(states, args.at_once)
    if args.json:
        sweep = selection.sweep
        answer = {"name": sweep.name, "id": sweep.id, "folder": str(sweep.path)}
        command_output.print_json({**answer, "at_once": args.at_once or None, "jobs": jobs})
    else:
        print(_said(states, args.at_once, jobs))
    return 0


def parser() -> argparse.ArgumentParser:
    """The options of `slurmopt throttle`."""
    parser = options.parser("throttle", "Limit the array tasks of a sweep that run at a time.")
    parser.add_argument("sweep", metavar="SWEEP", help=options.RUN_HELP)
    parser.add_argument("at_once", type=_at_once, metavar="N", help="the maximum number; 0: no limit")
    options.add_json(parser)
    return parser


def _at_once(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 8):
        raise argparse.ArgumentTypeError(f"{text!r} is not valid; valid: 0 (no limit), 1, 2, …")
    return int(text)


def throttle(states: SweepStates, at_once: int) -> list[str]:
    """Sets the limit of the array jobs that still have tasks to start, and in the sweep's config for later ones.
    Returns the jobs."""
    waiting = states.numbers(*ALIVE)
    jobs = [entry.job for entry in states.submissions if entry.job is not None and entry.points.intersection(waiting)]
    with run_lock(states.sweep.run):
        _store(states.sweep, at_once)
        for job in () if is_local(states.sweep) else jobs:  # a runner on this machine reads the config
            _update(job, at_once)
        events.append(states.sweep.events, "throttle", at_once=at_once or None, jobs=jobs)
    return jobs


def _update(job: str, at_once: int) -> None:
    """Updates the whole array: if only some tasks were updated, Slurm would split them off, and the common limit would
    be lost."""
    from slurmopt.slurm import client

    try:
        client.run(["scontrol", "update", f"JobId={job}", f"ArrayTaskThrottle={at_once}"], _TIMEOUT)
    except SlurmRefused as error:
        # scontrol fails as soon as one task has ended, although it has updated the others.
        message = str(error)
        if "No error" not in message and "already finished" not in message.lower():
            raise


def _store(sweep: SweepFolder, at_once: int) -> None:
    """Stores the limit in config.yaml, from which later array jobs are made."""
    from omegaconf import OmegaConf

    from slurmopt.runs.recovery.changed_config import stored_config

    stored = stored_config(sweep.run)
    group = stored.get("sweep")
    stored["sweep"] = {**(group if isinstance(group, dict) else {}), "at_once": at_once or None}
    replace_text(sweep.config, OmegaConf.to_yaml(OmegaConf.create(stored)))


def _said(states: SweepStates, at_once: int, jobs: list[str]) -> str:
    limit = f"at most {at_once} array tasks run at a time" if at_once else "no limit on array tasks at a time"
    alive = sum(count for state, count in states.counts().items() if state in ALIVE)
    jobs_text = f"job {', '.join(jobs)}" if jobs else "the array jobs to come"
    return f"{states.label}: {limit} ({jobs_text}; {alive:,} points go on); slurmopt status {states.label}"
