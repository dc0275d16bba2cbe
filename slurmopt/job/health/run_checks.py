"""Runs the health checks in their order, and turns a failed one into the rank's outcome."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from functools import partial

from slurmopt.checks.result import CheckResult
from slurmopt.config.health import Checks
from slurmopt.job import failures, signals
from slurmopt.job.facts.gpus import CUDA, any_promised, of_nvidia, promised
from slurmopt.job.facts.rank_facts import RankFacts
from slurmopt.job.health import gpu_kernel, gpus, node
from slurmopt.job.health.bounded import Budget, Look, bounded
from slurmopt.job.health.network_reach import CHECKING, Reach
from slurmopt.job.health.waiting import Waiting
from slurmopt.job.heartbeat.heartbeat_writer import HeartbeatWriter
from slurmopt.job.rank_args import RankArgs
from slurmopt.run_folder.outcome import EXIT_STATUS, INFRASTRUCTURE, Outcome
from slurmopt.units import human_seconds

_GPUS_TIMES = 6
"""A cold start of the driver or of CUDA takes many seconds for each GPU if no other process keeps the driver loaded."""


def check(call: RankArgs, attempt: int, facts: RankFacts, live: HeartbeatWriter) -> Outcome | None:
    """Checks the node. Returns None if the rank may go on, else its outcome, which names the node and the check.

    A check takes at most `health.within` seconds, that of the GPUs six times as long. The first rank of each node
    checks what the node has once; all ranks check what the nodes share, because none may start while another one waits.
    Problems that may pass are waited for, `health.wait` seconds at most.
    """
    if call.health is None:
        return None
    checks = call.health
    live.enter(CHECKING)
    findings = [*_gpus_of_the_rank(checks, facts), *_node(call, checks, attempt, facts)]
    waited = 0.0
    if findings and checks.wait and all(finding.passing for finding in findings):
        again = partial(_node, call, checks, attempt, facts)
        findings, waited = Waiting(call.folder, attempt, facts, live).until_passed(findings, again, checks.wait)
        if findings and signals.requested():
            return failures.left(f"it was asked to stop while it waited: {_said(findings)}")
    if not findings and facts.local_rank == 0 and facts.nodes > 1 and checks.reach:
        findings = [*_reached(call, attempt, facts, live, Budget(checks.within))]
    return _failed(findings, facts, waited) if findings else None


def _node(call: RankArgs, checks: Checks, attempt: int, facts: RankFacts) -> list[CheckResult]:
    """Checks the node once, and what all nodes share."""
    budget = Budget(checks.within)
    parts = _of_the_node(call, checks, attempt, facts) if facts.local_rank == 0 else _shared(call, checks)
    looks = [bounded(what, budget, part, passing) for what, part, passing in parts]
    return [finding for finding in looks if finding is not None]


def check_gpu(call: RankArgs, facts: RankFacts) -> Outcome | None:
    """Checks the rank's GPU with torch. Called once the function's modules are imported, as they may set what torch
    reads at its start."""
    if call.health is None or not call.health.gpus or call.backend == "gloo" or not any_promised(os.environ):
        return None
    torch = gpu_kernel.torch_of_gpus()
    if torch is None or not promised(os.environ, gpu_kernel.kind_of(torch) or CUDA):
        return None
    what = f"the GPU of rank {facts.rank}"
    finding = bounded(what, Budget(call.health.within, _GPUS_TIMES), lambda: gpu_kernel.run(torch, facts.local_rank))
    return None if finding is None else _failed([finding], facts)


def _gpus_of_the_rank(checks: Checks, facts: RankFacts) -> Iterator[CheckResult]:
    words = of_nvidia(os.environ) if checks.gpus else []
    if words and (finding := bounded("NVML", Budget(checks.within, _GPUS_TIMES), lambda: gpus.look(words, facts))):
        yield finding


_Part = tuple[str, Look, bool]
"""The name of a check, the check, and whether a problem may pass by itself."""


def _of_the_node(call: RankArgs, checks: Checks, attempt: int, facts: RankFacts) -> list[_Part]:
    parts = _shared(call, checks)
    if checks.scratch is not None:
        for folder in filter(None, (os.environ.get("TMPDIR") or "/tmp", checks.scratch_path)):  # noqa: S108
            parts.append((folder, partial(node.space, folder, checks.scratch, "health.scratch", False), False))
    if checks.container:
        tiers = {"checkpoint.shared.path": checks.shared_path, "checkpoint.scratch.path": checks.scratch_path}
        parts += [(place, partial(node.mounted, place, key), False) for key, place in tiers.items() if place]
    if checks.clock is not None:
        beat = call.folder.heartbeat(attempt, facts.rank)
        parts.append(("the file system of the run folder", partial(node.clock, beat, checks.clock), True))
    return parts


def _shared(call: RankArgs, checks: Checks) -> list[_Part]:
    if checks.shared is None:
        return []
    folders = filter(None, (str(call.folder.path), checks.shared_path))
    return [(folder, partial(node.space, folder, checks.shared, "health.shared", True), True) for folder in folders]


def _reached(
    call: RankArgs, attempt: int, facts: RankFacts, live: HeartbeatWriter, budget: Budget
) -> Iterator[CheckResult]:
    # Less, so that it ends by itself: with what it found.
    reach = Reach(call.folder, attempt, facts, live, Budget(0.9 * budget.left()))
    finding = bounded("the network", budget, reach.run)
    if finding is not None:
        yield finding


def _said(findings: list[CheckResult]) -> str:
    return "; ".join(finding.text for finding in findings)


def _failed(findings: list[CheckResult], facts: RankFacts, waited: float = 0.0) -> Outcome:
    own = [finding for finding in findings if finding.nodes is None]
    summary = _said(findings) + (f"; waited {human_seconds(waited)} (health.wait)" if waited else "")
    error = f"health: {facts.node}: {summary}" if own or not findings[0].nodes else f"health: {summary}"
    print(f"slurmopt: {error}", file=sys.stderr, flush=True)
    nodes = None if own else sorted({name for finding in findings for name in finding.nodes or ()})
    return Outcome(INFRASTRUCTURE, time.time(), EXIT_STATUS[INFRASTRUCTURE], error=error, nodes=nodes)
