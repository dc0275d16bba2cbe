"""Runs one rank from start to end: facts, signals, heartbeat, task, outcome."""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
import threading
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from slurmopt.errors import JobError, SlurmoptError
from slurmopt.job import failures, signals
from slurmopt.job.facts import open_files, process_tree
from slurmopt.job.facts.cpus import use_own_cpus
from slurmopt.job.facts.gpus import any_promised
from slurmopt.job.facts.rank_facts import (
    RankFacts,
    exports,
    launched_facts,
    one_per_node,
    ranks_of_torchrun,
    torchrun_exports,
)
from slurmopt.job.health.run_checks import check
from slurmopt.job.heartbeat.heartbeat_writer import HeartbeatWriter
from slurmopt.job.monitor.start import sampled
from slurmopt.job.profiling.tracing import traced
from slurmopt.job.rank_args import COMMAND, NO_VERDICT, OF_POINT, SUPERVISOR, RankArgs, parse
from slurmopt.job.rendezvous.gloo import gloo_exports
from slurmopt.job.rendezvous.nccl import nccl_exports
from slurmopt.job.sinks import feed
from slurmopt.job.watchdog import flight_recorder
from slurmopt.job.watchdog.stacks import Stacks
from slurmopt.job.worker import current_run as run
from slurmopt.job.worker import whole_job
from slurmopt.job.worker.compile_cache import compile_cache
from slurmopt.job.worker.point import of_point
from slurmopt.job.worker.profiled import observed, run_below_profiler
from slurmopt.job.worker.staging import Staging
from slurmopt.run_folder.access.open_folders import held
from slurmopt.run_folder.outcome import FINISHED, REQUEUE, USER_ERROR, Outcome

if TYPE_CHECKING:
    from slurmopt.job.memory.stored import MemoryRequests
    from slurmopt.job.profiling.own_requests import OwnRequests

UNPREPARED = (SlurmoptError, OSError, ImportError)
"""What can keep a point from being prepared; `unprepared` makes the outcome of it."""
_LAST_SECONDS = 10
_SUBMITIT_SECONDS = 60
"""For submitit's pickle of an error, on a shared file system, and for the user's threads."""


class Task(Protocol):
    """What a rank runs."""

    def run(self) -> Outcome: ...

    def leave(self) -> None: ...


def main(argv: list[str]) -> int:
    """Runs one rank. The exit status is 0 if it finished or asks for a requeue. Signals are taken already."""
    if (status := run_below_profiler(argv)) is not None:
        return status
    outcome = run_rank(argv)
    sys.stdout.flush()
    sys.stderr.flush()
    if outcome.outcome == FINISHED:
        if OF_POINT in argv and NO_VERDICT not in argv:
            _end_of_point()
        if outcome.pruned:  # its process group still stands
            threading._shutdown()  # type: ignore[attr-defined]
            leave_now()
        return 0
    if outcome.outcome == REQUEUE:
        if outcome.by_signal:
            threading._shutdown()  # type: ignore[attr-defined]  # what its threads still save is not cut short
        leave_now()
    # Whatever hangs at exit after a failure (an aborted collective, a thread of the user's) would hold up all ranks.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(_LAST_SECONDS)
    threading._shutdown()  # type: ignore[attr-defined]  # as Python does at its end
    # NCCL's threads ask the store, which is Python's: one that does so once Python has ended would abort the process.
    leave_now(outcome.exit_code or 1)


def _end_of_point() -> None:
    """Ends the only rank of a point that ended well: writes the verdict in this process and skips torch's teardown.
    This saves a Python process and seconds for each point."""
    here = run.current_run()
    if here.rank.world_size > 1:
        return
    from slurmopt.job.supervisor.verdict import write_verdict

    threading._shutdown()  # type: ignore[attr-defined]  # waits for the user's threads, as Python does at its end
    write_verdict(here.folder, here.attempt)
    leave_now()


def leave_now(status: int = 0) -> NoReturn:
    """Ends a rank that has saved, after its exit handlers. torch's teardown would take seconds, and the job has few
    left."""
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def submitit_task(argv: list[str]) -> Any:
    """`main` for a rank that submitit started: returns the function's result, raises when the rank failed.

    submitit's handlers for USR2, TERM and CONT are replaced, because only the batch shell requests another attempt.
    """
    signals.install(signal.SIGUSR2)
    signal.signal(signal.SIGCONT, signal.SIG_DFL)
    outcome = run_rank(argv)
    if outcome.outcome == REQUEUE:  # submitit gets nothing: the next attempt will write the result
        if outcome.by_signal:
            threading._shutdown()  # type: ignore[attr-defined]
        leave_now()
    if outcome.outcome != FINISHED:
        _leave_after_submitit()
        raise JobError(f"{outcome.outcome}: {outcome.error}\n{outcome.traceback or ''}".rstrip())
    return outcome.result


def _leave_after_submitit() -> None:
    """Makes this process end as `main` ends a failed rank, once submitit has written the error: in the first exit
    handler, before the interpreter shuts down. NCCL's monitor threads outlive it and use the store, which is in Python,
    so the process would abort, or hang with all other ranks."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(_SUBMITIT_SECONDS)

    def leave() -> None:
        atexit.unregister(leave)  # `leave_now` runs all the others
        signal.alarm(_LAST_SECONDS)
        leave_now(1)

    atexit.register(leave)


def run_rank(argv: list[str]) -> Outcome:
    """Runs one rank and writes its outcome to its heartbeat file. Signals are taken already."""
    open_files.raise_limit()
    open_files.close_logs_to_others()
    call = parse(argv)
    if call.per == "rank":
        use_own_cpus(launched_facts(os.environ), call.cpu_bind)
    attempt = int(os.environ.get(run.ATTEMPT) or 0)
    facts = export(call, attempt)
    sampling = None if NO_VERDICT in argv else call.monitor  # the parent of a pack has a sampler for all points
    with (
        contextlib.closing(start_heartbeat(call, attempt, facts)) as live,
        sampled(sampling, call.folder, attempt, facts, whole_job=call.per == "job"),
    ):
        try:
            call = of_point(call, facts.rank)
        except UNPREPARED as error:
            return unprepared(error, live)
        if NO_VERDICT in argv:  # the parent of a pack has staged for all points
            call = replace(call, stage=None)
        live.name_gpus()  # not for packed points, which take milliseconds
        own = _own_requests(call, attempt, facts, live)
        with traced(call.folder, attempt, facts, call.command, call.profile, own, _memory(call, facts, live)):
            return run_task(call, attempt, facts, live)


def run_task(call: RankArgs, attempt: int, facts: RankFacts, live: HeartbeatWriter) -> Outcome:
    """Checks and stages the node, runs the function or the command, and writes the outcome to the heartbeat file."""
    sinks = feed.start(call, attempt, facts, live)
    task = _task(call, attempt, facts, live)
    staging = Staging(call, attempt, facts, live)
    outcome = check(call, attempt, facts, live) or staging.run()
    if outcome is None:
        with observed(call, attempt, facts):
            outcome = _judged(task.run(), call, live)
    if (who := signals.asked()) is not None:
        live.note_asked(who)
    if outcome.outcome == FINISHED:
        outcome.note = run.end_note()
    live.end(outcome)
    if sinks is not None:
        sinks.end(outcome, hurried=signals.requested() or outcome.outcome not in (FINISHED, USER_ERROR))
    if outcome.outcome in (FINISHED, REQUEUE) and not outcome.pruned and not _is_alone(call, facts):
        task.leave()  # where rank 0 prunes, the others know nothing of that: no goodbye
    if sinks is not None:
        sinks.wait()
    staging.end(outcome)
    return outcome


def _judged(outcome: Outcome, call: RankArgs, live: HeartbeatWriter) -> Outcome:
    """The outcome of a task that got a signal: one that ends without an error may only have followed the signal."""
    if outcome.outcome != FINISHED or outcome.pruned or call.exit_after_signal == FINISHED:
        return outcome
    signals.catch_up()
    live.catch_up()
    return failures.left() if signals.told() else outcome


def _is_alone(call: RankArgs, facts: RankFacts) -> bool:
    """Whether this is the only rank of a point. It ends by `os._exit` without destroying its process group, which takes
    10 ms."""
    return facts.world_size == 1 and call.folder.in_sweep


def unprepared(error: Exception, live: HeartbeatWriter) -> Outcome:
    """Prints and writes the outcome of a point that could not be prepared: a disk or quota is full, or the Python lacks
    a package."""
    if isinstance(error, ImportError):
        lacks = f"{sys.executable} lacks {error.name}, which a point's config needs: install it there"
        outcome = failures.user_error(lacks)
    else:
        outcome = failures.outcome_of(error) if isinstance(error, OSError) else failures.user_error(str(error))
    print(f"slurmopt: {outcome.error}", file=sys.stderr)
    live.end(outcome)
    return outcome


def export(call: RankArgs, attempt: int) -> RankFacts:
    """Exports the rank's facts to the environment."""
    if call.per == "job":
        whole_job.forget_rank(os.environ)
    facts, ranks_each = launched_facts(os.environ), 1
    if call.per == "node":
        facts, ranks_each = one_per_node(facts), ranks_of_torchrun(os.environ, call.ranks_per_node)
        os.environ.update(torchrun_exports(facts, os.environ, call.ranks_per_node))
    if not call.distributed:
        for name in exports(facts):
            os.environ.pop(name, None)
    elif call.per != "job":
        os.environ.update(exports(facts))
        os.environ.update(gloo_exports(facts, os.environ, ranks_each, call.network.interface))
        if call.backend != "gloo" and any_promised(os.environ):
            os.environ.update(nccl_exports(call.network, facts, os.environ))
    os.environ.update({run.FOLDER: str(call.folder.path), run.ATTEMPT: str(attempt)})
    os.environ.pop(COMMAND, None)
    os.environ.setdefault("SLURMOPT_CONFIG", str(call.folder.config))
    os.environ[run.LOCAL_RANK] = str(facts.local_rank)
    flight_recorder.ask_for(call.folder, attempt, os.environ)
    os.environ.update(compile_cache(call.health.scratch_path if call.health else None, os.environ))
    return facts


def start_heartbeat(call: RankArgs, attempt: int, facts: RankFacts) -> HeartbeatWriter:
    """Starts the heartbeat, and the checks for external requests to stop."""
    stop_file, newer = call.folder.stop_request(attempt), call.folder.attempt_logs(attempt + 1)
    supervisor = int(os.environ.pop(SUPERVISOR, 0))

    def watch() -> None:
        if os.path.exists(held(stop_file)):  # Path.exists would raise where the handle is stale
            signals.request("file")
        if os.path.exists(held(newer)):
            give_up("a newer attempt of this run has started: this node was given up")
        if supervisor and os.getppid() != supervisor:
            give_up("the process that started this rank is gone")

    def give_up(why: str) -> None:
        if live.phase == "ended":  # its last word is told already
            os.write(2, f"slurmopt: rank {facts.rank} waited for the others, and ends: {why}\n".encode())
        live.end(failures.killed(signal.SIGKILL, why))
        process_tree.kill_below(os.getpid())
        os._exit(128 + signal.SIGKILL)

    record = partial(flight_recorder.write, call.folder, attempt, facts.rank)
    stacks = Stacks(call.folder.stacks_request(attempt), call.hang_after, call.heartbeat, record)
    path, launches = call.folder.heartbeat(attempt, facts.rank), _launches(call)
    live = HeartbeatWriter(path, facts, call.heartbeat, watch, stacks, launches)
    live.start()
    run.become(live)
    signals.listen(lambda number: live.note_asked(signals.asked() or ""))
    watch()  # the request may be older than this rank
    return live


def _own_requests(call: RankArgs, attempt: int, facts: RankFacts, live: HeartbeatWriter) -> OwnRequests | None:
    if call.automatic is None or facts.rank != 0:
        return None
    from slurmopt.job.profiling.own_requests import OwnRequests

    return OwnRequests(call.folder, attempt, call.automatic, live.measured)


def _memory(call: RankArgs, facts: RankFacts, live: HeartbeatWriter) -> MemoryRequests | None:
    if call.function is None or not call.profile:
        return None
    from slurmopt.job.memory.stored import MemoryRequests

    return MemoryRequests(call.folder, facts, live.meter)


def _launches(call: RankArgs) -> int:
    """How many ranks the command starts in this process; 0 if only the command knows."""
    if call.per == "rank":
        return 1
    told = os.environ.get("PET_NPROC_PER_NODE", "") if call.per == "node" else ""
    return int(told) if told.isdecimal() else 0


def _task(call: RankArgs, attempt: int, facts: RankFacts, live: HeartbeatWriter) -> Task:
    if call.function is None:
        from slurmopt.job.worker.command import CommandTask

        return CommandTask(call, facts, attempt, live)
    from slurmopt.job.worker.function import FunctionTask

    return FunctionTask(call, facts, attempt, live)
