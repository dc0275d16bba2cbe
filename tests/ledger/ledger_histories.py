"""Random histories of runs, and what is true of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random

from slurmopt.ledger.record import AttemptRecord, RankRecord, Sample

T = 1_790_000_000.0
START = {"starting": 2.0, "checking": 1.0, "importing": 6.0, "waiting": 3.0}


@dataclass(frozen=True)
class Happening:
    """What is true of an attempt: the GPU-seconds of a GPU of it."""

    record: AttemptRecord
    lost: float
    stalled: float


def history(random: Random) -> list[Happening]:
    """A run of one to five attempts, in which each second of a rank's life is known."""
    at, durable = T, 0
    attempts: list[Happening] = []
    count = random.randint(1, 5)
    for number in range(count):
        nodes = [f"node{index}" for index in range(random.randint(1, 3))]
        gpus = random.choice([1, 2, 8])
        cause = random.choice(["preemption", "time limit", "hang", "node failure"])
        cause = "finished" if number == count - 1 and random.random() < 0.5 else cause
        pace = random.choice([0.25, 1.0, 7.0])
        steps = random.randint(0, 400)
        restored = None if number == 0 else durable
        base = durable
        saved = base + (steps // random.randint(1, 4) if steps else 0)
        attempt = _attempt(random, number, at, nodes, gpus, cause, base, steps, pace, restored, saved)
        attempts.append(attempt)
        durable = saved
        at = attempt.record.end + random.uniform(1, 900)
    return attempts


def _attempt(
    random: Random,
    number: int,
    start: float,
    nodes: list[str],
    gpus: int,
    cause: str,
    base: int,
    steps: int,
    pace: float,
    restored: int | None,
    saved: int,
) -> Happening:
    granted = start + random.uniform(0.5, 4)
    life = dict(START)
    if restored is not None:
        life["restoring"] = 4.0
    before = sum(life.values())
    first = min(pace, 2.0) if steps else 0.0
    stalled = 600.0 if cause == "hang" else 0.0
    compute = max(0.0, steps * pace - first)
    life |= {"first step": first, "running": compute + stalled}
    ended = cause in ("finished", "time limit")
    life["saving"] = 5.0 if cause == "time limit" else 0.0
    seen = granted + sum(life.values())
    end = seen + random.uniform(0.2, 3)
    samples = _samples(random, granted, life, base, steps, pace, before) if random.random() < 0.5 else ()
    spent = {name: seconds for name, seconds in life.items() if seconds}
    rank = RankRecord(0, "", 1.0, granted, seen, ended, spent, samples=samples, activity="running")
    if steps:
        rank = replace(
            rank, first_step=base + 1, first_step_time=granted + before + first, step=base + steps,
            step_time=granted + before + steps * pace,
        )  # fmt: skip
    ranks = [replace(rank, rank=number, node=nodes[number // gpus]) for number in range(len(nodes) * gpus)]
    lost = max(0.0, (base + steps - saved) * pace) if steps else 0.0
    record = AttemptRecord(
        number, start, end, dict.fromkeys(nodes, float(gpus)), tuple(ranks), False, cause, stalled, restored,
        saved if steps else None, stalled_since=seen - stalled if stalled else None,
    )  # fmt: skip
    return Happening(record, lost, stalled)


def _samples(
    random: Random, granted: float, life: dict[str, float], base: int, steps: int, pace: float, before: float
) -> tuple[Sample, ...]:
    """Reports every few seconds of the steady part."""
    found = []
    for done in range(1, steps, max(1, steps // random.randint(2, 20))):
        spent = {name: life[name] for name in (*START, "restoring") if name in life}
        spent |= {"first step": life["first step"], "running": max(0.0, done * pace - life["first step"])}
        found.append(Sample(granted + before + done * pace, base + done, spent))
    return tuple(found)


FATES: list[Callable[[Random, RankRecord], RankRecord | None]] = [
    lambda _, rank: None,
    lambda _, rank: replace(rank, spent={}, first_step=None, step=None),
    lambda random, rank: replace(rank, seen=rank.seen + random.choice([-86400.0, -30.0, 3600.0, 1e9]), samples=()),
    lambda random, rank: replace(rank, started=rank.started + random.choice([-7200.0, 7200.0])),
    lambda _, rank: replace(rank, ended=False, seen=rank.started, spent={"starting": 0.0}),
    lambda _, rank: replace(rank, spent={name: seconds * 50 for name, seconds in rank.spent.items()}),
    lambda _, rank: replace(rank, node="elsewhere", gpus=3.0),
    lambda _, rank: rank,
    lambda _, rank: rank,
]
"""What may have become of a rank's files: gone, torn, of a clock that jumped, edited."""


def damaged(random: Random, attempt: AttemptRecord) -> AttemptRecord:
    """The same attempt as it looks after torn files, killed ranks and clocks that jumped."""
    fates = [random.choice(FATES)(random, rank) for rank in attempt.ranks]
    attempt = replace(attempt, ranks=tuple(rank for rank in fates if rank is not None), alive=random.random() < 0.1)
    kind = random.random()
    if kind < 0.1:
        return replace(attempt, end=attempt.start - random.uniform(0, 1000))
    return replace(attempt, ranks=(), began=random.choice([None, False, True])) if kind < 0.2 else attempt
