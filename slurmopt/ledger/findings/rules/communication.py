"""Communication-bound: the exchange of gradients that no computation hides takes a large part of each step.

Told by DDP's own timings. A rank that finishes early waits in its communication for the others, so only what the rank
that waits least spends there is the cost of communicating; the rest is the matter of a straggler.

    cost      the exposed seconds of the rank that waits least · steps · GPUs (bucket "exposed communication")
    causes    TCP       there are InfiniBand or EFA adapters, and the bytes go over Ethernet
              network   several nodes
              node      one node
"""

from __future__ import annotations

from collections.abc import Iterator

from slurmopt.ledger.findings import finding
from slurmopt.ledger.findings.evidence import AttemptEvidence
from slurmopt.ledger.findings.finding import Abstention, Finding
from slurmopt.ledger.findings.wording import bytes_per_second, milliseconds, percent

LEAST_SHARE = 0.15
"""Of the step. DDP communicates while the backward goes on; where that hides it, its last bucket alone is exposed."""
CERTAIN_SHARE = 0.30
FABRIC_USE = 0.10
"""Of the bytes between nodes that a fabric in use carries at the least."""
LEAST_TRAFFIC = 50e6
"""Bytes per second over Ethernet that storage and control rarely reach together."""
HALF_THE_BYTES = (
    "model.register_comm_hook(None, torch.distributed.algorithms.ddp_comm_hooks.default_hooks.bf16_compress_hook)"
)
USE = {"ib": "network=infiniband", "efa": "network=efa"}
FABRICS = {"ib": "InfiniBand", "efa": "EFA"}


def judge(evidence: AttemptEvidence) -> Iterator[Finding | Abstention]:
    """Communication-bound, if the rank that waits least is blocked for at least LEAST_SHARE of its step."""
    if len(evidence.ranks) < 2:
        return
    if (shares := exposed_shares(evidence)) is None:
        yield Abstention(finding.COMMUNICATION_BOUND, ("DDP's timings of each rank (DistributedDataParallel only)",))
        return
    share, exposed = min(shares), min(rank.exposed or 0.0 for rank in evidence.ranks)
    if share < LEAST_SHARE:
        return
    cause, words, change = _cause(evidence)
    steps = max(rank.steps for rank in evidence.ranks)
    gpus = sum(rank.gpus for rank in evidence.ranks)
    yield Finding(
        kind=finding.COMMUNICATION_BOUND,
        cause=cause,
        summary=f"Each step waits for communication for {percent(share)} of its time, on every rank",
        sure=finding.CERTAIN if share >= CERTAIN_SHARE else finding.LIKELY,
        evidence=(f"exposed communication of the rank that waits least: {milliseconds(exposed)} of each step", *words),
        cost=evidence.hours(exposed * steps * gpus, *evidence.communication),
        change=change,
    )


def exposed_shares(evidence: AttemptEvidence) -> list[float] | None:
    """The exposed share of the step of each rank; None if it is not known of all."""
    shares = [
        rank.exposed / rank.step_seconds
        for rank in evidence.ranks
        if rank.exposed is not None and rank.step_seconds is not None
    ]
    return shares if shares and len(shares) == len(evidence.ranks) else None


def _cause(evidence: AttemptEvidence) -> tuple[str, tuple[str, ...], str]:
    if len(evidence.gpus) < 2:
        return "node", ("all ranks are on one node",), HALF_THE_BYTES
    for node in evidence.nodes:
        ethernet = node.share("net.tx", "net.rx")
        for kind in FABRICS:
            if f"{kind}.tx" not in node.means and f"{kind}.rx" not in node.means:
                continue
            fabric = node.share(f"{kind}.tx", f"{kind}.rx")
            if ethernet >= LEAST_TRAFFIC and fabric < FABRIC_USE * (ethernet + fabric):
                line = (
                    f"{node.node}: {bytes_per_second(ethernet)} over Ethernet, {bytes_per_second(fabric)} over "
                    f"{FABRICS[kind]}"
                )
                return "TCP", (line,), USE[kind]
    return "network", (f"the ranks are on {len(evidence.gpus)} nodes",), HALF_THE_BYTES
