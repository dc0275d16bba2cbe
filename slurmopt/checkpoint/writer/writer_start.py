"""Checks on the tiers before the first step: whether any can be written, and whether all nodes see the same folder."""

from __future__ import annotations

import time

from slurmopt.checkpoint.format import ledger
from slurmopt.checkpoint.tiers import Tier
from slurmopt.errors import CheckpointError, RanksLost, StorageBroken
from slurmopt.job.worker.current_run import CurrentRun
from slurmopt.slow_notice import slow_notice

Problems = dict[str, tuple[str, str]]
"""By tier: the kind of the problem and a line about it."""
_VISIBLE_SECONDS = 70.0
"""How long a new file may be invisible on another node: NFS caches directory entries for up to 60 s."""
_PERMANENT = ("lasting", "broken")
"""The kinds of problems that do not pass by themselves."""


def refuse_unusable_tiers(problems: list[Problems], tiers: list[Tier], rank: int) -> None:
    """Raises where no tier can be written until somebody fixes it: nothing of the training would be saved.

    `problems` are those of each rank. StorageBroken on a rank whose own disk is broken, since another node may have one
    that works; RanksLost on the others then; else CheckpointError.
    """
    permanent = {tier: text for each in problems for tier, (kind, text) in each.items() if kind in _PERMANENT}
    if len(permanent) < len(tiers):
        return
    message = "no checkpoint can be saved: " + "; ".join(permanent.values())
    broken = [number for number, each in enumerate(problems) if any(kind == "broken" for kind, _ in each.values())]
    if rank in broken:
        raise StorageBroken(message)
    raise RanksLost(f"the other ranks did not come: {message}") if broken else CheckpointError(message)


def unshared_folder(tiers: list[Tier], failing: set[str], run: CurrentRun) -> str | None:
    """A problem where a shared tier is another folder on this node than on rank 0's, whose writer has put a record
    there.

    Leaves out the tiers in `failing`.
    """
    for tier in tiers:
        if tier.kind.is_folder and not tier.node_local and tier.name not in failing:
            with slow_notice(f"looking for rank 0's record in {tier.root}"):
                if not _has_record(tier, run.attempt):
                    where = f"{tier.root} on {run.rank.node} is not the folder that rank 0 writes to"
                    return f"{tier.name}: {where}; is it mounted on all nodes?"
    return None


def _has_record(tier: Tier, attempt: int) -> bool:
    deadline = time.monotonic() + _VISIBLE_SECONDS
    while attempt not in ledger.read(tier.store()).by_attempt:
        if time.monotonic() >= deadline:
            return False
        time.sleep(1.0)
    return True
