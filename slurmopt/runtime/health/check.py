"""The checks in their order, and what a failed one makes of the rank."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from functools import partial

from slurmopt.config.health import Checks
from slurmopt.folder.outcome import EXIT_STATUS, INFRASTRUCTURE, Outcome
from slurmopt.runtime.call import Call
from slurmopt.runtime.health import gpus, kernel, node
from slurmopt.runtime.health.finding import Budget, Check, Finding, bounded
from slurmopt.runtime.health.reach import CHECKING, Reach
from slurmopt.runtime.live import LiveRank
from slurmopt.runtime.ranks import RankFacts

_GPUS_TIMES = 6
"""A cold start of the driver, or of CUDA, takes many seconds for each GPU, where nothing else keeps it awake."""


def check(call: Call, attempt: int, facts: RankFacts, live: LiveRank) -> Outcome | None:
    """What every task needs of its node: None where the rank may go on, else its outcome, which names node and check.

    Takes `health.within` at most, and the GPUs six times that. The first rank of each node looks at what the node has
    but once.
    """
    if call.health is None:
        return None
    live.enter(CHECKING)
    found = [*_gpus_of_the_rank(call.health, facts)]
    budget = Budget(call.health.within)
    parts = _of_the_node(call, call.health, attempt, facts) if facts.local_rank == 0 else []
    found += [finding for what, part in parts if (finding := bounded(what, budget, part)) is not None]
    if not found and facts.local_rank == 0 and facts.nodes > 1 and call.health.reach:
        found = [*_reached(call, attempt, facts, live, budget)]
    return _failed(found, facts) if found else None


def check_gpu(call: Call, facts: RankFacts) -> Outcome | None:
    """What a function needs besides, once its own modules are imported: they may set what torch reads at its start."""
    if call.health is None or not call.health.gpus or call.backend == "gloo" or not gpus.any_promised(os.environ):
        return None
    torch = kernel.torch_of_gpus()
    if torch is None or not gpus.promised(os.environ, kernel.kind_of(torch) or gpus.CUDA):
        return None
    what = f"the GPU of rank {facts.rank}"
    finding = bounded(what, Budget(call.health.within, _GPUS_TIMES), lambda: kernel.run(torch, facts.local_rank))
    return None if finding is None else _failed([finding], facts)


def _gpus_of_the_rank(checks: Checks, facts: RankFacts) -> Iterator[Finding]:
    words = gpus.of_nvidia(os.environ) if checks.gpus else []
    if words and (found := bounded("NVML", Budget(checks.within, _GPUS_TIMES), lambda: gpus.look(words, facts))):
        yield found


def _of_the_node(call: Call, checks: Checks, attempt: int, facts: RankFacts) -> list[tuple[str, Check]]:
    parts: list[tuple[str, Check]] = []
    for folder, least, key, shared in _folders(call, checks):
        parts.append((folder, partial(node.space, folder, least, key, shared)))
    if checks.container:
        tiers = {"checkpoint.shared.path": checks.shared_path, "checkpoint.scratch.path": checks.scratch_path}
        parts += [(place, partial(node.mounted, place, key)) for key, place in tiers.items() if place is not None]
    if checks.clock is not None:
        most, beat = checks.clock, call.folder.heartbeat(attempt, facts.rank)
        parts.append(("the file system of the run folder", lambda: node.clock(beat, most)))
    return parts


def _folders(call: Call, checks: Checks) -> Iterator[tuple[str, int, str, bool]]:
    if checks.shared is not None:
        for folder in filter(None, (str(call.folder.path), checks.shared_path)):
            yield folder, checks.shared, "health.shared", True
    if checks.scratch is not None:
        for folder in filter(None, (os.environ.get("TMPDIR") or "/tmp", checks.scratch_path)):  # noqa: S108
            yield folder, checks.scratch, "health.scratch", False


def _reached(call: Call, attempt: int, facts: RankFacts, live: LiveRank, budget: Budget) -> Iterator[Finding]:
    # Less, so that it ends by itself: with what it found.
    reach = Reach(call.folder, attempt, facts, live, Budget(0.9 * budget.left()))
    finding = bounded("the network", budget, reach.run)
    if finding is not None:
        yield finding


def _failed(found: list[Finding], facts: RankFacts) -> Outcome:
    own = [finding for finding in found if finding.nodes is None]
    said = "; ".join(finding.text for finding in found)
    error = f"health: {facts.node}: {said}" if own or not found[0].nodes else f"health: {said}"
    print(f"slurmopt: {error}", file=sys.stderr, flush=True)
    nodes = None if own else sorted({name for finding in found for name in finding.nodes or ()})
    return Outcome(INFRASTRUCTURE, time.time(), EXIT_STATUS[INFRASTRUCTURE], error=error, nodes=nodes)
