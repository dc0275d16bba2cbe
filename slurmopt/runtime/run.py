"""What training code asks of the run it is in: `current_run`, `progress`, `stop_requested`."""

from __future__ import annotations

import atexit
import os
import signal
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from slurmopt.errors import JobError
from slurmopt.folder.layout import RunFolder
from slurmopt.runtime import signals
from slurmopt.runtime.live import PROGRESS, ChildReports, LiveRank
from slurmopt.runtime.ranks import RankFacts, rank_facts

FOLDER, ATTEMPT, LOCAL_RANK = "SLURMOPT_RUN_FOLDER", "SLURMOPT_ATTEMPT", "SLURMOPT_LOCAL_RANK"
_LOOK_EVERY = 1.0

_live: LiveRank | None = None  # in the rank's own process
_child: tuple[int, ChildReports | None] | None = None  # in a child: its process id, and where it reports
_asked = 0  # the process id of a child that has asked whether to stop
_looked = float("-inf")


@dataclass(frozen=True)
class CurrentRun:
    """The run that this process works for."""

    folder: RunFolder
    attempt: int
    rank: RankFacts


def current_run() -> CurrentRun:
    """The run that this process works for; JobError outside a slurmopt job."""
    folder = os.environ.get(FOLDER)
    if not folder:
        raise JobError(f"this process is in no slurmopt run ({FOLDER} is not set); start it with slurmopt launch")
    return CurrentRun(RunFolder(Path(folder)), int(os.environ.get(ATTEMPT) or 0), rank_facts())


def progress(step: int, total: int | None = None, **metrics: float) -> None:
    """Tells `slurmopt status` how far the training is. Cheap enough for every step; a no-op outside a slurmopt job.

    `metrics` are numbers, or what `float()` makes one of: a tensor on a GPU is waited for.
    """
    reports = _reports()
    if reports is not None:
        numbers = {name: float(value) for name, value in metrics.items()}
        reports.report(int(step), None if total is None else int(total), numbers)


def stop_requested() -> bool:
    """Whether the job is about to end (time limit, preemption): save, and raise `Requeue`.

    Ranks may see it a moment apart: let rank 0 decide and broadcast before all leave the loop together.
    """
    if FOLDER not in os.environ:
        return False
    if _is_rank_process():  # it learns of everything by itself
        return signals.requested()
    _take_signals()
    return signals.requested() or _stop_file_is_there()


def become(live: LiveRank) -> None:
    """Makes this process the rank's own (called once, by the rank's start)."""
    global _live
    _live = live


def _is_rank_process() -> bool:
    return _live is not None and _live.pid == os.getpid()


def _reports() -> LiveRank | ChildReports | None:
    global _child
    if _is_rank_process():
        return _live
    if _child is None or _child[0] != os.getpid():  # first use, or first use after a fork
        _child = (os.getpid(), _child_reports())
    return _child[1]


def _child_reports() -> ChildReports | None:
    name = os.environ.get(PROGRESS)
    # Under torchrun several workers share one rank of ours: the one with its local rank speaks for it.
    if not name or os.environ.get("LOCAL_RANK") != os.environ.get(LOCAL_RANK):
        return None
    reports = ChildReports(name)
    atexit.register(reports.flush)
    return reports


def _take_signals() -> None:
    """A script that asks is a script that saves: from its first question on, USR1 and TERM do not kill it."""
    global _asked
    if _asked == os.getpid() or threading.current_thread() is not threading.main_thread():
        return
    _asked = os.getpid()
    if _is_free(signal.SIGUSR1):
        signals.take_usr1()
    if _is_free(signal.SIGTERM):
        signals.take_term()


def _is_free(number: signal.Signals) -> bool:
    return signal.getsignal(number) in (signal.SIG_DFL, signal.SIG_IGN)


def _stop_file_is_there() -> bool:
    global _looked
    if time.monotonic() - _looked < _LOOK_EVERY:
        return False
    _looked = time.monotonic()
    run = current_run()
    if run.folder.stop_request(run.attempt).exists():
        signals.request()
    return signals.requested()
