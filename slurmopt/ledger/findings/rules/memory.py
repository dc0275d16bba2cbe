"""Unused GPU memory and unused host memory: far less than what was asked for.

GPU memory is a finding only where nothing else is, and the GPUs are not busy either: a training that computes at the
peak with little memory is healthy. The peak is that of torch's allocator where it is known, else what NVML shows as
used, which holds what the allocator keeps for later too. Half of the card is the measure of "far below" in a study of
Perlmutter (arXiv 2502.18680: 55 % of the jobs that asked for 80 GB cards stayed below).

Host memory counts only where the config asks for an amount. Its peak includes the page cache: what makes reading fast
is used.

    cost      none that can be computed: the memory would have let other jobs start, or larger batches run
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from slurmopt.ledger.findings import finding
from slurmopt.ledger.findings.evidence import AttemptEvidence, GpuEvidence
from slurmopt.ledger.findings.finding import Abstention, Finding
from slurmopt.ledger.findings.rules.hardware import BUSY_TENSOR, average
from slurmopt.units import human_bytes

LEAST_SECONDS = 600.0
"""Of training. A short try is not launched again with less."""
GPU_SHARE = 0.5
BIG_CARD = 36 << 30
"""Bytes: cards of 40 GB and more, the ones that a site has in several sizes."""
BUSY_SM = 0.5
BUSY_UTILISATION = 80.0
"""Percent; counts only where the activity of the processors is not measured."""
HOST_SHARE = 0.25
LEAST_UNUSED = 32 << 30
"""Bytes of each node."""
HEADROOM = 1.5
TORCH_PEAK = "memory_allocated_peak"
"""What ranks count: the peak of torch's allocator in bytes, of all GPUs of the rank."""


def judge(evidence: AttemptEvidence) -> Iterator[Finding | Abstention]:
    """GPU memory, then host memory."""
    if evidence.window >= LEAST_SECONDS:
        yield from _of_gpus(evidence)
        yield from _of_hosts(evidence)


def _of_gpus(evidence: AttemptEvidence) -> Iterator[Finding | Abstention]:
    devices = [device for device in evidence.used_devices() if not device.mig and device.memory]
    if not devices or min(device.memory or 0.0 for device in devices) < BIG_CARD:
        return
    peaks = [_peak(evidence, device) for device in devices]
    known = [(peak, device) for peak, device in zip(peaks, devices, strict=True) if peak is not None]
    if len(known) < len(devices):
        yield Abstention(finding.UNUSED_GPU_MEMORY, ("GPU memory in use",))
        return
    peak, device = max(known, key=lambda item: item[0] / (item[1].memory or 1.0))
    card = device.memory or 1.0
    if peak > GPU_SHARE * card or _busy(devices):
        return
    yield Finding(
        kind=finding.UNUSED_GPU_MEMORY,
        summary=f"No GPU uses more than {human_bytes(peak)} of its {human_bytes(card)}",
        sure=finding.POSSIBLE,
        evidence=(f"peak {human_bytes(peak)} on {device.node} GPU {device.index}, the fullest of {len(devices)}",),
        cost=None,
        change=_gpu_change(evidence, peak / card),
    )


def _peak(evidence: AttemptEvidence, device: GpuEvidence) -> float | None:
    """The peak of torch's allocator, if every rank of the GPU tells it and has no other GPU, else NVML's."""
    ranks = [rank for rank in evidence.ranks_of(device.node) if rank.rank in (device.ranks or ())]
    if ranks and all(TORCH_PEAK in rank.counted and len(rank.devices) == 1 for rank in ranks):
        return sum(rank.counted[TORCH_PEAK] for rank in ranks)
    return device.peaks.get("memory_peak", device.peaks.get("memory"))


def _busy(devices: list[GpuEvidence]) -> bool:
    sm, tensor, utilisation = (average(devices, name) for name in ("sm", "tensor", "util"))
    if sm is not None:
        return sm >= BUSY_SM or (tensor or 0.0) >= BUSY_TENSOR
    return utilisation is None or utilisation >= BUSY_UTILISATION


def _gpu_change(evidence: AttemptEvidence, share: float) -> str:
    if evidence.config.sweep and sum(evidence.gpus.values()) == 1:
        points = max(2, int(0.9 / max(share, 0.05)) * evidence.config.side_by_side)
        return f"sweep.per_task={points} sweep.side_by_side={points}"
    return f"batch_size *= {2 if share > 0.25 else 4}"


def _of_hosts(evidence: AttemptEvidence) -> Iterator[Finding | Abstention]:
    asked = evidence.config.memory
    if asked is None or not evidence.nodes or len(evidence.nodes) < len(evidence.gpus):
        return
    peaks = [(node.memory_full, node) for node in evidence.nodes if node.memory_full is not None]
    if len(peaks) < len(evidence.nodes):
        yield Abstention(finding.UNUSED_MEMORY, ("memory of the step",))
        return
    peak, node = max(peaks, key=lambda item: item[0] or 0.0)
    full = (peak or 0.0) + node.means.get("page_cache", 0.0)
    if full > HOST_SHARE * asked or asked - full < LEAST_UNUSED:
        return
    yield Finding(
        kind=finding.UNUSED_MEMORY,
        summary=f"The step uses {human_bytes(full)} of the {human_bytes(asked)} of memory that each node was asked for",
        sure=finding.LIKELY,
        evidence=(f"peak on {node.node}, page cache included: {human_bytes(full)}",),
        cost=None,
        change=f"resources.memory={math.ceil(full * HEADROOM / (1 << 30))}GB",
    )
