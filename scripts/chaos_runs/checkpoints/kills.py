"""SIGKILLs at random moments of a training of two ranks: what is restored afterwards is the newest committed step,
never a mix, and never less than what had been reported durable."""

from __future__ import annotations

import collections
import contextlib
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from chaos_runs.alive import content, found
from chaos_runs.checkpoints.ranks import Plan, Training, durable, next_attempt, roots

VICTIMS = ("all", "rank", "writer")
MOMENTS = ("opening", "any", "payload", "manifest", "record", "prune")
_LONGEST = 60.0
_HISTORY = 20
"""Attempts of one run, one after the other; then another run begins, with another config."""


@dataclass(frozen=True)
class Kill:
    """Whom, when, and after how many seconds from then."""

    victim: str
    rank: int
    moment: str
    delay: float
    overlap: bool
    """Whether what is left of the attempt lives on while the next one starts."""


@dataclass
class Tally:
    """What happened."""

    kills: collections.Counter[str] = field(default_factory=collections.Counter)
    phases: collections.Counter[str] = field(default_factory=collections.Counter)
    restores: int = 0
    losses: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        victims = ", ".join(f"{self.kills[victim]} {victim}" for victim in VICTIMS)
        phases = ", ".join(f"{phase} {count}" for phase, count in sorted(self.phases.items()))
        return (
            f"{self.kills.total()} kills ({victims}; while {phases}), {self.restores} restores, {len(self.losses)} lost"
        )


def draw_kill(rng: random.Random) -> Kill:
    moment = rng.choices(MOMENTS, (1, 3, 4, 2, 2, 3))[0]
    longest = {"opening": 0.6, "any": 0.5, "payload": 0.03}.get(moment, 0.004)
    return Kill(rng.choice(VICTIMS), rng.randrange(2), moment, rng.uniform(0, longest), rng.random() < 0.5)


def draw_plan(rng: random.Random, folder: Path) -> Plan:
    every, keep = rng.choice((1, 1, 2)), rng.choice((1, 2, 3))
    config = {
        "shared": {"every": every, "keep": keep, "compression": rng.choice((None, None, "zstd"))},
        "incremental": rng.random() < 0.7,
        "buffers": rng.choice((1, 2)),
        "deadline": "20s",
        "failures": 1000,
    }
    if rng.random() < 0.5:
        config["scratch"] = {"path": str(folder.parent.parent / "scratch"), "every": 1, "keep": rng.choice((1, 2))}
    return Plan(folder, 0, config, kib=rng.choice((256, 2048, 8192)), seed=rng.randrange(1 << 30))


def run(folder: Path, seed: int, kills: int) -> Tally:
    rng, tally = random.Random(f"kills {seed}"), Tally()
    for first in range(0, kills, _HISTORY):
        plan = draw_plan(rng, folder / "runs" / f"{first:04d}")
        schedule = [draw_kill(rng) for _ in range(min(_HISTORY, kills - first))]
        before = len(tally.losses)
        History(plan, tally).live_through(schedule)
        if len(tally.losses) == before:
            shutil.rmtree(plan.folder)
            shutil.rmtree(roots(plan).get("scratch", plan.folder), ignore_errors=True)
        print(f"chaos: {min(first + _HISTORY, kills)} of {kills}: {tally}", file=sys.stderr, flush=True)
    return tally


class History:
    """One run through its attempts."""

    def __init__(self, plan: Plan, tally: Tally) -> None:
        self._plan, self._tally = plan, tally
        self._left: list[Training] = []
        self._temporaries: set[str] = set()

    def live_through(self, schedule: list[Kill]) -> None:
        try:
            for kill in schedule:
                self._attempt(kill)
                self._plan = next_attempt(self._plan)
            self._check_last()
        finally:
            self._end_left()

    def _end_left(self) -> None:
        for training in self._left:
            training.end()
        self._left.clear()

    def _attempt(self, kill: Kill) -> None:
        floor = durable(self._plan)
        training = Training(self._plan)
        self._left.append(training)
        if kill.moment == "opening":
            time.sleep(kill.delay)
        else:
            self._check_restore(training, floor)
            moment(kill, training)
        self._strike(kill, training)
        if not kill.overlap or len(self._left) > 3:
            self._end_left()

    def _check_restore(self, training: Training, floor: int) -> None:
        until(lambda: len(training.said("restored")) == 2 or not training.alive())
        said = training.said("restored")
        if len(said) < 2:
            self._lose(training, f"no restore: {training.first_error()}")
            return
        self._tally.restores += 1
        expected = max(each["expected"] or 0 for each in said)
        for each in said:
            if each["wrong"]:
                self._lose(training, f"rank {each['rank']}, step {each['step']}: a mix: {each['wrong']}")
            if each["step"] != expected:
                self._lose(training, f"restored step {each['step']}, and {expected} is the newest that is committed")
            if each["step"] < floor:
                self._lose(training, f"restored step {each['step']}; {floor} had been reported durable")

    def _strike(self, kill: Kill, training: Training) -> None:
        self._tally.kills[kill.victim] += 1
        if kill.victim == "all":
            training.kill()
        elif kill.victim == "rank":
            kill_one(training.ranks[kill.rank].pid or 0)
        self._tally.phases[self._phase()] += 1
        if kill.victim == "writer":
            self._kill_writer(kill, training)

    def _kill_writer(self, kill: Kill, training: Training) -> None:
        """The training goes on, and a step that it takes later becomes durable."""
        for pid in training.writers(kill.rank):
            kill_one(pid)
        if kill.moment == "opening" or not training.said("restored"):
            return
        now = time.monotonic()

        def saved_since() -> bool:
            begun = min((each["step"] for each in training.said("saved") if each["time"] > now), default=1 << 30)
            return any(each["step"] >= begun for each in training.said("durable", 0)) or not training.alive()

        if not until(saved_since, 30) or not training.alive():
            self._lose(training, f"after its writer's death the training did not save: {training.errors()[-500:]}")

    def _phase(self) -> str:
        """What was under way on the tiers, as the folders show it."""
        what = "copying or between"
        for root in roots(self._plan).values():
            temporaries = {str(path) for path in found(root, "commits/.*")}
            if temporaries - self._temporaries:
                what = "committing"
            self._temporaries |= temporaries
            if what != "committing":
                what = phase(root, f"a{self._plan.attempt:04d}-", what)
        return what

    def _check_last(self) -> None:
        self._plan = next_attempt(self._plan)
        training = Training(self._plan)
        self._left.append(training)
        self._check_restore(training, durable(self._plan))

    def _lose(self, training: Training, what: str) -> None:
        text = f"{training.plan.folder} attempt {training.plan.attempt}: {what}"
        self._tally.losses.append(text)
        print(f"chaos: LOST: {text}", file=sys.stderr, flush=True)


def moment(kill: Kill, training: Training) -> None:
    """Waits for it, and the delay after it."""
    counts = {"payload": "rank-*.bin", "manifest": "manifest.json"}
    if kill.moment != "any":
        pattern = counts.get(kill.moment)
        seen = None

        def comes() -> bool:
            nonlocal seen
            now = files(training.plan, pattern) if pattern else names(training.plan, kill.moment)
            before, seen = seen, now
            if before is None:
                return False
            return bool(before - now if kill.moment == "prune" else now - before) or not training.alive()

        until(comes, 10, pause=0.0002)
    time.sleep(kill.delay)


def files(plan: Plan, pattern: str) -> set[str]:
    return {str(path) for root in roots(plan).values() for path in found(root, f"step-*/*/{pattern}")}


def names(plan: Plan, moment: str) -> set[str]:
    """Of the ledger's records, or of the steps' folders."""
    pattern = "commits/*.json" if moment == "record" else "step-*"
    return {str(path) for root in roots(plan).values() for path in found(root, pattern)}


def phase(root: Path, mine: str, otherwise: str) -> str:
    """What the saves whose names start with `mine` were at."""
    records = b"".join(map(content, found(root, "commits/[0-9]*.json")))
    pruned = b"".join(line for line in records.split(b"}") if b'"prune"' in line)
    for save in found(root, f"step-*/{mine}*"):
        if not (save / "manifest.json").exists():
            return "pruning" if save.name.encode() in pruned else "writing"
        if save.name.encode() not in records:
            return "committing"
        if save.name.encode() in pruned:
            return "pruning"
    return otherwise


def kill_one(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):  # it had ended by itself
        os.kill(pid, signal.SIGKILL)


def until(holds: Callable[[], bool], seconds: float = _LONGEST, pause: float = 0.01) -> bool:
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(pause)
    return True
