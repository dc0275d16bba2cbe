"""Runs the parent of a pack from start to end: the rank of tasks/S-T, which runs points instead of a task."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from slurmopt.errors import SlurmoptError
from slurmopt.grid import points_file
from slurmopt.grid.points import Points
from slurmopt.job import failures, signals
from slurmopt.job.facts import environment_info, open_files, process_tree
from slurmopt.job.facts.rank_facts import RankFacts
from slurmopt.job.health.run_checks import check
from slurmopt.job.heartbeat.heartbeat_writer import HeartbeatWriter
from slurmopt.job.monitor.start import Sampler, start
from slurmopt.job.pack.archiving import Archiving
from slurmopt.job.pack.attempts import Attempts
from slurmopt.job.pack.journal import TaskJournal
from slurmopt.job.pack.loop import Loop
from slurmopt.job.pack.pack_args import Pack, read
from slurmopt.job.pack.point_source import PointSource
from slurmopt.job.pack.points.fixed import FixedPoints
from slurmopt.job.pack.points.ownership import Ownership
from slurmopt.job.pack.process import shares
from slurmopt.job.pack.process.fork import leave
from slurmopt.job.pack.process.fresh import Imported
from slurmopt.job.pack.process.gpus import breaks_forks, check_gpus
from slurmopt.job.pack.process.imports import import_all
from slurmopt.job.sinks import of_pack
from slurmopt.job.sinks.of_pack import PackSinks
from slurmopt.job.supervisor.attempt_end import say
from slurmopt.job.worker import current_run, rank
from slurmopt.job.worker.staging import Staging
from slurmopt.run_folder.outcome import FINISHED, REQUEUE, Outcome


def main(argv: list[str]) -> NoReturn:
    """Runs the points of one array task. Signals are taken already, and SIGCHLD is blocked."""
    pack = read(argv)
    open_files.raise_limit()
    open_files.close_logs_to_others()
    attempt = int(os.environ.get(current_run.ATTEMPT) or 0)
    facts = rank.export(pack.call, attempt)
    live = rank.start_heartbeat(pack.call, attempt, facts)
    sampler = start(pack.call.monitor, pack.folder, attempt, facts)
    sinks = of_pack.start(pack.call, attempt, facts)
    process_tree.adopt_orphans()
    loop: Loop | None = None
    staging = Staging(pack.call, attempt, facts, live)
    try:
        ready = check(pack.call, attempt, facts, live) or staging.run() or _loop(pack, attempt, facts, live)
        if isinstance(ready, Loop):
            loop = ready
            outcome = loop.run()
        else:
            outcome = ready
    except (OSError, SlurmoptError) as error:
        outcome = failures.outcome_of(error)
        say(outcome.error or outcome.outcome)
    archiving = loop.archiving if loop is not None and outcome.outcome != REQUEUE else None
    _end(live, sampler, sinks, outcome, archiving, staging)


def _end(
    live: HeartbeatWriter,
    sampler: Sampler | None,
    sinks: PackSinks | None,
    outcome: Outcome,
    archiving: Archiving | None,
    staging: Staging,
) -> NoReturn:
    """Ends all processes of the points, reports the outcome, and ends this process. `archiving`: to be finished; None
    where the next attempt archives the points."""
    # A batch that was killed while it deletes the records of a point would leave a part of them behind.
    process_tree.clear_up(spared=None if archiving is None else archiving.process)
    if (who := signals.asked()) is not None:
        live.note_asked(who)
    live.end(outcome)
    if sampler is not None:
        sampler.close()
    if sinks is not None:  # after the sampler's last row
        sinks.close(outcome)
    if outcome.outcome not in (FINISHED, REQUEUE):
        print(f"slurmopt: {outcome.error}", file=sys.stderr, flush=True)
    if archiving is not None:
        archiving.finish()
    staging.end(outcome)
    leave(outcome)


def _loop(pack: Pack, attempt: int, facts: RankFacts, live: HeartbeatWriter) -> Loop | Outcome:
    """The loop, once all is imported; an outcome where the GPUs do not compute right."""
    live.enter("importing")
    points = points_file.load(pack.sweep.points_file)
    places = shares.shares(pack.side_by_side, os.sched_getaffinity(0), os.environ)
    words = [shares.words(place, pack.ranks, os.environ) for place in places]
    os.environ.setdefault("OMP_NUM_THREADS", words[0].get("OMP_NUM_THREADS", "1"))
    imported = Imported() if pack.srun else import_all(pack, points)
    imported.breaks_forks = breaks_forks()
    if imported.cuda:  # and checks its own GPU
        say("an import has initialised CUDA: each point starts a Python of its own, which takes seconds")
    elif (unfit := check_gpus(pack.call, facts)) is not None:
        return unfit
    journal = TaskJournal(pack.folder)
    ownership = Ownership(pack.sweep, pack.submission, pack.shared)
    source = source_of(pack, points, journal, ownership)
    environment_info.note(pack.folder, attempt, facts)
    live.enter("running")
    attempts, parts = Attempts(pack, attempt), list(zip(places, words, strict=True))
    archiving = Archiving(pack, points, journal, ownership)
    return Loop(pack, source, journal, attempts, ownership, live, imported, parts, archiving)


def source_of(pack: Pack, points: Points, journal: TaskJournal, ownership: Ownership) -> PointSource:
    """The source of the points of this array task."""
    if points.kind == "search":
        from slurmopt.job.pack.points.search import Trials

        return Trials(pack.sweep, points, pack.submission, pack.task, pack.job, journal)
    return FixedPoints(pack.sweep, points, pack.points, journal, pack.job, ownership, pack.name)
