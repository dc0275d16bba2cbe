"""Recompilation: torch.compile compiles again and again after the first step, as the shapes of the input change.

cost      the time that it takes (bucket "compile and first steps")
"""

from __future__ import annotations

from collections.abc import Iterator

from slurmopt.ledger.buckets import FIRST_STEPS
from slurmopt.ledger.findings import finding
from slurmopt.ledger.findings.evidence import AttemptEvidence
from slurmopt.ledger.findings.finding import Finding
from slurmopt.ledger.findings.wording import percent
from slurmopt.units import human_seconds

LEAST_SHARE = 0.03
"""Of the training time. Dynamic shapes cost about as much in slower kernels."""
LEAST_SECONDS = 60.0
_COMPILING = "compiling"


def judge(evidence: AttemptEvidence) -> Iterator[Finding]:
    """Recompilation, by the rank that compiles longest: the others wait for it."""
    longest = max(evidence.ranks, key=lambda rank: rank.seconds(_COMPILING), default=None)
    if longest is None:
        return
    seconds = longest.seconds(_COMPILING)
    if seconds < max(LEAST_SECONDS, LEAST_SHARE * (longest.training + seconds)):
        return
    times, breaks = longest.counted.get("recompiled", 0.0), longest.counted.get("graph_breaks", 0.0)
    share = percent(seconds / (longest.training + seconds))
    yield Finding(
        kind=finding.RECOMPILATION,
        summary=f"torch.compile takes {share} of the time after the first step",
        sure=finding.CERTAIN,
        evidence=(
            f"rank {longest.rank} compiled {times:,.0f} times after its first step, for {human_seconds(seconds)}",
            *((f"its graphs have {breaks:,.0f} graph breaks",) if breaks else ()),
        ),
        cost=evidence.hours(seconds * sum(rank.gpus for rank in evidence.ranks), FIRST_STEPS),
        change="model = torch.compile(model, dynamic=True)  # or pad the input to few different lengths",
    )
