"""The commands that `scripts/chaos calls` disturbs: what comes before each, and how its end is judged."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from chaos_runs import calls_judged as judged
from chaos_runs.calls_judged import Judge
from chaos_runs.calls_site import Workplace

POINTS = 5
_NEEDS = ("task.command=[sleep,600]", "resources.time=5m", "+resources.extra.begin=now+10days")
_LAUNCH = ("launch", *_NEEDS, "launch.name=a", "launch.id=one")
_SWEEP = ("launch", "-m", *_NEEDS, f"+n=range({POINTS})", "launch.name=s", "launch.id=one")
_PATIENCE = 60.0


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

    @property
    def reusable(self) -> bool:
        """Whether what it finds has no job, so that a copy of the folder is as good as a new one."""
        return bool(self.make) or any(words[0] == "cancel" for words in self.before)


def _preempted(place: Workplace) -> None:
    """A run whose job a site has ended for good to make room for another: PreemptMode=CANCEL."""
    place.slurm("scontrol", "update", "PartitionName=preempt", "PreemptMode=CANCEL", "GraceTime=0")
    done = place.slurmopt([*_LAUNCH, "resources.partition=preempt"])
    assert done.status == 0, done.err
    (job,) = place.jobs()
    place.slurm("scontrol", "update", f"JobId={job.id}", "StartTime=now")
    journal = place.runs / "a" / "one" / "events.jsonl"
    _wait(lambda: '"event": "attempt"' in journal.read_text(), "the run begins")
    node = place.slurm("squeue", "--noheader", "--format=%N", f"--jobs={job.id}").strip()
    hog = place.slurm(
        "sbatch", "--parsable", "--partition=urgent", "--exclusive", f"--nodelist={node}", "--output=/dev/null",
        "--wrap=sleep 600",
    ).strip()  # fmt: skip
    try:
        _wait(lambda: not place.jobs(), "the run gives way")
    finally:
        place.slurm("scancel", hog)
    time.sleep(12)  # `tend` lets Slurm's answer be so old before it acts


def _wait(ready: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _PATIENCE
    while not ready():
        if time.monotonic() > deadline:
            raise RuntimeError(f"{what}: not within {_PATIENCE:g} s")
        time.sleep(0.1)


COMMANDS = {
    "launch": Command(_LAUNCH, judged.run("5:00"), "a/one"),
    "sweep": Command(_SWEEP, judged.sweep("5:00"), "s/one"),
    "retry": Command(
        ("retry", "a/one", "--more-time", "2"),
        judged.run("10:00"),
        "a/one",
        (_LAUNCH, ("cancel", "a/one")),
        settled="first: slurmopt cancel a/one",
    ),
    "retry-sweep": Command(
        ("retry", "s/one", "--more-time", "2"),
        judged.sweep("10:00"),
        "s/one",
        (_SWEEP, ("cancel", "s/one")),
        settled="nothing to retry|go on already",
    ),
    "cancel": Command(
        ("cancel", "a/one"), judged.cancelled("a/one"), None, (_LAUNCH,), settled="has ended already: cancelled"
    ),
    "cancel-sweep": Command(
        ("cancel", "s/one"), judged.cancelled("s/one"), None, (_SWEEP,), settled=f"ended already: {POINTS} cancelled"
    ),
    "throttle": Command(("throttle", "s/one", "2"), judged.throttled(2), "s/one", (_SWEEP,)),
    "tend": Command(("tend",), judged.run("5:00"), "a/one", make=_preempted),
}
