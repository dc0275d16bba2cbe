"""Host-bound and memory-bandwidth-bound: what GPUs do while the ranks neither wait for input nor for each other.

Means are those of the time in which steps were made, over the GPUs that ranks use.

Host-bound, or launch-bound: kernels run on the GPU (its utilisation is high), but few of its processors work, and a
core of the CPU is always busy: the training launches many small kernels. Where the activity of the processors (GPM) is
not measured, the utilisation alone tells it if it is low: a GPU that waits for another one has a kernel running.

    cost      the time of computing · the missing activity, 1 - activity / HEALTHY (bucket "compute"): what would be
              saved if the GPUs were as active as in a healthy training

Memory-bandwidth-bound: the memory is busy and the tensor cores are not. It costs nothing that can be computed: some
models are like that. It is possible at most.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from slurmopt.ledger.buckets import COMPUTE
from slurmopt.ledger.findings import finding
from slurmopt.ledger.findings.evidence import AttemptEvidence, GpuEvidence, mean
from slurmopt.ledger.findings.finding import Abstention, Finding
from slurmopt.ledger.findings.rules import communication
from slurmopt.ledger.findings.rules.input_wait import LEAST_SHARE, input_share
from slurmopt.ledger.findings.wording import percent

LEAST_SECONDS = 60.0
"""Of training. Kernels are tuned and caches filled before."""
LOW_SM = 0.35
"""NVIDIA's DCGM guide (Feature Overview, Metrics, of SM activity): below 0.5 likely indicates ineffective use, 0.8 is
necessary for effective use, but not sufficient. Further below is our own choice, so that a training with small matrices
is not told off."""
LOW_DRAM = 0.30
HEALTHY_SM = 0.70
"""Our own choice, as is LOW_DRAM: what a training could reach whose kernels are large enough."""
LOW_UTILISATION, HEALTHY_UTILISATION = 0.70, 0.95
"""Of the time with a kernel running. Our own choice."""
BUSY_CORE = 0.80
"""CPUs in use for each rank: the thread that launches kernels never sleeps. Our own choice."""
HIGH_DRAM, LOW_TENSOR = 0.70, 0.15
"""The same guide: about 0.8 is the practical maximum of the memory's activity. Both numbers are our own choice."""
BUSY_TENSOR, BUSY_SM = 0.30, 0.70
"""From which on a training is called compute-bound. Our own choice."""


def judge(evidence: AttemptEvidence) -> Iterator[Finding | Abstention]:
    """Host-bound or memory-bandwidth-bound; an abstention where GPUs are little used and signals are missing."""
    devices = evidence.used_devices()
    if not devices or evidence.window < LEAST_SECONDS or input_share(evidence.ranks) >= LEAST_SHARE:
        return
    sm, tensor, dram = (average(devices, name) for name in ("sm", "tensor", "dram"))
    found = _host_bound(evidence, devices, sm, tensor, dram)
    if found is None and dram is not None and tensor is not None and dram >= HIGH_DRAM and tensor <= LOW_TENSOR:
        found = _bandwidth_bound(dram, tensor)
    if found is not None:
        yield found
    elif missing := _missing(evidence, devices, sm):
        yield Abstention(finding.LOW_UTILISATION, missing)


def average(devices: Sequence[GpuEvidence], column: str) -> float | None:
    """The mean of a column over the GPUs that have it."""
    return mean([device.means[column] for device in devices if column in device.means])


def note(evidence: AttemptEvidence) -> str | None:
    """What limits a training with which nothing is wrong."""
    devices = evidence.used_devices()
    sm, tensor, dram = (average(devices, name) for name in ("sm", "tensor", "dram"))
    if sm is None:
        return None
    words = ", ".join(
        f"{name} {percent(value)}"
        for name, value in (("SM", sm), ("tensor", tensor), ("DRAM", dram))
        if value is not None
    )
    if sm >= BUSY_SM and (tensor or 0.0) >= BUSY_TENSOR:
        return f"compute-bound: {words}"
    return f"activity of the GPUs: {words}"


def _host_bound(
    evidence: AttemptEvidence,
    devices: Sequence[GpuEvidence],
    sm: float | None,
    tensor: float | None,
    dram: float | None,
) -> Finding | None:
    cores, utilisation = _cores_per_rank(evidence), average(devices, "util")
    if cores is None or cores < BUSY_CORE:
        return None
    core = f"{cores:.1f} CPUs in use for each rank"
    if sm is not None:
        waits = _communication_share(evidence)
        if sm >= LOW_SM or (dram or 0.0) >= LOW_DRAM or waits is None or waits >= communication.LEAST_SHARE:
            return None
        lines = [f"SM activity {percent(sm)}", core]
        lines += (
            [] if utilisation is None else [f"utilisation {percent(utilisation / 100)}: kernels run, but small ones"]
        )
        return _found(evidence, 1 - sm / HEALTHY_SM, tuple(lines))
    if utilisation is None or utilisation / 100 >= LOW_UTILISATION or not _input_known(evidence):
        return None
    line = f"no kernel runs for {percent(1 - utilisation / 100)} of the time, without waiting for input"
    return _found(evidence, 1 - utilisation / 100 / HEALTHY_UTILISATION, (line, core))


def _found(evidence: AttemptEvidence, share: float, lines: tuple[str, ...]) -> Finding:
    return Finding(
        kind=finding.HOST_BOUND,
        summary="The GPUs wait for the CPU, which launches many small kernels",
        sure=finding.LIKELY,
        evidence=lines,
        cost=evidence.hours(share * evidence.bucket(COMPUTE), COMPUTE),
        change='model = torch.compile(model, mode="reduce-overhead")',
    )


def _bandwidth_bound(dram: float, tensor: float) -> Finding:
    return Finding(
        kind=finding.BANDWIDTH_BOUND,
        summary="The GPUs' memory is busy while their tensor cores wait",
        sure=finding.POSSIBLE,
        evidence=(f"DRAM activity {percent(dram)}", f"tensor activity {percent(tensor)}"),
        cost=None,
        change="model = torch.compile(model)",
    )


def _cores_per_rank(evidence: AttemptEvidence) -> float | None:
    each = [
        node.means["cpu"] / len(ranks)
        for node in evidence.nodes
        if "cpu" in node.means and (ranks := evidence.ranks_of(node.node))
    ]
    return mean(each)


def _communication_share(evidence: AttemptEvidence) -> float | None:
    """The largest exposed share of the step; None where it is not known. A kernel that waits for others keeps the GPU
    busy with little activity, just as small kernels do."""
    if len(evidence.ranks) < 2:
        return 0.0
    shares = communication.exposed_shares(evidence)
    return None if shares is None else max(shares)


def _input_known(evidence: AttemptEvidence) -> bool:
    return any("input" in rank.spent for rank in evidence.ranks)


def _missing(evidence: AttemptEvidence, devices: Sequence[GpuEvidence], sm: float | None) -> tuple[str, ...]:
    """The signals that would tell why the GPUs are little used; empty where they are used well."""
    utilisation = average(devices, "util")
    low = sm < LOW_SM if sm is not None else utilisation is None or utilisation / 100 < LOW_UTILISATION
    if not low:
        return ()
    missing = []
    if not _input_known(evidence):
        missing.append("time waiting for input: `for batch in slurmopt.watch(loader)`")
    if sm is None:
        missing.append(f"SM activity of the GPU ({devices[0].absent.get('sm', 'not measured')})")
    if _communication_share(evidence) is None:
        missing.append("DDP's timings of each rank (DistributedDataParallel only)")
    if _cores_per_rank(evidence) is None:
        missing.append("CPU use of the node")
    return tuple(missing)
