"""Hang, XID, out of memory, foreign processes: what happened to an attempt, by events and the watchdog.

hang                cost: the time without steps · GPUs (bucket "stalled")
                    causes: silent, input, before the first step, collective
XID                 cost: none by itself. Causes: hardware, program. NVIDIA's catalog of XID errors tells them apart
out of memory       cost: none by itself; the kernel killed a process of the step
foreign processes   cost: none that can be computed; others use the GPU that Slurm gave to this job
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from slurmopt.ledger.buckets import STALLED
from slurmopt.ledger.findings import finding
from slurmopt.ledger.findings.evidence import AttemptEvidence, HangFacts
from slurmopt.ledger.findings.finding import Abstention, Finding
from slurmopt.ledger.findings.rules.throttling import exclude
from slurmopt.ledger.findings.wording import named
from slurmopt.run_folder.json_values import as_int, text
from slurmopt.units import human_bytes, human_seconds

HARDWARE_XIDS = {
    46: "the GPU stopped processing", 48: "double-bit ECC error", 62: "internal micro-controller halt",
    64: "memory remapping failed", 74: "NVLink error", 79: "fell off the bus", 95: "uncontained memory error",
    109: "context switch timeout", 110: "security fault", 119: "GSP does not answer", 120: "GSP error",
    136: "link training failed", 140: "unrecovered ECC error", 143: "GPU initialization error",
    158: "fatal timeout",
}  # fmt: skip
"""XIDs for which the GPU is to be reset or its node restarted, by the table of
https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html (Ampere and newer; RESET_GPU, RESTART_BM, and the
workflows of 48 and 74). Left out are those of it that need not be an error: 155 (links that were taken down), 156
(memory or links that were retired), 144 to 150 (NVLink 5: some are to be ignored, which their number does not tell).
63 is to be ignored, and after 94 the program is to be restarted."""
PROGRAM_XIDS = {
    13: "graphics engine exception, mostly an index out of bounds", 31: "memory page fault, an illegal address",
    69: "graphics engine class error",
}  # fmt: skip
"""XIDs that a program causes as a rule, by the same table: hardware or drivers are rarely behind 13 and 31. 43 (a
program ended by an error of its own) and 45 (the cleaning up after an error or a kill) tell nothing more, and are no
findings. 68 (video decoder) is none: the table sends it to NVIDIA's support, not to the program."""
FOREIGN_SHARE = 0.2
"""Processes of others on the GPU, on average. What the job before left is gone after seconds."""
MORE_MEMORY = 1.5
LONG_HANG = 900.0
"""Seconds after which it is worth to be told earlier."""
_LOG_OF_CONNECTIONS = "+environment.variables.TORCH_CPP_LOG_LEVEL=INFO"
"""torch then logs which other rank it waits for."""


def hangs(evidence: AttemptEvidence) -> Iterator[Finding | Abstention]:
    """The hang that ended the attempt."""
    hang = evidence.hang
    if hang is None:
        return
    cause, summary, change = _signature(evidence, hang)
    known = hang.rank is not None and hang.alike < 2
    where = f"rank {hang.rank}" + (f" on {hang.node}" if hang.node else "") if known else ""
    lines = [f"no step for {human_seconds(hang.seconds)}"]
    lines += [_by_their_stacks(hang)] if hang.alike > 1 else []
    lines += [f"{where} stopped first, in phase {hang.phase or 'unknown'}"] if where else []
    lines += [f"last step: {hang.step}"] if hang.step is not None else []
    lines += [f"silent: rank {named(hang.silent)}"] if hang.silent else []
    yield Finding(
        kind=finding.HANG,
        cause=cause,
        summary=summary,
        sure=finding.CERTAIN,
        evidence=tuple(lines),
        cost=evidence.hours(hang.seconds * sum(evidence.gpus.values()), *_stalled(evidence)),
        change=change,
        node=hang.node if known else None,
        rank=hang.rank if known else None,
    )


def _by_their_stacks(hang: HangFacts) -> str:
    return (
        f"{hang.alike} ranks are equally far: their stacks tell for which one the others wait, slurmopt logs --rank all"
    )


def _stalled(evidence: AttemptEvidence) -> tuple[str, ...]:
    return (STALLED,) if evidence.bucket(STALLED) > 0 else ()


def _signature(evidence: AttemptEvidence, hang: HangFacts) -> tuple[str, str, str]:
    who = "A rank" if hang.rank is None or hang.alike > 1 else f"Rank {hang.rank}"
    if hang.rank in hang.silent:
        change = exclude(evidence, hang.node) if hang.node else "restart.hang_after=10m"
        return "silent", f"{who} was stopped: it sent no heartbeats any more", change
    if hang.phase == "input":
        return "input", f"{who} waited for its loader, which delivered nothing", "DataLoader(dataset, timeout=300)"
    if hang.step is None:
        change = "restart.hang_after=10m" if hang.seconds > LONG_HANG else _LOG_OF_CONNECTIONS
        return "before the first step", f"{who} never made a step (phase {hang.phase or 'unknown'})", change
    change = "+environment.variables.TORCH_DISTRIBUTED_DEBUG=DETAIL"
    return "collective", f"{who} stopped at step {hang.step}, and the others waited for it in a collective", change


def xids(evidence: AttemptEvidence) -> Iterator[Finding | Abstention]:
    """The worst XID: of the hardware before that of a program, the first of them."""
    seen = [
        (xid, event) for event in evidence.events if event.get("event") == "xid" and (xid := as_int(event.get("xid")))
    ]
    for cause, known in (("hardware", HARDWARE_XIDS), ("program", PROGRAM_XIDS)):
        of_cause = [(xid, event) for xid, event in seen if xid in known]
        if of_cause:
            yield _xid(evidence, cause, known, of_cause)
            return


def _xid(
    evidence: AttemptEvidence, cause: str, known: Mapping[int, str], seen: list[tuple[int, Mapping[str, Any]]]
) -> Finding:
    xid, event = seen[0]
    node, gpu = text(event.get("node")), as_int(event.get("gpu"))
    change = "+environment.variables.CUDA_LAUNCH_BLOCKING=1"
    return Finding(
        kind=finding.XID,
        cause=cause,
        summary=f"GPU {'?' if gpu is None else gpu} of {node} reported XID {xid}: {known[xid]}",
        sure=finding.CERTAIN,
        evidence=tuple(
            f"XID {number} on {text(event.get('node'))} GPU {as_int(event.get('gpu'))}" for number, event in seen[:4]
        ),
        cost=None,
        change=exclude(evidence, node) if cause == "hardware" and node else change,
        node=node,
        rank=_rank_of(evidence, node, gpu),
        gpu=gpu,
    )


def _rank_of(evidence: AttemptEvidence, node: str | None, gpu: int | None) -> int | None:
    return next((rank.rank for rank in evidence.ranks if rank.node == node and gpu in rank.devices), None)


def out_of_memory(evidence: AttemptEvidence) -> Iterator[Finding | Abstention]:
    """The kernel killed a process of the step for its memory."""
    event = next((event for event in evidence.events if event.get("event") == "oom_kill"), None)
    if event is None:
        return
    name = text(event.get("node"))
    node = next((node for node in evidence.nodes if node.node == name), None)
    limit = evidence.config.memory or (None if node is None else node.memory_limit)
    lines = [f"{name}: the kernel killed {max(1, as_int(event.get('count')) or 1)} processes of the step"]
    if node is not None and node.memory_full is not None and limit is not None:
        lines.append(f"peak {human_bytes(node.memory_full)} of {human_bytes(limit)}")
    asked = math.ceil((limit or 0.0) * MORE_MEMORY / (1 << 30))
    yield Finding(
        kind=finding.OUT_OF_MEMORY,
        summary=f"The memory of {name} was full, and a process was killed",
        sure=finding.CERTAIN,
        evidence=tuple(lines),
        cost=None,
        change=f"resources.memory={asked}GB" if asked else "resources.memory=0",
        node=name,
    )


def foreign(evidence: AttemptEvidence) -> Iterator[Finding | Abstention]:
    """Processes of others on our GPUs."""
    found = [device for device in evidence.used_devices() if device.share("others") >= FOREIGN_SHARE]
    if not found:
        return
    worst = max(found, key=lambda device: device.share("others"))
    lines = [f"{worst.node} GPU {worst.index}: {worst.share('others'):.1f} processes of others on average"]
    if len(found) > 1:
        lines.append("also " + named([f"{device.node} GPU {device.index}" for device in found if device is not worst]))
    yield Finding(
        kind=finding.FOREIGN,
        summary=f"Processes of others use GPU {worst.index} of {worst.node}",
        sure=finding.CERTAIN,
        evidence=tuple(lines),
        cost=None,
        change=exclude(evidence, worst.node) if evidence.config.exclusive else "resources.exclusive=true",
        node=worst.node,
        rank=next(iter(worst.ranks or ()), None),
        gpu=worst.index,
    )
