"""Throttled: a GPU runs slower than it could, because of heat, the node's power supply or its own power limit.

Told by the share of the time in which the driver slowed the clocks, by cause. A GPU at full load is at its power limit
all the time and healthy, so `power` needs a second sign: it runs slower than the others, or its limit is lower.

    cost      the loss of clock against the other GPUs of the attempt · computing. In a training of several ranks all
              wait for the slowest. None where no other GPU can be compared (bucket "compute")
    causes    brake   the node's power supply asks for less (NVML: HW power brake)
              heat    NVML: SW or HW thermal slowdown
              power   the GPU's power limit
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from slurmopt.ledger.buckets import COMMUNICATION, COMPUTE
from slurmopt.ledger.findings import finding
from slurmopt.ledger.findings.evidence import AttemptEvidence, GpuEvidence
from slurmopt.ledger.findings.finding import Abstention, Finding
from slurmopt.ledger.findings.robust import Others
from slurmopt.ledger.findings.wording import named, percent

LEAST_HEAT = 0.05
"""Of the time. Healthy GPUs have none; one short peak of heat is no finding."""
LEAST_BRAKE = 0.01
"""Of the time. It halves the clock or worse, and never happens on a healthy node."""
LEAST_POWER = 0.30
SLOWER_CLOCK = 0.90
"""Of the median clock of the others. Chips of one kind differ by some percent (variation of manufacture)."""
LOWER_LIMIT = 0.90
"""Of the highest power limit of the others of the same name."""
CAUSES = {
    "brake": ("throttle_brake",),
    "heat": ("throttle_thermal", "throttle_hw_thermal"),
    "power": ("throttle_power",),
}
LEAST = {"brake": LEAST_BRAKE, "heat": LEAST_HEAT, "power": LEAST_POWER}
WORDS = {"brake": "the node's power supply slows it", "heat": "it is too hot", "power": "its power limit slows it"}
_HOSTS = re.compile(r"[\w.,\[\]-]+", re.ASCII)


@dataclass(frozen=True)
class _Name:
    """The GPUs of one name: the highest power limit, and their clocks."""

    limit: float
    clocks: Others


_Names = Mapping[str, _Name]


def judge(evidence: AttemptEvidence) -> Iterator[Finding | Abstention]:
    """The worst GPU of each cause."""
    devices = evidence.used_devices()
    columns = {column for names in CAUSES.values() for column in names}
    if devices and not any(column in device.means for device in devices for column in columns):
        yield Abstention(
            finding.THROTTLED, (f"throttling ({devices[0].absent.get('throttle_power', 'not measured')})",)
        )
    told: set[tuple[str, int]] = set()
    names = _by_name(devices)
    for cause in CAUSES:
        slow = [device for device in devices if _throttled(device, cause, names)]
        slow = [device for device in slow if (device.node, device.index) not in told]
        told |= {(device.node, device.index) for device in slow}
        if slow:
            yield _found(evidence, cause, slow, len(devices), names)


def _loss(device: GpuEvidence, names: _Names) -> float | None:
    """How much slower than the median of the others its clock is, as a share; None where that is not known."""
    clock, clocks = device.means.get("clock_sm"), names[device.name].clocks
    if clock is None or len(clocks) < 1 or not (middle := clocks.median(clock)):
        return None
    return max(0.0, 1 - clock / middle)


def _throttled(device: GpuEvidence, cause: str, names: _Names) -> bool:
    if device.share(*CAUSES[cause]) < LEAST[cause]:
        return False
    if cause != "power":
        return True
    if device.power_limit and device.power_limit < LOWER_LIMIT * names[device.name].limit:
        return True
    return (_loss(device, names) or 0.0) > 1 - SLOWER_CLOCK


def _by_name(devices: Sequence[GpuEvidence]) -> dict[str, _Name]:
    groups: dict[str, list[GpuEvidence]] = {}
    for device in devices:
        groups.setdefault(device.name, []).append(device)
    return {
        name: _Name(
            max(device.power_limit or 0.0 for device in group),
            Others(device.means["clock_sm"] for device in group if "clock_sm" in device.means),
        )
        for name, group in groups.items()
    }


def _found(evidence: AttemptEvidence, cause: str, slow: Sequence[GpuEvidence], count: int, names: _Names) -> Finding:
    worst = max(slow, key=lambda device: (_loss(device, names) or 0.0, device.share(*CAUSES[cause])))
    lost = _loss(worst, names)
    lines = [f"{worst.node} GPU {worst.index}: throttled for {percent(worst.share(*CAUSES[cause]))} of the time"]
    if lost is not None:
        lines.append(f"its clock is {worst.means['clock_sm']:.0f} MHz, {percent(lost)} below that of the others")
    if cause == "heat" and "temperature" in worst.peaks:
        lines.append(f"up to {worst.peaks['temperature']:.0f} °C")
    if cause == "power" and worst.power_limit:
        lines.append(f"its power limit is {worst.power_limit:.0f} W")
    if len(slow) > 1:
        lines.append("also " + named([f"{other.node} GPU {other.index}" for other in slow if other is not worst]))
    compute = evidence.bucket(COMPUTE, COMMUNICATION)
    ours = compute if len(evidence.ranks) > 1 else compute / max(1, count)
    return Finding(
        kind=finding.THROTTLED,
        cause=cause,
        summary=f"GPU {worst.index} of {worst.node} is throttled: {WORDS[cause]}",
        sure=finding.CERTAIN if lost is not None and lost > 1 - SLOWER_CLOCK else finding.LIKELY,
        evidence=tuple(lines),
        cost=None if lost is None else evidence.hours(lost * ours, COMPUTE, COMMUNICATION),
        change=exclude(evidence, worst.node),
        node=worst.node,
        rank=next(iter(worst.ranks or ()), None),
        gpu=worst.index,
    )


def exclude(evidence: AttemptEvidence, *nodes: str) -> str:
    """The override that leaves nodes out, in addition to those that are left out already. A name that is none of a host
    is quoted for the shell: a series may be of anybody."""
    names = [*filter(None, [evidence.config.exclude]), *nodes]
    override = f"resources.exclude={names[0]}" if len(names) == 1 else f"resources.exclude='{','.join(names)}'"
    if not all(map(_HOSTS.fullmatch, names)):
        return shlex.quote(override)
    return override if len(names) == 1 else f'"{override}"'
