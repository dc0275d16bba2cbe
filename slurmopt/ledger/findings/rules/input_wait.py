"""Input-bound: the ranks wait for their loader; and what the loader waits for.

Told by: the time that the ranks waited for the loader's next batch, as a share of the time in which they trained.

    cost      the waiting time of all ranks · their GPUs (bucket "waiting for input")
    causes    CPU quota      the step's cgroup was throttled
              decoding       the CPUs of the step are busy: the loader's processes need more of them
              few workers    CPUs are free, but each rank keeps only one busy: the loader works in the training process
              storage        CPUs are free, and data is read
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from slurmopt.ledger.buckets import INPUT
from slurmopt.ledger.findings import finding
from slurmopt.ledger.findings.evidence import AttemptEvidence, NodeEvidence, RankEvidence, mean
from slurmopt.ledger.findings.finding import Abstention, Finding
from slurmopt.ledger.findings.wording import bytes_per_second, percent
from slurmopt.run_folder import loader_costs

LEAST_SHARE = 0.10
"""TraceML 0.3.6 warns at 10 % of the step: below, a better loader changes little, and jitter comes near."""
CERTAIN_SHARE = 0.20
"""TraceML's critical share."""
QUOTA_SHARE = 0.10
"""Of the periods of the CPU controller, those in which the step was stopped. Bursts of a healthy step reach some
percent."""
CPU_FULL = 0.85
"""Of the allocated CPUs. The rest is what processes lose at barriers between them; above, queues at the CPUs grow
steeply."""
ONE_CORE = (0.85, 1.5)
"""Cores in use for each rank, between which the loader works in the training process itself, which is always busy."""
BUSY_WAIT = 0.75
"""Cores in use while a rank waits, if it keeps one busy while it computes. Less: its loader sleeps."""
LEAST_READS = 1e6
"""Bytes per second of a node. Log files and imports stay below; a loader of small files on slow storage does not."""
DISK_READS = 10e6
"""Bytes per second that come from the storage itself and not from the page cache, from which on storage is likely."""
MOST_GROWTH = 4.0
_CHANGED_BY_CPUS = ("CPU quota", "decoding")
_WORKERS = 4
"""Where nothing tells how many CPUs a rank has. Chosen here."""


@dataclass(frozen=True)
class _Cause:
    name: str | None
    sure: str
    summary: str
    evidence: tuple[str, ...]
    change: str


def judge(evidence: AttemptEvidence) -> Iterator[Finding | Abstention]:
    """Input-bound, if the mean rank waits for at least LEAST_SHARE of its training time."""
    if not any("input" in rank.spent for rank in evidence.ranks):
        yield Abstention(finding.INPUT_BOUND, ("time waiting for input: `for batch in slurmopt.watch(loader)`",))
        return
    share = input_share(evidence.ranks)
    if share < LEAST_SHARE:
        return
    worst = max(evidence.ranks, key=lambda rank: rank.waiting)
    cause = _with_costs(_cause(evidence, share), evidence, worst)
    sure = finding.CERTAIN if share >= CERTAIN_SHARE else finding.LIKELY
    yield Finding(
        kind=finding.INPUT_BOUND,
        cause=cause.name,
        summary=f"The ranks wait for input for {percent(share)} of their training time: {cause.summary}",
        sure=max(sure, cause.sure, key=finding.SURE.index),
        evidence=(
            f"waiting for input: {percent(share)} of the training time on average, "
            f"{percent(worst.waiting)} on rank {worst.rank}",
            *cause.evidence,
        ),
        cost=evidence.hours(sum(rank.seconds("input") * rank.gpus for rank in evidence.ranks), INPUT),
        change=cause.change,
    )


def input_share(ranks: Sequence[RankEvidence]) -> float:
    """The share of their training time that the ranks wait for input, weighted with their GPUs. More than half of them
    must wait: else it is the matter of a straggler."""
    shares = [rank.waiting for rank in ranks]
    waiting = sum(share >= LEAST_SHARE for share in shares)
    return (mean(shares, [rank.gpus or 1.0 for rank in ranks]) or 0.0) if 2 * waiting > len(ranks) else 0.0


def _cause(evidence: AttemptEvidence, share: float) -> _Cause:
    node = _busiest(evidence)
    if node is None or "cpu" not in node.means or not node.cpus:
        absent = "what it waits for is unknown: CPU and I/O of the node were not measured"
        return _Cause(None, finding.LIKELY, "the cause is unknown", (absent,), _workers(_cpus_per_rank(evidence, node)))
    used = node.means["cpu"]
    cores = f"{node.node}: {used:.1f} of {node.cpus:.0f} CPUs in use"
    if (throttled := node.share("cpu_quota_throttled")) >= QUOTA_SHARE:
        stopped = f"{node.node}: stopped by its CPU quota in {percent(throttled)} of the periods"
        more = _more_cpus(evidence, node, share)
        return _Cause("CPU quota", finding.CERTAIN, "its CPU quota stops the loader", (stopped, cores), more)
    if used >= CPU_FULL * node.cpus:
        more = _more_cpus(evidence, node, share)
        return _Cause("decoding", finding.CERTAIN, "all CPUs are busy preparing it", (cores,), more)
    return _with_free_cpus(evidence, node, cores, share)


def _with_costs(cause: _Cause, evidence: AttemptEvidence, worst: RankEvidence) -> _Cause:
    """The cause, with what the batches of the rank that waits longest cost, where that was measured."""
    costs = loader_costs.of(worst.spent, worst.counted)
    if costs is None:
        return cause
    told = (*cause.evidence, f"rank {worst.rank}: {loader_costs.in_words(costs)}")
    node = next((node for node in evidence.nodes if node.node == worst.node), None)
    workers = costs.workers(_cpus_per_rank(evidence, node))
    if cause.name in _CHANGED_BY_CPUS or workers is None:
        return replace(cause, evidence=told)
    return replace(cause, evidence=told, change=f"slurmopt.training.loader(dataset, num_workers={workers})")


def _with_free_cpus(evidence: AttemptEvidence, node: NodeEvidence, cores: str, share: float) -> _Cause:
    ranks = evidence.ranks_of(node.node)
    each = node.means["cpu"] / max(1, len(ranks))
    computing = mean([1 - rank.waiting for rank in ranks]) or 0.0
    while_waiting = (each - min(1.0, computing)) / share
    disk, reads = node.share("disk_read"), node.share("disk_read", "io_read")
    read = f"{node.node}: reads {bytes_per_second(reads)}, {bytes_per_second(disk)} of it from disks"
    if "disk_read" not in node.means:
        read = f"{node.node}: reads {bytes_per_second(reads)}"
    cpus = _cpus_per_rank(evidence, node)
    if ONE_CORE[0] <= each <= ONE_CORE[1] and while_waiting >= BUSY_WAIT and disk < DISK_READS:
        one = f"{node.node}: {each:.1f} CPUs in use for each rank"
        return _Cause("few workers", finding.LIKELY, "one process prepares it while CPUs are free", (cores, one),
                      _workers(cpus))  # fmt: skip
    if not {"disk_read", "io_read"} & node.means.keys():
        unread = "what it reads was not measured for long enough"
        return _Cause(None, finding.POSSIBLE, "the cause is unknown", (cores, unread), _workers(cpus))
    if reads >= LEAST_READS:
        sure = finding.LIKELY if disk >= DISK_READS or disk >= reads / 2 else finding.POSSIBLE
        return _Cause("storage", sure, "the storage delivers it too slowly", (cores, read), _workers(2 * cpus, 4))
    unknown = "it neither computes nor reads files: it may wait for the network, a lock or another process"
    return _Cause(None, finding.POSSIBLE, "the cause is unknown", (cores, read, unknown), _workers(cpus))


def _busiest(evidence: AttemptEvidence) -> NodeEvidence | None:
    """The node whose ranks wait longest."""

    def waiting(node: NodeEvidence) -> float:
        return mean([rank.waiting for rank in evidence.ranks_of(node.node)]) or 0.0

    return max(evidence.nodes, key=waiting, default=None)


def _cpus_per_rank(evidence: AttemptEvidence, node: NodeEvidence | None) -> int:
    if evidence.config.cpus_per_task:
        return evidence.config.cpus_per_task
    if node is None or not node.cpus:
        of_ranks = [rank.gpus for rank in evidence.ranks if not evidence.has_gpus and rank.gpus >= 1]
        return int(min(of_ranks, default=_WORKERS))
    return max(1, int(node.cpus) // max(1, len(evidence.ranks_of(node.node))))


def _more_cpus(evidence: AttemptEvidence, node: NodeEvidence, share: float) -> str:
    """Enough CPUs to prepare a batch while the last one is computed: the loader is busy all the time, and must work
    1 / (1 - share) times as fast."""
    growth = min(MOST_GROWTH, max(1.5, 1 / (1 - min(share, 0.99))))
    return f"resources.cpus_per_task={math.ceil(round(_cpus_per_rank(evidence, node) * growth, 1))}"


def _workers(count: int, prefetch: int | None = None) -> str:
    ahead = "" if prefetch is None else f", prefetch_factor={prefetch}"
    return f"DataLoader(dataset, num_workers={max(2, count)}{ahead})"
