"""Tells whether a change has helped: the findings of a run beside those of the run before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from slurmopt.ledger.findings.finding import Diagnosis, Finding
from slurmopt.ledger.findings.wording import percent

GONE, SMALLER, SAME, LARGER, NEW, UNKNOWN = "gone", "smaller", "same", "larger", "new", "unknown"
LEAST_CHANGE = 0.20
"""Of the share before. Two runs with the same config differ by less in most cases, not in all."""


@dataclass(frozen=True)
class Change:
    """What became of one kind of finding."""

    kind: str
    verdict: str
    """GONE, SMALLER, SAME, LARGER, NEW, or UNKNOWN where the new run lacks the signals or has hardly trained."""
    before: float | None
    """Its cost as a share of the allocation; None without a cost."""
    after: float | None
    line: str
    """It in one line for people."""


def compare_findings(before: Diagnosis, after: Diagnosis) -> tuple[Change, ...]:
    """What became of each kind of finding, those of the run before first."""
    old, new = _by_kind(before.findings), _by_kind(after.findings)
    abstained = {item.kind for item in after.abstentions}
    changes = []
    for kind in dict.fromkeys([*old, *new]):
        earlier, later = _share(old.get(kind), before), _share(new.get(kind), after)
        verdict = _verdict(kind in old, kind in new, kind in abstained or not after.judged, earlier, later)
        why = "this run lacks the signals" if after.judged else "this run has not trained for long enough"
        changes.append(Change(kind, verdict, earlier, later, _line(kind, verdict, earlier, later, why)))
    return tuple(changes)


def speed_line(before: Diagnosis, after: Diagnosis) -> str | None:
    """The step rates of both in one line; None where one of them is not known."""
    old, new = before.steps_per_second, after.steps_per_second
    if not old or not new:
        return None
    return f"{new:.3g} steps/s, {old:.3g} before ({100 * (new / old - 1):+.0f} %)"


def _by_kind(findings: Sequence[Finding]) -> dict[str, list[Finding]]:
    kinds: dict[str, list[Finding]] = {}
    for item in findings:
        kinds.setdefault(item.kind, []).append(item)
    return kinds


def _share(findings: Sequence[Finding] | None, diagnosis: Diagnosis) -> float | None:
    costs = [item.cost for item in findings or () if item.cost is not None]
    return sum(costs) / diagnosis.hours if costs and diagnosis.hours > 0 else None


def _verdict(was: bool, is_there: bool, abstained: bool, before: float | None, after: float | None) -> str:
    if not is_there:
        return UNKNOWN if abstained else GONE
    if not was:
        return NEW
    if before is None or after is None or abs(after - before) < LEAST_CHANGE * before:
        return SAME
    return SMALLER if after < before else LARGER


def _line(kind: str, verdict: str, before: float | None, after: float | None, why: str) -> str:
    shares = f"{_shown(before)} of the allocation before, {_shown(after)} now"
    return {
        GONE: f"{kind}: gone" + ("" if before is None else f"; it cost {percent(before)} of the allocation before"),
        UNKNOWN: f"{kind}: not known; {why}",
        NEW: f"{kind}: new" + ("" if after is None else f", {percent(after)} of the allocation"),
        SAME: f"{kind}: as before" + ("" if before is None or after is None else f"; {shares}"),
        SMALLER: f"{kind}: less; {shares}",
        LARGER: f"{kind}: more; {shares}",
    }[verdict]


def _shown(share: float | None) -> str:
    return "?" if share is None else percent(share)
