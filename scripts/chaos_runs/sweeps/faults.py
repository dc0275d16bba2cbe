"""What is done to a sweep: each really caused, and mended before the next one."""

from __future__ import annotations

import contextlib
import random
import signal
import time
from collections.abc import Callable

from cluster import daemons, nodes

from chaos_runs.alive import words
from chaos_runs.survival.site import Missed
from chaos_runs.sweeps.watched import NODES, WatchedSweep

MOMENTS = ("points.json", "submitting", "submitted", "sweep.json")
"""When launchers are killed before one may live: a file of the sweep's folder, or a word of its journal."""
Fault = Callable[[WatchedSweep, random.Random], str]
"""Causes it; what was done, in a few words."""


def tasks_requeued(sweep: WatchedSweep, rng: random.Random) -> str:
    running = sweep.tasks()
    chosen = rng.sample(running, min(len(running), rng.randint(1, 6)))
    if not chosen:
        return "no array task runs"
    sweep.site.tries("scontrol", "requeue", ",".join(chosen))  # one of them may be over by now
    return f"{' '.join(chosen)} requeued"


def array_requeued(sweep: WatchedSweep, rng: random.Random) -> str:
    """The bare number of an array: what runs of it, and what has ended, is started again."""
    running = sweep.tasks()
    arrays = sorted({task.partition("_")[0] for task in running}) or sweep.jobs()
    array = rng.choice(arrays)
    sweep.site.tries("scontrol", "requeue", array)
    ended = sum(line["said"] == "done" and line["job"] == array for line in sweep.record)
    return f"array {array} requeued, {ended} points of it done, {len(running)} tasks running"


def node_killed(sweep: WatchedSweep, rng: random.Random) -> str:
    sweep.site.mend()
    up = [f"node{number}" for number in range(1, NODES + 1)]
    node = rng.choice([name for name in up if name not in sweep.site._dead])
    nodes.kill(sweep.site.layout, node)
    sweep.site.give_up(node)
    return f"{node} killed"


def launcher_killed(sweep: WatchedSweep, rng: random.Random) -> str:
    said = sweep.launch_killed(None, rng.uniform(0.2, 1.5))
    sweep.launch()
    return f"{said}, and launched again"


def rank_killed(sweep: WatchedSweep, rng: random.Random) -> str:
    running = sweep.running()
    chosen = rng.sample(running, min(len(running), rng.randint(1, 3)))
    for line in chosen:
        sweep.kill(line["pid"])
    return f"ranks of points {', '.join(str(line['point']) for line in chosen) or 'none'} killed"


def parent_killed(sweep: WatchedSweep, rng: random.Random) -> str:
    """Who starts the points of an array task; of a point on its own the supervisor's step goes on without."""
    running = [line for line in sweep.running() if b"slurmopt.job.pack" in words(line["parent"])]
    if not running:
        return "no parent runs"
    chosen = rng.choice(running)
    sweep.kill(chosen["parent"])
    return f"the parent of point {chosen['point']} killed"


def submitter_killed(sweep: WatchedSweep, rng: random.Random) -> str:
    """Who would submit the next array job, in some array task."""
    deadline = time.monotonic() + 8
    while time.monotonic() < deadline and sweep.folder.more.exists():
        found = [one for one in sweep.site.processes() if b"slurmopt.sweeps.submit.backlog" in words(one.pid)]
        if found:
            time.sleep(rng.uniform(0, 0.5))
            sweep.kill(found[0].pid)
            return f"process {found[0].pid} killed, which submits what is left"
    return "nobody submits"


def controller_paused(sweep: WatchedSweep, rng: random.Random) -> str:
    """slurmctld does not answer, while a rank dies and its supervisor asks for the requeue."""
    seconds = rng.uniform(2, 8)
    daemons.signal_controller(sweep.site.layout, signal.SIGSTOP)
    try:
        said = rank_killed(sweep, rng)
        time.sleep(seconds)
    finally:
        daemons.signal_controller(sweep.site.layout, signal.SIGCONT)
    return f"slurmctld paused for {seconds:.1f} s, {said}"


def controller_restarted(sweep: WatchedSweep, rng: random.Random) -> str:
    seconds = rng.uniform(0, 6)
    sweep.site.stop_controller()
    try:
        said = rank_killed(sweep, rng)
        time.sleep(seconds)
    finally:
        sweep.site.start_controller()
    return f"slurmctld away for {seconds:.1f} s, {said}"


def strangers_cancelled(sweep: WatchedSweep, rng: random.Random) -> str:
    """Jobs that are none of the sweep's, and one that does not exist."""
    job = sweep.site.slurm("sbatch", "--parsable", "-o", "/dev/null", "--array=0-1", "--wrap", "sleep 600").strip()
    sweep.strangers += 1
    with contextlib.suppress(Missed):
        sweep.site.wait(lambda: not sweep.site.tries("scontrol", "show", "job", job), 1, "it shows up")
    sweep.site.slurm("scancel", job, "99999")
    return f"array {job} of somebody else's cancelled"


KINDS: dict[str, Fault] = {
    "tasks requeued": tasks_requeued,
    "array requeued": array_requeued,
    "node killed": node_killed,
    "launcher killed": launcher_killed,
    "rank killed": rank_killed,
    "parent killed": parent_killed,
    "submitter killed": submitter_killed,
    "slurmctld paused": controller_paused,
    "slurmctld restarted": controller_restarted,
    "strangers cancelled": strangers_cancelled,
}
NAMES = tuple(KINDS)


def deck(rng: random.Random, faults: int, names: tuple[str, ...], packed: bool) -> list[str]:
    """All kinds in a random order, and so on until there are `faults`."""
    usable = [name for name in names if packed or name != "parent killed"]
    drawn: list[str] = []
    while usable and len(drawn) < faults:
        drawn += rng.sample(usable, len(usable))
    return drawn[:faults]
