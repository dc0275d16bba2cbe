"""The API of training code on its run: `current_run`, `progress`, `stop_requested`, `on_stop`."""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from slurmopt import log
from slurmopt.errors import JobError, Pruned, Requeue, one_line
from slurmopt.job import failures, signals
from slurmopt.job.facts.rank_facts import RankFacts, rank_facts
from slurmopt.job.heartbeat import ddp_timings
from slurmopt.job.heartbeat.child_reports import PROGRESS, ChildReports
from slurmopt.job.heartbeat.heartbeat_writer import HeartbeatWriter
from slurmopt.job.heartbeat.pending_metrics import number
from slurmopt.job.heartbeat.training_meter import TrainingMeter
from slurmopt.job.profiling.marks import marked
from slurmopt.run_folder.access.files import open_append
from slurmopt.run_folder.access.open_folders import held
from slurmopt.run_folder.layout import RunFolder, run_folder

FOLDER, ATTEMPT, LOCAL_RANK = "SLURMOPT_RUN_FOLDER", "SLURMOPT_ATTEMPT", "SLURMOPT_LOCAL_RANK"
_LOOK_EVERY = 1.0

_live: HeartbeatWriter | None = None  # in the rank's own process
_child: tuple[int, ChildReports | None] | None = None  # in a child: its process id, and where it reports
_asked = 0  # the process id of a child that has asked whether to stop
_looked = float("-inf")
_end_note: str | None = None
_judge: Callable[[int, int | None, dict[str, float]], bool] | None = None  # of a search: whether to give this trial up
_hook: object = None
_warned = False


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
    return CurrentRun(run_folder(Path(folder), os.environ), int(os.environ.get(ATTEMPT) or 0), rank_facts())


def progress(
    step: int, total: int | None = None, *, tokens: float | None = None, samples: float | None = None, **metrics: float
) -> None:
    """Reports the progress of the training, as `slurmopt status` shows it. Cheap enough for every step; a no-op outside
    a slurmopt job.

    `tokens` and `samples` are what this rank has processed since its last call: they are added up, and are metrics too.
    `metrics` are numbers, or values that `float()` converts. A tensor on a GPU is not waited for: its value at this
    call is shown once the GPU has computed it. Only the search of a trial needs it at once. Raises `Pruned` in a trial
    that its search gives up.
    """
    reports = _reports()
    if reports is None:
        return
    if tokens is not None:
        metrics["tokens"] = tokens
    if samples is not None:
        metrics["samples"] = samples
    judge = _judge if reports is _live else None
    if judge is not None:
        metrics = {name: number(name, value) for name, value in metrics.items()}
    reports.report(int(step), None if total is None else int(total), metrics)
    if (at_step := reports.meter.at_step) is not None:
        at_step()
    if judge is not None and judge(int(step), total, metrics):
        raise Pruned(f"given up at step {step}: other trials did better")


def stop_requested() -> bool:
    """Whether the job is about to end (time limit, preemption). If so, save and raise `Requeue`.

    A training with a `Checkpointer` need not ask: `save` does this on all ranks at the same step. Without one, ranks
    may see the request a moment apart: let rank 0 decide and broadcast, so that all leave the loop together.
    """
    if not is_stop_requested():
        return False
    tell()
    return True


def is_stop_requested() -> bool:
    """As `stop_requested()`, but for slurmopt itself: the training does not count as notified."""
    if FOLDER not in os.environ:
        return False
    if _is_rank_process():  # it learns of everything by itself
        return signals.requested()
    take_signals()
    return signals.requested() or _stop_file_is_there()


def tell() -> None:
    """Notes that the training knows of the stop, so that the end of this attempt does not end the run."""
    if signals.told():
        return
    signals.tell()
    if not _is_rank_process() and (name := os.environ.get(PROGRESS)):
        ChildReports(name).tell()


def on_stop(callback: Callable[[], None]) -> None:
    """Calls `callback` once, in a thread of its own, when the job is about to end: for loops without steps.

    The callback may save and then raise `Requeue`, which ends this rank at once as saved. Any other error is logged in
    one line, and the run continues until its time is over. A no-op outside a slurmopt job.
    """
    if FOLDER not in os.environ:
        return
    take_signals()
    threading.Thread(target=_call_on_stop, args=(callback,), name="slurmopt-on-stop", daemon=True).start()


def _call_on_stop(callback: Callable[[], None]) -> None:
    while not (signals.wait(_LOOK_EVERY) or is_stop_requested()):
        pass
    tell()
    try:
        callback()
    except Requeue as error:
        leave_at_once(str(error), status=0)
    except Exception as error:  # noqa: BLE001 - the boundary to the user's code
        line = one_line(f"{type(error).__name__}: {error}")
        log.warning(f"the on_stop callback failed, and the run goes on: {line}")


def leave_at_once(why: str, status: int = Requeue.exit_status) -> None:
    """Ends this process as one that asks for another attempt, whatever its threads do. `status`: of the rank's own
    process; with another one than 0 Slurm ends the other ranks. Does nothing outside a slurmopt job."""
    if FOLDER not in os.environ:
        return
    if _is_rank_process() and _live is not None:
        _live.end(failures.requeue(one_line(why)))
    leave_word()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status if _is_rank_process() else Requeue.exit_status)


def leave_word() -> None:
    """Makes the requeue file before a child of the rank ends as saved, because its exit status can be lost (under
    torchrun) and its exception be caught (by a library that catches all)."""
    if FOLDER not in os.environ or _is_rank_process():
        return
    try:
        os.close(open_append(current_run().folder.requeue_wish()))
    except OSError as error:
        log.warning(f"the requeue file cannot be written: {error}")


def _take_uncaught() -> None:
    """Installs a hook by which an uncaught `Requeue` of a child is no failure, but ends the process with its own exit
    status."""
    global _hook
    if FOLDER not in os.environ or sys.excepthook is _hook:
        return
    before = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if not issubclass(kind, Requeue) or _is_rank_process():
            before(kind, error, trace)
            return
        leave_word()
        log.info(one_line(str(error)))
        raise SystemExit(Requeue.exit_status)  # a hook's return would leave the status at 1

    sys.excepthook = _hook = hook


@contextlib.contextmanager
def phase(name: str) -> Iterator[None]:
    """Names what the training does in the block, such as `evaluation`, also in traces of torch.profiler and Nsight
    Systems. A phase may take longer than a step before it counts as a hang. Outside a slurmopt job it is only a mark in
    traces."""
    if name == "ended":
        raise JobError("phase: 'ended' is what a rank is at its very end; valid: another name, such as 'evaluation'")
    reports = _reports()
    if reports is None:
        with marked(name):
            yield
        return
    clock = reports.meter.clock
    before, outer = reports.phase, clock.begin(name)
    reports.show(name)
    try:
        with marked(name):
            yield
    finally:
        clock.resume(outer)
        reports.show(before)


def note_end(text: str) -> None:
    """Says how the training ends, if it finishes now; `slurmopt status` shows the text of rank 0."""
    global _end_note
    _end_note = one_line(text)


def end_note() -> str | None:
    """What `note_end` was told last."""
    return _end_note


def meter() -> TrainingMeter | None:
    """What measures the training in this process; None where it reports nothing."""
    reports = _reports()
    return None if reports is None else reports.meter


def moved(count: int) -> None:
    """Reports to the watchdog that `count` bytes were read or written. A restore may take longer than other phases, as
    long as it moves data."""
    if _is_rank_process() and _live is not None:
        _live.moved(count)


def become(live: HeartbeatWriter) -> None:
    """Makes this process the rank's own (called once, by the rank's start)."""
    global _live
    _live = live


def unwritten() -> OSError | None:
    """Why this rank's last heartbeat could not be written; None if it was written."""
    return None if _live is None else _live.unwritten


def judge_by(judge: Callable[[int, int | None, dict[str, float]], bool]) -> None:
    """Makes `progress` ask `judge`, with step, total and metrics, whether to give up this trial."""
    global _judge
    _judge = judge


def _is_rank_process() -> bool:
    return _live is not None and _live.pid == os.getpid()


def _reports() -> HeartbeatWriter | ChildReports | None:
    global _child
    if _is_rank_process():
        return _live
    if _child is None or _child[0] != os.getpid():  # first use, or first use after a fork
        _child = (os.getpid(), _child_reports())
    return _child[1]


def _child_reports() -> ChildReports | None:
    name = os.environ.get(PROGRESS)
    # Under torchrun or a srun of the user's own several workers share one rank of ours: the one with its local rank
    # speaks for it. Where no variable tells them apart, there is one.
    own_rank = os.environ.get(LOCAL_RANK)
    if not name or os.environ.get("LOCAL_RANK", _slurm_local_rank(own_rank)) != own_rank:
        return None
    ddp_timings.find_models()
    reports = ChildReports(name)
    atexit.register(reports.close)
    return reports


def _slurm_local_rank(otherwise: str | None) -> str | None:
    """The local rank within a step of srun, the user's own or slurmopt's."""
    return os.environ.get("SLURM_LOCALID", otherwise) if "SLURM_STEP_ID" in os.environ else otherwise


def take_signals() -> None:
    """Takes USR1 and TERM, so that they do not kill a script that asks whether to stop and so is able to save."""
    global _asked
    if FOLDER not in os.environ or _is_rank_process() or _asked == os.getpid():
        return
    if threading.current_thread() is not threading.main_thread():  # handlers can only be set there
        return _warn_of_thread()
    _asked = os.getpid()
    _take_uncaught()  # again: a library may have set a hook of its own meanwhile
    if free := [number for number in (signal.SIGUSR1, signal.SIGTERM) if _is_free(number)]:
        signals.take(*free)


def _warn_of_thread() -> None:
    global _warned
    if not _warned and _is_free(signal.SIGTERM):
        _warned = True
        name = threading.current_thread().name
        log.warning(
            f"first asked whether to stop in the thread {name!r}: SIGTERM will end this process before it can save; "
            "make the Checkpointer, or call stop_requested() once, in the main thread"
        )


def _is_free(number: signal.Signals) -> bool:
    return signal.getsignal(number) in (signal.SIG_DFL, signal.SIG_IGN)


def _stop_file_is_there() -> bool:
    global _looked
    if time.monotonic() - _looked < _LOOK_EVERY:
        return False
    _looked = time.monotonic()
    run = current_run()
    if os.path.exists(held(run.folder.stop_request(run.attempt))):  # Path.exists would raise where the handle is stale
        signals.request("file")
    return signals.requested()


_take_uncaught()
if PROGRESS in os.environ:  # in a command's Python, which has often imported torch by now
    ddp_timings.find_models()
