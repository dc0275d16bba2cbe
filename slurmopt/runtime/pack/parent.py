"""The parent from start to end: the rank of tasks/S-T that runs points instead of a task."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from slurmopt.errors import SlurmoptError
from slurmopt.folder.outcome import FINISHED, REQUEUE, Outcome
from slurmopt.grid.points import Points
from slurmopt.runtime import failures, open_files, rank, run, signals, surroundings, tree
from slurmopt.runtime.conclusion import say
from slurmopt.runtime.health.check import check
from slurmopt.runtime.live import LiveRank
from slurmopt.runtime.pack import shares
from slurmopt.runtime.pack.archiving import Archiving
from slurmopt.runtime.pack.attempts import Attempts
from slurmopt.runtime.pack.fixed import FixedPoints
from slurmopt.runtime.pack.fork import leave
from slurmopt.runtime.pack.gpus import breaks_forks, check_gpus
from slurmopt.runtime.pack.imports import import_all
from slurmopt.runtime.pack.journal import TaskJournal
from slurmopt.runtime.pack.loop import Loop
from slurmopt.runtime.pack.ownership import Ownership
from slurmopt.runtime.pack.source import PointSource
from slurmopt.runtime.pack.words import Pack, read
from slurmopt.runtime.ranks import RankFacts


def main(argv: list[str]) -> int:
    """Runs the points of one array task. Signals are taken already, and SIGCHLD is blocked."""
    pack = read(argv)
    open_files.raise_limit()
    open_files.close_logs_to_others()
    attempt = int(os.environ.get(run.ATTEMPT) or 0)
    facts = rank.export(pack.call, attempt)
    live = rank.come_alive(pack.call, attempt, facts)
    tree.adopt_orphans()
    last: list[Callable[[], None]] = []
    try:
        outcome = check(pack.call, attempt, facts, live) or _run(pack, attempt, facts, live, last)
    except (OSError, SlurmoptError) as error:
        outcome = failures.outcome_of(error)
        say(outcome.error or outcome.outcome)
    tree.clear_up()
    if (who := signals.asked()) is not None:
        live.note_asked(who)
    live.end(outcome)
    if outcome.outcome not in (FINISHED, REQUEUE):
        print(f"slurmopt: {outcome.error}", file=sys.stderr, flush=True)
    for work in last if outcome.outcome != REQUEUE else ():  # the next attempt does it
        work()
    leave(outcome)


def _run(pack: Pack, attempt: int, facts: RankFacts, live: LiveRank, last: list[Callable[[], None]]) -> Outcome:
    """`last`: takes what is to be done once the outcome is told."""
    live.enter("importing")
    points = Points.load(pack.sweep.points_file)
    places = shares.shares(pack.side_by_side, os.sched_getaffinity(0), os.environ)
    words = [shares.words(place, pack.ranks, os.environ) for place in places]
    os.environ.setdefault("OMP_NUM_THREADS", words[0].get("OMP_NUM_THREADS", "1"))
    imported = import_all(pack, points)
    imported.breaks_forks = breaks_forks()
    if imported.cuda:  # and checks its own GPU
        say("an import has initialised CUDA: each point starts a Python of its own, which takes seconds")
    elif (unfit := check_gpus(pack.call, facts)) is not None:
        return unfit
    journal = TaskJournal(pack.folder)
    ownership = Ownership(pack.sweep, pack.submission, pack.shared)
    source = source_of(pack, points, journal, ownership)
    surroundings.note(pack.folder, attempt, facts)
    live.enter("running")
    attempts, parts = Attempts(pack, attempt), list(zip(places, words, strict=True))
    archiving = Archiving(pack, points, journal, ownership)
    last.append(archiving.finish)
    return Loop(pack, source, journal, attempts, ownership, live, imported, parts, archiving).run()


def source_of(pack: Pack, points: Points, journal: TaskJournal, ownership: Ownership) -> PointSource:
    """Who decides on the points of this array task."""
    if points.kind == "search":
        from slurmopt.runtime.pack.trials import Trials

        return Trials(pack.sweep, points, pack.submission, pack.task, pack.job, journal)
    return FixedPoints(pack.sweep, points, pack.points, journal, pack.job, ownership, pack.name)
