"""Forks one rank of a point, and runs that process from its first instruction to its last.

It dies with the parent, whatever becomes of that. How it ended it says twice: in its heartbeat file, and, for a full
file system, through a pipe.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import json
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NoReturn

from slurmopt import job
from slurmopt.errors import one_line
from slurmopt.job import signals
from slurmopt.job.pack.point_source import PointSource
from slurmopt.job.pack.process.fresh import Imported, limit_gpu_memory
from slurmopt.job.pack.process.shares import Share
from slurmopt.job.rank_args import NO_VERDICT, RankArgs, parse
from slurmopt.job.worker import current_run, point
from slurmopt.job.worker import rank as ranks
from slurmopt.run_folder.access.files import open_append
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.outcome import EXIT_STATUS, FINISHED, INFRASTRUCTURE, REQUEUE, Outcome

_PR_SET_PDEATHSIG = 1
_LAST_SECONDS = 10
_MOST_OF_A_WORD = 2000
_MAIN = os.path.join(os.path.dirname(job.__file__), "__main__.py")
_OOM_SCORE = "500"
"""Makes the kernel's OOM killer choose a point and not the parent."""


@dataclass(frozen=True, kw_only=True)
class Order:
    """What one rank of an attempt of a point is to run."""

    folder: RunFolder
    point: int
    attempt: int
    rank: int
    words: list[str]
    """Of a rank, without the folder."""
    environment: dict[str, str]
    share: Share
    imported: Imported
    source: PointSource
    """Rank 0 tells it that the point has begun."""


@dataclass
class Child:
    """A forked process, and the pipe for its outcome."""

    pid: int
    word: int

    def last_word(self) -> dict[str, Any] | None:
        """The outcome that it sent at its end; None if it could not. Called once, when it has ended."""
        try:
            message = os.read(self.word, 65536)
        except BlockingIOError:  # a helper of its own still holds the pipe open
            message = b""
        finally:
            os.close(self.word)
        return json.loads(message) if message else None


def fork_rank(order: Order) -> Child:
    """Forks the rank. Raises OSError if no process can be created."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    try:
        pid = forked(partial(_rank, order, writer))
    except OSError:
        os.close(reader)
        raise
    finally:
        os.close(writer)
    return Child(pid, reader)


def forked(work: Callable[[], None]) -> int:
    """The process id of a child that does `work` and ends; it starts with the signals blocked that the parent waits
    for, and with SIGTERM."""
    parent = os.getpid()
    sys.stdout.flush()
    sys.stderr.flush()
    with _held(signal.SIGTERM), warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of the parent's own threads none holds a lock here
        pid = os.fork()
        if pid == 0:
            _begin(parent, work)
    return pid


@contextlib.contextmanager
def _held(number: signal.Signals) -> Iterator[None]:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {number})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin(parent: int, work: Callable[[], None]) -> NoReturn:
    """Runs the child. It must not return or raise, as the parent's stack is above."""
    status = 1
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(128 + signal.SIGKILL)
        os.setsid()
        with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
            file.write(_OOM_SCORE)
        work()
        status = 0
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else 1
    except BaseException:  # noqa: BLE001 - the last frame of this process
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(status)


def release_signals() -> None:
    """Lets the signals through that `forked` and the parent's loop hold back."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM, signal.SIGCHLD})


def _rank(order: Order, writer: int) -> NoReturn:
    try:
        _become_rank(order)
        if order.imported.cuda:
            _start_python(order)
        outcome = _run_point(order)
        _refuse_unwritten()  # what the point returned would be lost with its heartbeat
    except OSError as error:
        # The log, the heartbeat: what a rank needs before anything of the user's runs, and at its end.
        _say(writer, {"trouble": one_line(f"{error.strerror or error}: {error.filename or order.folder.path}")})
        raise SystemExit(EXIT_STATUS[INFRASTRUCTURE]) from error
    word = {
        "outcome": outcome.outcome,
        "exit_code": outcome.exit_code,
        "error": (outcome.error or "")[:_MOST_OF_A_WORD],
        "pruned": outcome.pruned,
    }
    _say(writer, word)
    leave(outcome, wait=True)


def _say(writer: int, word: dict[str, Any]) -> None:
    os.write(writer, json.dumps(word).encode())


def _become_rank(order: Order) -> None:
    """Sets the rank's log, working directory, and share of the node, as the batch shell and Slurm do for a new
    process."""
    signals.start_afresh()
    log = open_append(order.folder.rank_log(order.attempt, order.rank))
    nothing = os.open(os.devnull, os.O_RDONLY)
    for target, source in ((0, nothing), (1, log), (2, log)):
        os.dup2(source, target)
    os.close(log)
    os.close(nothing)
    os.environ.update(order.environment)
    if order.share.cpus and set(order.share.cpus) != os.sched_getaffinity(0):
        os.sched_setaffinity(0, order.share.cpus)
    order.imported.renew([_MAIN, str(order.folder.path), *order.words])


def _run_point(order: Order) -> Outcome:
    signals.install()
    release_signals()
    if order.share.fraction is not None:
        limit_gpu_memory(order.share.fraction)
    words = parse([str(order.folder.path), *order.words])
    call = replace(words, folder=order.folder, health=None, stage=None)  # the parent has done both for all
    facts = ranks.export(call, order.attempt)
    with contextlib.closing(ranks.start_heartbeat(call, order.attempt, facts)) as live:
        try:
            call = _of_point(order, call, facts.rank)
        except ranks.UNPREPARED as error:
            return ranks.unprepared(error, live)
        return ranks.run_task(call, order.attempt, facts, live)


def _of_point(order: Order, call: RankArgs, rank: int) -> RankArgs:
    """What `point.of_point` does, where the parent has made the config."""
    _refuse_unwritten()  # nor would anybody learn how it ended
    config = point.read(call.folder)
    point.set_variables(config, os.environ)
    if rank == 0:
        order.source.began(order.point)
    return replace(point.with_task(call, config), config=config)


def _refuse_unwritten() -> None:
    if (error := current_run.unwritten()) is not None:
        raise error


def _start_python(order: Order) -> NoReturn:
    """Starts a new Python process, because CUDA has been initialised in the parent. A point then costs seconds."""
    release_signals()
    words = ["-m", "slurmopt.job", NO_VERDICT, str(order.folder.path), *order.words]
    os.environ[current_run.ATTEMPT] = str(order.attempt)
    os.execv(sys.executable, [sys.executable, *words])  # noqa: S606 - no shell


def leave(outcome: Outcome, wait: bool = False) -> NoReturn:
    """As a Python ends, but for taking the interpreter apart: that takes torch longer than the point may have taken.

    `wait` waits for non-daemon threads.
    """
    if outcome.outcome not in (FINISHED, REQUEUE):  # whatever hangs at exit after a failure would hold up all ranks
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(_LAST_SECONDS)
    if wait and (outcome.outcome != REQUEUE or outcome.by_signal):
        threading._shutdown()  # type: ignore[attr-defined] # waits for the user's threads
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0 if outcome.outcome in (FINISHED, REQUEUE) else outcome.exit_code or 1)
