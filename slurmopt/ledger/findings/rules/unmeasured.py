"""Abstains from all that the sampler would have shown where it has left nothing, or on few nodes only.

Otherwise a finding would be called gone in the report of the next run, although nobody has looked.
"""

from __future__ import annotations

from collections.abc import Iterator

from slurmopt.ledger.findings import finding
from slurmopt.ledger.findings.evidence import AttemptEvidence
from slurmopt.ledger.findings.finding import Abstention, Finding
from slurmopt.ledger.findings.wording import named

OF_NODES = (finding.OUT_OF_MEMORY, finding.LEAK, finding.UNUSED_MEMORY)
OF_GPUS = (
    finding.XID, finding.THROTTLED, finding.FOREIGN, finding.IDLE_GPUS, finding.HOST_BOUND, finding.BANDWIDTH_BOUND,
    finding.UNUSED_GPU_MEMORY,
)  # fmt: skip
MOST_MISSING = 0.5
"""Of the nodes. Chosen here: where most were measured, what concerns the training shows on these too."""


def judge(evidence: AttemptEvidence) -> Iterator[Finding | Abstention]:
    """One abstention for each kind that needs the sampler."""
    kinds: tuple[str, ...] = (*OF_GPUS, *OF_NODES) if evidence.has_gpus else OF_NODES
    measured = {node.node for node in evidence.nodes}
    without = [node for node in evidence.gpus if node not in measured]
    if not measured:
        missing = "measurements of the nodes: `monitor.sampler=true`"
    elif len(without) > MOST_MISSING * len(evidence.gpus):
        missing = f"measurements of {named(without)}"
    elif evidence.has_gpus and not evidence.devices:
        kinds, missing = OF_GPUS, "measurements of the GPUs: `gpu` among `monitor.sources`, and slurmopt[gpu]"
    else:
        return
    yield from (Abstention(kind, (missing,)) for kind in kinds)
