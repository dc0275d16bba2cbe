"""What the measurements of one node say of a training that runs: findings of the last minutes. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from slurmopt.ledger.findings import finding
from slurmopt.ledger.findings.diagnosis import diagnose
from slurmopt.ledger.findings.evidence import AttemptEvidence, RankEvidence
from slurmopt.ledger.findings.finding import Finding
from slurmopt.ledger.findings.node_series import NodeSeries
from slurmopt.run_folder.heartbeat import Heartbeat
from slurmopt.run_folder.series.series import Series

SECONDS = 300.0
"""The time that is looked at."""
KINDS = frozenset(
    {
        finding.STRAGGLER, finding.THROTTLED, finding.INPUT_BOUND, finding.COMMUNICATION_BOUND, finding.HOST_BOUND,
        finding.BANDWIDTH_BOUND, finding.FALLING, finding.RECOMPILATION,
    }
)  # fmt: skip
"""Those of which a trace tells more."""


def live_findings(series: Series, beats: Mapping[int, Heartbeat]) -> list[Finding]:
    """Of the last `SECONDS` of the series of a node, if that is as long; `beats`: the heartbeats of its ranks."""
    if not series.times or series.times[-1] - series.times[0] < SECONDS:
        return []
    until = series.times[-1]
    node = NodeSeries(series, until - SECONDS, until)
    ranks = tuple(_rank(rank, beat, node, series.node) for rank, beat in sorted(beats.items()))
    devices = tuple(node.devices(ranks if all(rank.devices for rank in ranks) else None))
    rates_of, rates = node.rates()
    evidence = AttemptEvidence(
        seconds=SECONDS,
        unit="GPU" if devices else "CPU",
        gpus={series.node: float(len(devices) or len(ranks))},
        ranks=ranks,
        devices=devices,
        nodes=(node.evidence(),),
        window=SECONDS,
        rates=rates,
        rates_of=rates_of,
        alive=True,
        end=until,
    )
    return [found for found in diagnose(evidence).findings if found.kind in KINDS]


def _rank(rank: int, beat: Heartbeat, node: NodeSeries, name: str) -> RankEvidence:
    shares, rate = node.shares_of(rank), node.middle(f"rank{rank}.steps")
    backward, exposed = node.middle(f"rank{rank}.ddp_backward"), node.middle(f"rank{rank}.ddp_exposed")
    return RankEvidence(
        rank=rank,
        node=name,
        devices=node.indexes(beat.gpus),
        spent={activity: share * SECONDS for activity, share in shares.items()},
        shares=shares,
        steps=(rate or 0.0) * SECONDS,
        steps_per_second=rate,
        compute=None if exposed is None else backward,
        exposed=None if backward is None else exposed,
    )
