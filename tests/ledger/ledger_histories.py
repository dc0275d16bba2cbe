"""Random histories of runs, and what is true of them."""

from __future__ import annotations

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
    at, step, durable = T, 0, 0
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
        step, durable = base + steps, saved
        at = attempt.record.end + random.uniform(1, 900)
    for happening, following in zip(attempts, attempts[1:], strict=False):
        assert following.record.restored_step is not None
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
    world = len(nodes) * gpus
    times = {"first_step_time": granted + before + first if steps else None}
    samples = _samples(random, granted, life, base, steps, pace, before) if random.random() < 0.5 else ()
    ranks = [
        RankRecord(
            rank, nodes[rank // gpus], 1.0, granted, seen, ended, {k: v for k, v in life.items() if v}, base + 1 if steps else None,
            base + steps if steps else None, samples, {}, "running", times["first_step_time"],
            granted + before + steps * pace if steps else None,
        )
        for rank in range(world)
    ]  # fmt: skip
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


def damaged(random: Random, attempt: AttemptRecord) -> AttemptRecord:
    """The same attempt as it looks after torn files, killed ranks and clocks that jumped."""
    ranks = []
    for rank in attempt.ranks:
        fate = random.random()
        if fate < 0.15:
            continue
        if fate < 0.25:
            rank = replace(rank, spent={}, first_step=None, step=None)
        elif fate < 0.35:
            jump = random.choice([-86400.0, -30.0, 30.0, 3600.0, 1e9])
            rank = replace(rank, seen=rank.seen + jump, samples=())
        elif fate < 0.45:
            rank = replace(rank, started=rank.started + random.choice([-7200.0, 7200.0]))
        elif fate < 0.55:
            rank = replace(rank, ended=False, seen=rank.started, spent={"starting": 0.0})
        elif fate < 0.65:
            rank = replace(rank, spent={name: seconds * 50 for name, seconds in rank.spent.items()})
        elif fate < 0.7:
            rank = replace(rank, node="elsewhere", gpus=3.0)
        ranks.append(rank)
    kind = random.random()
    if kind < 0.1:
        return replace(attempt, ranks=tuple(ranks), end=attempt.start - random.uniform(0, 1000))
    if kind < 0.2:
        return replace(attempt, ranks=(), began=random.choice([None, False, True]))
    return replace(attempt, ranks=tuple(ranks), alive=kind > 0.9)
