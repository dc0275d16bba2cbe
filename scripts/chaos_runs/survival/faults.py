"""The faults: each is really caused, by Slurm's own commands, by signals, by mounts, and mended once the run is back.

A fault is a context manager. What is before its `yield` causes it; there the run comes back, in another attempt where
the fault ends one; what follows mends what is still broken.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from cluster import daemons, nodes, polling
from cluster.errors import ClusterError

from chaos_runs.alive import children, found, words
from chaos_runs.survival.watched import Watched
from slurmopt.run_folder import events

_LONG_LIMIT = 600
"""Minutes."""
_LEAST_LEFT = 30.0
"""A time limit is set so that this much is left at least; Slurm looks each 30 s."""
_SOON = 150.0


@dataclass(frozen=True)
class Fault:
    """One that was drawn. `causes`: what the journal may say of the ends that follow, in its very words, which are
    written down here once more to hold slurmopt to them; none: the run goes on."""

    kind: str
    causes: tuple[str, ...]
    cause: Callable[[Watched], AbstractContextManager[None]]
    is_notified: bool = False
    """Whether the run is left the time to save: then no step is lost."""
    most_ends: int = 1
    tier: str = "shared"
    """Where a new checkpoint shows that all is well again."""
    may_vanish: bool = False
    """Whether Slurm may fail a restart before anything of ours runs: it cannot open the job's log."""


Causing = Callable[[Watched, random.Random], Iterator[None]]


@dataclass(frozen=True)
class Kind:
    """A kind of fault; `draw` settles what is random about one."""

    name: str
    causing: Causing
    causes: tuple[str, ...] = ()
    is_notified: bool = False
    tier: str = "shared"
    needs: frozenset[str] = field(default_factory=frozenset)
    """Of `cgroups`, `s3`, `mount`."""

    def draw(self, rng: random.Random) -> Fault:
        seed = rng.random()

        def cause(run: Watched) -> AbstractContextManager[None]:
            return contextlib.contextmanager(self.causing)(run, random.Random(seed))

        return Fault(self.name, self.causes, cause, self.is_notified, len(self.causes), self.tier)


def time_limit(run: Watched, rng: random.Random) -> Iterator[None]:
    attempt, started = run.attempt, start_time(run)
    minutes = int((time.time() + _LEAST_LEFT - started) // 60) + 1
    run.site.slurm("scontrol", "update", f"JobId={run.job}", f"TimeLimit={minutes}")
    raising = threading.Thread(target=_raise_limit_at_end, args=(run, run.job, attempt), daemon=True)
    raising.start()
    try:
        told = "the signal ahead of the time limit"
        run.wait(lambda: run.journal("signal", attempt) or run.attempt > attempt, _SOON, told)
        yield
    finally:
        raising.join()


def _raise_limit_at_end(run: Watched, job: str, attempt: int) -> None:
    """As soon as the attempt has ended: the next one would start with the short limit, and be ended by it too."""

    def has_ended() -> bool:
        ends = [event.get("attempt") for event in events.read(run.folder.events) if event["event"] == "end"]
        return attempt in ends or attempt < max(run.folder.attempts())

    with contextlib.suppress(ClusterError):  # the limit ends the job then, which shows
        polling.wait_until(has_ended, _SOON, "the attempt ends")
    update = ("scontrol", "update", f"JobId={job}", f"TimeLimit={_LONG_LIMIT}")
    polling.wait_until(lambda: run.site.tries(*update), _SOON, "the time limit is raised again")


def start_time(run: Watched) -> float:
    """Since when the job runs: seconds since the epoch."""
    shown = run.site.slurm("scontrol", "show", "job", "--oneliner", run.job, SLURM_TIME_FORMAT="%s")
    return float(next(word[10:] for word in shown.split() if word.startswith("StartTime=")))


def preempted(grace: int) -> Causing:
    def causing(run: Watched, rng: random.Random) -> Iterator[None]:
        run.site.slurm("scontrol", "update", "PartitionName=preempt", f"GraceTime={grace}")
        wanted = ["-p", "urgent", "-w", ",".join(run.nodes), f"-N{len(run.nodes)}", "--exclusive"]
        urgent = run.site.slurm("sbatch", "--parsable", "-o", "/dev/null", *wanted, "--wrap", "sleep 3600").strip()
        try:
            yield
        finally:
            run.site.slurm("scancel", urgent)

    return causing


def requeued(run: Watched, rng: random.Random) -> Iterator[None]:
    run.site.slurm("scontrol", "requeue", run.job)
    yield


def node_killed(which: int) -> Causing:
    """`which`: 0 is the batch host."""

    def causing(run: Watched, rng: random.Random) -> Iterator[None]:
        node = run.nodes[which]
        nodes.kill(run.site.layout, node)
        run.site.give_up(node)
        yield

    return causing


def node_killed_while_saving(run: Watched, rng: random.Random) -> Iterator[None]:
    """Its writers are stopped in the midst of a save, so that they are surely there when the node dies."""
    which = rng.randrange(len(run.nodes))
    per_node = run.ranks // len(run.nodes)
    ranks = range(which * per_node, (which + 1) * per_node)
    writers = [pid for rank in ranks for pid in writers_of(run.pid(rank))]
    for _ in range(50):
        before = unfinished_saves(run)
        run.wait(lambda: unfinished_saves(run) - before, 60, "a save")  # noqa: B023
        for pid in writers:
            os.kill(pid, signal.SIGSTOP)
        if unfinished_saves(run) - before:
            break
        for pid in writers:
            os.kill(pid, signal.SIGCONT)
    yield from node_killed(which)(run, rng)


def writers_of(pid: int) -> list[int]:
    return [child for child in children(pid) if b"slurmopt.checkpoint.writer.main" in words(child)]


def unfinished_saves(run: Watched) -> set[Path]:
    saves = found(run.folder.checkpoints, f"step-*/a{run.attempt:04d}-*")
    return {save for save in saves if not (save / "manifest.json").exists()}


def node_held_dead(run: Watched, rng: random.Random) -> Iterator[None]:
    """Slurm loses a node, and what runs there runs on."""
    node, attempt = rng.choice(run.nodes), run.attempt
    nodes.partition(run.site.layout, node)
    run.site.give_up(node)
    yield
    gone = "the ranks on the node that was given up end"
    run.site.wait(lambda: not run.leftovers(before=attempt + 1), 60, gone)


def rank_killed(number: signal.Signals) -> Causing:
    def causing(run: Watched, rng: random.Random) -> Iterator[None]:
        with contextlib.suppress(ProcessLookupError):  # the other one of two faults at once was quicker
            os.kill(run.pid(rng.randrange(run.ranks)), number)
        yield

    return causing


def out_of_memory(run: Watched, rng: random.Random) -> Iterator[None]:
    request = run.site.project / "eat"
    part = request.with_name("eat.part")
    part.write_text(f"{run.attempt} {rng.randrange(run.ranks)}")
    part.rename(request)
    yield
    request.unlink()


def controller_restarted(run: Watched, rng: random.Random) -> Iterator[None]:
    """slurmctld is away when the supervisor wants its requeue."""
    attempt, away = run.attempt, rng.uniform(1, 12)
    pids = [run.pid(rank) for rank in range(run.ranks)]
    limit = contextlib.contextmanager(time_limit)(run, rng)
    with limit:
        daemons.stop_controller(run.site.layout)
        try:
            run.site.wait(lambda: not any(map(words, pids)) or run.attempt > attempt, 60, "the ranks end")
            time.sleep(away)
        finally:
            run.site.start_controller()
        yield


def read_only(run: Watched, rng: random.Random) -> Iterator[None]:
    yield from _for_a_while(run.site.make_read_only, run.site.make_writable, rng.uniform(5, 25))


def s3_away(run: Watched, rng: random.Random) -> Iterator[None]:
    yield from _for_a_while(run.site.stop_s3, run.site.start_s3, rng.uniform(3, 15))


def _for_a_while(cause: Callable[[], None], mend: Callable[[], None], seconds: float) -> Iterator[None]:
    """Mended on time whatever else is under way; a second fault may come meanwhile."""
    cause()
    timer = threading.Timer(seconds, mend)
    timer.start()
    yield
    timer.join()


KINDS = (
    Kind("time limit", time_limit, ("time limit",), is_notified=True),
    Kind("preemption", preempted(5), ("preemption",), is_notified=True),
    Kind("preemption without grace", preempted(0), ("preemption",)),
    Kind("requeue", requeued, ("requeued",), is_notified=True),
    Kind("batch node killed", node_killed(0), ("node failure",)),
    Kind("other node killed", node_killed(1), ("node failure",)),
    Kind("node killed while saving", node_killed_while_saving, ("node failure",)),
    Kind("node held dead", node_held_dead, ("node failure",)),
    Kind("rank killed", rank_killed(signal.SIGKILL), ("killed",)),
    Kind("rank stopped", rank_killed(signal.SIGSTOP), ("hang",)),
    Kind("out of memory", out_of_memory, ("out of memory",), needs=frozenset({"cgroups"})),
    Kind("slurmctld restarted", controller_restarted, ("time limit",), is_notified=True),
    Kind("read-only folder", read_only, needs=frozenset({"mount"})),
    Kind("S3 away", s3_away, tier="s3", needs=frozenset({"s3"})),
)
TWO = "two at once"
_COMBINED = (
    "time limit", "preemption", "requeue", "batch node killed", "other node killed", "rank killed",
    "rank stopped", "S3 away", "read-only folder",
)  # fmt: skip
NAMES = (*(kind.name for kind in KINDS), TWO)


def deck(rng: random.Random, faults: int, names: tuple[str, ...], lacks: set[str]) -> list[Fault]:
    """All kinds in a random order, and so on until there are `faults`; without those that this site cannot cause."""
    known = {kind.name: kind for kind in KINDS if not kind.needs & lacks}
    drawn: list[Fault] = []
    while len(drawn) < faults:
        order = list(names)
        rng.shuffle(order)
        drawn += [fault for name in order if (fault := _draw(name, known, rng)) is not None]
    return drawn[:faults]


def _draw(name: str, known: dict[str, Kind], rng: random.Random) -> Fault | None:
    if name != TWO:
        return known[name].draw(rng) if name in known else None
    first, second = (known[each].draw(rng) for each in rng.sample([each for each in _COMBINED if each in known], 2))

    @contextlib.contextmanager
    def both(run: Watched) -> Iterator[None]:
        with first.cause(run), second.cause(run):
            yield

    tier = "s3" if "s3" in (first.tier, second.tier) else "shared"
    kind, either = f"{first.kind} + {second.kind}", (*first.causes, *second.causes)
    if "node failure" in either:  # an attempt that began before Slurm missed the node: its step is refused
        either = (*either, "infrastructure")
    return Fault(kind, either, both, False, len(either), tier, "read-only folder" in kind)
