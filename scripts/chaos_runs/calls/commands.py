"""The commands that `scripts/chaos calls` disturbs: what comes before each, and how its end is judged."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cluster import processes

from chaos_runs.calls import judged
from chaos_runs.calls.judged import Judge
from chaos_runs.calls.workplace import Workplace

POINTS = 6
_NEEDS = ("task.command=[sleep,600]", "resources.time=5m", "+resources.extra.begin=now+10days")
_LAUNCH = ("launch", *_NEEDS, "launch.name=a", "launch.id=one")
_SWEEP = ("launch", "-m", *_NEEDS, f"+n=range({POINTS})", "launch.name=s", "launch.id=one")
_POINT = ("launch", "-m", *_NEEDS, "+n=range(1)", "launch.name=s", "launch.id=one")
_PATIENCE = 60.0
AGE = 12.0
"""Seconds for which a job must be over, or unknown, before `tend` acts, and a little."""


@dataclass(frozen=True)
class Command:
    """One command and what it finds."""

    argv: tuple[str, ...]
    judge: Judge
    cancel: str | None
    """What is cancelled at the end; None where nothing is left to cancel."""
    before: tuple[tuple[str, ...], ...] = ()
    """Commands that make what it finds."""
    make: Callable[[Workplace], None] | None = None
    """What makes that besides; once."""
    settled: str = ""
    """What it says, on being repeated, where all has been done."""

    always: bool = False
    """Whether it is repeated even where it has said that all went well: by cron."""

    @property
    def reusable(self) -> bool:
        """Whether what it finds has no job, so that a copy of the folder is as good as a new one."""
        return bool(self.make) or any(words[0] == "cancel" for words in self.before)


def _killed(launch: tuple[str, ...], folder: str) -> Callable[[Workplace], None]:
    """Makes a run in `folder` whose batch shell and command were killed together, so that nobody could note an end."""

    def make(place: Workplace) -> None:
        done = place.slurmopt(launch)
        assert done.status == 0, done.err
        (job,) = place.jobs()
        place.slurm("scontrol", "update", f"JobId={job.id}", "StartTime=now")
        _wait(
            lambda: any(event["event"] == "attempt" for event in judged.events(place.runs / folder)), "the run begins"
        )
        _kill(place.conf, job.id)
        _wait(lambda: not place.jobs(), "the job ends")
        time.sleep(AGE)

    return make


def _kill(conf: Path, job: str) -> None:
    """The batch shell first, and then all else of the job but slurmstepd."""
    of_job = {"SLURM_CONF": str(conf), "SLURM_JOB_ID": job}
    mine = [one for one in processes.everything() if of_job.items() <= one.environment.items()]
    for one in sorted(mine, key=lambda one: "SLURM_STEP_ID" in one.environment):
        with contextlib.suppress(ProcessLookupError):
            os.kill(one.pid, signal.SIGKILL)


def _wait(ready: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _PATIENCE
    while not ready():
        if time.monotonic() > deadline:
            raise RuntimeError(f"{what}: not within {_PATIENCE:g} s")
        time.sleep(0.1)


def _retry(label: str, launch: tuple[str, ...], judge: Judge, settled: str) -> Command:
    before = (launch, ("cancel", label))
    return Command(("retry", label, "--more-time", "2"), judge, label, before, settled=settled)


COMMANDS = {
    "launch": Command(_LAUNCH, judged.run("5:00"), "a/one"),
    "sweep": Command(_SWEEP, judged.sweep("5:00"), "s/one"),
    "retry": _retry("a/one", _LAUNCH, judged.run("10:00"), "first: slurmopt cancel a/one"),
    "retry-sweep": _retry("s/one", _SWEEP, judged.sweep("10:00"), "nothing to retry|go on already"),
    "cancel": Command(
        ("cancel", "a/one"), judged.cancelled("a/one"), None, (_LAUNCH,), settled="has ended already: cancelled"
    ),
    "cancel-sweep": Command(
        ("cancel", "s/one"), judged.cancelled("s/one"), None, (_SWEEP,), settled=f"ended already: {POINTS} cancelled"
    ),
    "throttle": Command(("throttle", "s/one", "2"), judged.throttled(2), "s/one", (_SWEEP,)),
    "tend": Command(("tend",), judged.run("5:00"), "a/one", make=_killed(_LAUNCH, "a/one"), always=True),
    "tend-sweep": Command(
        ("tend",), judged.point("5:00"), "s/one", make=_killed(_POINT, "s/one/points/00000"), always=True
    ),
}
