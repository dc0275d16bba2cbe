"""The targets of a site against the history of its runs. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from slurmopt.checks.result import PASS, SKIPPED, WARN, CheckResult
from slurmopt.ledger import buckets
from slurmopt.report.rollup import RollUp, Spread
from slurmopt.units import human_seconds

_USED = (buckets.COMPUTE, buckets.COMMUNICATION)
"""What counts as use: the devices train, or exchange gradients."""


@dataclass(frozen=True)
class Targets:
    """What a site wants to reach. Times are seconds, shares 0 to 1."""

    recovery: float = 300.0
    """The median from the end of an attempt to the first step of the next."""
    completion: float = 0.95
    """The share of the runs that ended which finished."""
    utilisation: float = 0.80
    """The share of the allocated time in which the devices train or exchange gradients."""
    wait: float = 1800.0
    """The median from the launch of a run to its start."""


def scored(history: RollUp, targets: Targets) -> Iterator[CheckResult]:
    """One result for each target."""
    yield _least("completion", history.completion_rate, targets.completion, "no run has ended yet", _COMPLETION)
    used = sum(share.share for share in history.shares if share.bucket in _USED) if history.device_seconds else None
    yield _least("utilisation", used, targets.utilisation, "no run has had a device yet", _UTILISATION)
    yield _most("recovery", history.recovery, targets.recovery, "no run has been restarted yet", _RECOVERY)
    yield _most("wait", history.first_wait, targets.wait, "no run has started yet", _WAIT)


_COMPLETION = "slurmopt report --user: the causes of ends"
_UTILISATION = "slurmopt report --user: where the hours went"
_RECOVERY = "slurmopt report RUN: start-up and restore of its attempts"
_WAIT = "shorter time limits and fewer nodes start sooner: slurmopt report --user"


def _least(name: str, value: float | None, target: float, unknown: str, mend: str) -> CheckResult:
    if value is None:
        return CheckResult(name, SKIPPED, unknown)
    text = f"{value:.1%}; target: {target:.0%} or more"
    return CheckResult(name, PASS, text) if value >= target else CheckResult(name, WARN, text, mend)


def _most(name: str, spread: Spread | None, target: float, unknown: str, mend: str) -> CheckResult:
    if spread is None:
        return CheckResult(name, SKIPPED, unknown)
    text = f"median {human_seconds(spread.median)} of {spread.count:,}; target: {human_seconds(target)} or less"
    return CheckResult(name, PASS, text) if spread.median <= target else CheckResult(name, WARN, text, mend)
