"""Draws the findings from the evidence of an attempt or of all attempts of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from slurmopt.ledger.findings import finding
from slurmopt.ledger.findings.evidence import AttemptEvidence
from slurmopt.ledger.findings.finding import Abstention, Diagnosis, Finding
from slurmopt.ledger.findings.rules import (
    communication,
    failures,
    hardware,
    idle_gpus,
    input_wait,
    memory,
    recompilation,
    stragglers,
    throttling,
    time_shares,
    trends,
    unmeasured,
)

Rule = Callable[[AttemptEvidence], Iterator[Finding | Abstention]]

SHORTEST = 20.0
"""Seconds of training. Before, the first measurements and warm-up steps are most of what is known."""
FEWEST_STEPS = 20
MOST_ATTEMPTS = 8
"""That a finding names. A run of some days may have hundreds."""
OF_FAILURES: tuple[Rule, ...] = (failures.hangs, failures.xids, failures.out_of_memory)
"""Rules of single events, which need no training."""
OF_TRAINING: tuple[Rule, ...] = (
    trends.leaks,
    stragglers.judge,
    throttling.judge,
    failures.foreign,
    idle_gpus.judge,
    input_wait.judge,
    communication.judge,
    hardware.judge,
    trends.falling,
    recompilation.judge,
    time_shares.checkpoint_stall,
    memory.judge,
    unmeasured.judge,
)
OF_GPUS = frozenset(
    {finding.THROTTLED, finding.IDLE_GPUS, finding.LOW_UTILISATION, finding.UNUSED_GPU_MEMORY, finding.FOREIGN}
)
URGENT = finding.KINDS[:4]
"""They endanger the run, whatever they have cost so far."""
WEIGHTS = {finding.CERTAIN: 1.0, finding.LIKELY: 0.7, finding.POSSIBLE: 0.4}
BOTTLENECKS = frozenset(
    {
        finding.STRAGGLER, finding.THROTTLED, finding.IDLE_GPUS, finding.INPUT_BOUND, finding.COMMUNICATION_BOUND,
        finding.HOST_BOUND, finding.FOREIGN, finding.BANDWIDTH_BOUND, finding.HANG, finding.XID,
    }
)  # fmt: skip
EXPLAINED_BY: dict[str, frozenset[str]] = {
    finding.HANG: frozenset({finding.XID}),
    finding.OUT_OF_MEMORY: frozenset({finding.LEAK}),
    finding.FALLING: frozenset({finding.THROTTLED, finding.LEAK, finding.INPUT_BOUND, finding.FOREIGN}),
    finding.UNUSED_GPU_MEMORY: BOTTLENECKS,
}
"""A finding → those that are behind it: where one of them was found, it is not told apart."""
BEHIND_A_STRAGGLER = (finding.XID, finding.THROTTLED, finding.FOREIGN)
"""Where one of these was found on the straggler's GPU, it is the finding, at the straggler's cost."""


def diagnose(evidence: AttemptEvidence) -> Diagnosis:
    """The findings of one attempt."""
    return diagnose_run([evidence])


def diagnose_run(attempts: Sequence[AttemptEvidence]) -> Diagnosis:
    """The findings of a run: those of its attempts, the same ones merged, and those that only all of them show."""
    judged = [_judge(attempt) for attempt in attempts]
    findings = _merged([_settled(found) for found, _ in judged], attempts)
    abstained = [abstention for _, abstentions in judged for abstention in abstentions]
    if attempts:
        findings += time_shares.start_up(attempts)
        for item in time_shares.lost_work(attempts):
            (findings if isinstance(item, Finding) else abstained).append(item)  # type: ignore[arg-type]
    kinds = {item.kind for item in findings}
    enough = any(map(_long_enough, attempts))
    return Diagnosis(
        findings=tuple(sorted(findings, key=_order)),
        abstentions=tuple(_distinct(item for item in abstained if item.kind not in kinds)),
        notes=tuple(_notes(attempts, enough, bool(kinds & BOTTLENECKS))),
        judged=enough,
        hours=sum(attempt.allocated for attempt in attempts) / 3600,
        unit=attempts[-1].unit if attempts else "GPU",
        steps_per_second=next(
            (attempt.steps_per_second for attempt in reversed(attempts) if attempt.steps_per_second), None
        ),
    )


def _judge(evidence: AttemptEvidence) -> tuple[list[Finding], list[Abstention]]:
    rules = OF_FAILURES + (OF_TRAINING if _long_enough(evidence) else ())
    items = [item for rule in rules for item in rule(evidence)]
    findings = [item for item in items if isinstance(item, Finding)]
    abstentions = [
        item for item in items if isinstance(item, Abstention) and (evidence.has_gpus or item.kind not in OF_GPUS)
    ]
    if any(item.kind in BOTTLENECKS for item in findings):
        abstentions = [item for item in abstentions if item.kind != finding.LOW_UTILISATION]
    return findings, abstentions


def _long_enough(evidence: AttemptEvidence) -> bool:
    steps = max((rank.steps for rank in evidence.ranks), default=0.0)
    return evidence.window >= SHORTEST and (steps >= FEWEST_STEPS or steps == 0)


def _settled(findings: Sequence[Finding]) -> list[Finding]:
    """Without the findings that another one explains."""
    kinds = {item.kind for item in findings}
    left = [item for item in findings if not kinds & EXPLAINED_BY.get(item.kind, frozenset())]
    straggler = next((item for item in left if item.kind == finding.STRAGGLER), None)
    if straggler is None:
        return left
    for at, item in enumerate(left):
        if item.kind in BEHIND_A_STRAGGLER and item.node == straggler.node and item.gpu == straggler.gpu:
            cost = max(item.cost or 0.0, straggler.cost or 0.0)
            left[at] = replace(
                item, cost=cost, rank=straggler.rank, evidence=(*item.evidence, straggler.summary, *straggler.evidence)
            )
            left.remove(straggler)
            break
    return left


def _merged(by_attempt: Sequence[Sequence[Finding]], attempts: Sequence[AttemptEvidence]) -> list[Finding]:
    """One finding for the same kind and cause in several attempts, wherever it was: their costs are added up, and the
    newest attempt's evidence and change stand."""
    groups: dict[tuple[str, str | None], list[tuple[AttemptEvidence, Finding]]] = {}
    for attempt, findings in zip(attempts, by_attempt, strict=True):
        for item in findings:
            groups.setdefault((item.kind, item.cause), []).append((attempt, item))
    return [_one(group) for group in groups.values()]


def _one(group: Sequence[tuple[AttemptEvidence, Finding]]) -> Finding:
    newest = group[-1][1]
    if len(group) == 1:
        return newest
    costs = [item.cost for _, item in group if item.cost is not None]
    return replace(
        newest,
        cost=sum(costs) if costs else None,
        evidence=(*newest.evidence, _in_attempts(group)),
        change=_change(group),
        node=newest.node if len({item.node for _, item in group}) == 1 else None,
        rank=newest.rank if len({item.rank for _, item in group}) == 1 else None,
        gpu=newest.gpu if len({(item.node, item.gpu) for _, item in group}) == 1 else None,
    )


def _in_attempts(group: Sequence[tuple[AttemptEvidence, Finding]]) -> str:
    """The attempts, each with its place where these differ; the newest ones where there are many."""
    places = [_place(item) for _, item in group]
    differ = len(set(places)) > 1
    words = [
        f"{attempt.number} ({place})" if differ and place else str(attempt.number)
        for (attempt, _), place in zip(group, places, strict=True)
    ]
    more = len(words) - MOST_ATTEMPTS
    return "in attempts " + ", ".join(words[-MOST_ATTEMPTS:]) + (f" and {more} earlier ones" if more > 0 else "")


def _place(item: Finding) -> str:
    words = [item.node or ""]
    words += [f"GPU {item.gpu}"] if item.gpu is not None else []
    words += [f"rank {item.rank}"] if item.rank is not None else []
    return ", ".join(word for word in words if word)


def _change(group: Sequence[tuple[AttemptEvidence, Finding]]) -> str:
    """The newest change. Where it leaves a node out, it leaves out the nodes of all."""
    evidence, newest = group[-1]
    if newest.node is None or newest.change != throttling.exclude(evidence, newest.node):
        return newest.change
    left_out = [
        item.node for attempt, item in group if item.node and item.change == throttling.exclude(attempt, item.node)
    ]
    same_rank = newest.rank is not None and {item.rank for _, item in group} == {newest.rank}
    if newest.kind == finding.STRAGGLER and same_rank and len(set(left_out)) > 1:
        return stragglers.profile(newest.rank)  # it has more work than the others: no node is at fault
    return throttling.exclude(evidence, *dict.fromkeys(left_out))


def _notes(attempts: Sequence[AttemptEvidence], judged: bool, limited: bool) -> Iterator[str]:
    """Why the training was not judged; else what limits it where nothing is wrong (it is not `limited`)."""
    if attempts and not judged:
        yield f"the training was not judged: that needs {SHORTEST:.0f} s and {FEWEST_STEPS} steps of one attempt"
    elif attempts and not limited and (note := hardware.note(attempts[-1])) is not None:
        yield note


def _distinct(items: Iterable[Abstention]) -> list[Abstention]:
    """One abstention for each kind, with all signals that were missing."""
    missing: dict[str, dict[str, None]] = {}
    for item in items:
        missing.setdefault(item.kind, {}).update(dict.fromkeys(item.missing))
    return [Abstention(kind, tuple(signals)) for kind, signals in missing.items()]


def _order(item: Finding) -> tuple[bool, float, int]:
    weighted = (item.cost or 0.0) * WEIGHTS[item.sure]
    return item.kind not in URGENT, -weighted, finding.KINDS.index(item.kind)
