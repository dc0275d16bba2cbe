"""Tells which rank the others waited for, from what DDP measured."""

from __future__ import annotations

from collections.abc import Sequence

from slurmopt.ledger.record import RankRecord
from slurmopt.run_folder.time_spent import exposed_communication

_MARGIN = 0.05
"""Share of the time in steps by which the rank must wait less than the median rank."""
_FEWEST_SAMPLES = 10
"""Steps that DDP must have measured of a rank: fewer tell of jitter. It measures each hundredth step."""


def slowest_rank(ranks: Sequence[RankRecord]) -> RankRecord | None:
    """The rank that waits least for the others' gradients.

    The ranks of a DDP training make their steps together: the one that computes longest waits for nobody, and the
    others wait for it. None where DDP measured fewer than ten steps, or where the rank waits less than the median rank
    by no more than 5 % of the time in steps.
    """
    measured = [
        (exposed_communication(rank.counted), rank)
        for rank in ranks
        if rank.counted.get("ddp_sampled", 0.0) >= _FEWEST_SAMPLES
    ]
    if len(measured) < 2:
        return None
    measured.sort(key=lambda pair: pair[0])
    least, rank = measured[0]
    in_steps = rank.spent.get("running", 0.0)
    return rank if measured[len(measured) // 2][0] - least > _MARGIN * in_steps > 0 else None
