"""Checkpoint stall, start-up, lost work: time that no step was made in, beyond what a healthy run spends.

checkpoint stall   blocked by saves, as a share of the training time
                   cost: all of it (bucket "checkpoint stall")
start-up           from the allocation to the first steps, of one attempt or of all attempts of a run
                   cost: all of it (its buckets); causes: the part that takes longest
lost work          steps after the last durable checkpoint that were done again
                   cost: all of it (bucket "lost")
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from slurmopt.ledger.buckets import CHECKPOINT, FIRST_STEPS, HEALTH, LOST, RENDEZVOUS, RESTORE, STAGING, STARTUP
from slurmopt.ledger.findings import finding
from slurmopt.ledger.findings.evidence import AttemptEvidence, mean
from slurmopt.ledger.findings.finding import Abstention, Finding
from slurmopt.ledger.findings.wording import percent
from slurmopt.units import human_seconds

CHECKPOINT_SHARE = 0.05
"""Of the training time. `every: auto` (Daly's formula) stays below 2 % for a save of 15 s and failures once a day."""
LEAST_SAVING = 60.0
"""Seconds blocked for each rank: less is not worth a change."""
TARGET_SHARE = 0.02
STARTUP_SHARE = 0.15
LEAST_STARTUP = 300.0
"""Seconds of one attempt. Imports, rendezvous and compilation of a healthy training take some minutes."""
LOST_SHARE = 0.05
LEAST_LOST = 600.0
"""Seconds of the whole allocation."""
STARTUP_BUCKETS = (STARTUP, HEALTH, STAGING, RENDEZVOUS, RESTORE, FIRST_STEPS)
ENDED_BY_LIMIT = "time limit"
FAILURES = frozenset(
    {"node failure", "hang", "out of memory", "GPU out of memory", "infrastructure", "killed", "preemption", "unknown"}
)
"""Causes after which the steps since the last checkpoint may be lost."""


def checkpoint_stall(evidence: AttemptEvidence) -> Iterator[Finding | Abstention]:
    """Saves that block the training for too long. One alone, as at the end of a short run, cannot be made rarer."""
    blocked = mean([rank.seconds("checkpoint") for rank in evidence.ranks]) or 0.0
    training = mean([rank.training for rank in evidence.ranks]) or 0.0
    if evidence.saves == 1 or training <= 0 or blocked < max(LEAST_SAVING, CHECKPOINT_SHARE * training):
        return
    share = blocked / training
    lines = [f"blocked by saves for {human_seconds(blocked)} of {human_seconds(training)} of training"]
    if evidence.saves:
        lines.append(f"{evidence.saves} saves, {blocked / evidence.saves:.1f} s each")
    yield Finding(
        kind=finding.CHECKPOINT_STALL,
        summary=f"Saves block the training for {percent(share)} of its time",
        sure=finding.CERTAIN,
        evidence=tuple(lines),
        cost=evidence.hours(sum(rank.seconds("checkpoint") * rank.gpus for rank in evidence.ranks), CHECKPOINT),
        change=_rarer(evidence, training, share),
    )


def _rarer(evidence: AttemptEvidence, training: float, share: float) -> str:
    """`auto` where an interval was given; else an interval so long that saves take TARGET_SHARE."""
    config = evidence.config
    if config.checkpoint and config.buffers < 2:
        return "checkpoint.buffers=2"
    for tier, every in config.checkpoint.items():
        if every != "auto":
            return f"checkpoint.{tier}.every=auto"
    fastest = next(iter(config.checkpoint), None)
    if fastest is None or not evidence.saves:
        return "checkpointer.save(step, state)  # slurmopt's Checkpointer: it writes in the background"
    minutes = math.ceil(training / evidence.saves * share / TARGET_SHARE / 60)
    return f"checkpoint.{fastest}.every={minutes}min"


def start_up(evidence: Sequence[AttemptEvidence]) -> Iterator[Finding]:
    """Start-up of all attempts that were looked at, but for those without any step: of a command that reports none,
    all time counts as that before the first one."""
    if len(evidence) == 1 and evidence[0].alive:
        return  # its share falls with each hour
    evidence = [attempt for attempt in evidence if attempt.step is not None]
    allocated = sum(attempt.allocated for attempt in evidence)
    spent = {bucket: sum(attempt.bucket(bucket) for attempt in evidence) for bucket in STARTUP_BUCKETS}
    total, gpus = sum(spent.values()), max((sum(attempt.gpus.values()) for attempt in evidence), default=0.0)
    if allocated <= 0 or total < STARTUP_SHARE * allocated or total < LEAST_STARTUP * gpus:
        return
    longest = max(spent, key=lambda bucket: spent[bucket])
    many = len(evidence) > 1
    lines = [
        f"{bucket}: {percent(seconds / allocated)}" for bucket, seconds in spent.items() if seconds > 0.01 * allocated
    ]
    lines += (
        [f"{len(evidence)} attempts, each {human_seconds(total / gpus / len(evidence))} on average"] if many else []
    )
    yield Finding(
        kind=finding.START_UP,
        cause=longest,
        summary=f"{percent(total / allocated)} of the allocation passes before the first steps"
        + (f", in {len(evidence)} attempts" if many else ""),
        sure=finding.CERTAIN,
        evidence=tuple(lines),
        cost=min(total, allocated) / 3600,
        change=_quicker(evidence, longest),
    )


def _quicker(evidence: Sequence[AttemptEvidence], longest: str) -> str:
    config = evidence[-1].config
    limited = sum(attempt.cause == ENDED_BY_LIMIT for attempt in evidence)
    if config.time and 2 * limited >= len(evidence) > 1:
        return f"resources.time={_hours(2 * config.time)}"
    if longest == FIRST_STEPS and not config.compile_cache:
        return "+environment.variables.TORCHINDUCTOR_CACHE_DIR=$PWD/compiled"
    if longest == RESTORE and "scratch" not in config.checkpoint:
        return "checkpoint.scratch.path=/tmp"
    if longest == STAGING and config.staged:
        return f"++storage.stage.{config.staged}.keep=true"
    if longest == HEALTH:
        return "health.wait=null"
    return "+environment.variables.PYTHONPROFILEIMPORTTIME=1"  # the log then tells how long each import takes


def _hours(seconds: float) -> str:
    return f"{math.ceil(seconds / 3600)}h"


def lost_work(evidence: Sequence[AttemptEvidence]) -> Iterator[Finding | Abstention]:
    """Work lost in all attempts that were looked at. The ledger knows it, nobody else."""
    if all(attempt.buckets is None for attempt in evidence):
        yield Abstention(finding.LOST_WORK, ("the ledger of the attempts",))
        return
    allocated = sum(attempt.allocated for attempt in evidence)
    lost = sum(attempt.bucket(LOST) for attempt in evidence)
    gpus = max((sum(attempt.gpus.values()) for attempt in evidence), default=0.0)
    if allocated <= 0 or lost < LOST_SHARE * allocated or lost < LEAST_LOST * gpus:
        return
    failures = sum(attempt.cause in FAILURES for attempt in evidence)
    lines = [f"{percent(lost / allocated)} of the allocation was done again after a restart"]
    lines += [f"{failures} attempts ended without notice"] if failures else []
    yield Finding(
        kind=finding.LOST_WORK,
        summary=f"{percent(lost / allocated)} of the work was lost: it was newer than the last checkpoint",
        sure=finding.CERTAIN,
        evidence=tuple(lines),
        cost=min(lost, allocated) / 3600,
        change=_oftener(evidence, failures),
    )


def _oftener(evidence: Sequence[AttemptEvidence], failures: int) -> str:
    """The interval √(2·δ·M) of J. W. Young, "A first order approximation to the optimum checkpoint interval", CACM 17
    (1974), 530-531: δ is the time that a save blocks, M the mean time between failures."""
    config = evidence[-1].config
    tier = "shared" if "shared" in config.checkpoint else next(iter(config.checkpoint), None)
    if tier is None:
        return "checkpointer = Checkpointer(config.checkpoint, current_run())"
    saves = sum(attempt.saves or 0 for attempt in evidence)
    blocked = sum(mean([rank.seconds("checkpoint") for rank in attempt.ranks]) or 0.0 for attempt in evidence)
    seconds = sum(attempt.seconds for attempt in evidence)
    if config.checkpoint[tier] == "auto":
        return f"checkpoint.mtbf={max(1, math.ceil(seconds / max(1, failures) / 60))}min"
    each = max(1.0, blocked / saves) if saves else 10.0
    minutes = math.ceil(math.sqrt(2 * each * seconds / max(1, failures)) / 60)
    return f"checkpoint.{tier}.every={max(1, minutes)}min"
