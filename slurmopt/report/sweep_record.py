"""A sweep as the report sees it: a record for each point that has started, and what its array tasks used besides."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from slurmopt.grid.point_ranges import Ranges
from slurmopt.ledger.ledger import Account, Ledger
from slurmopt.report.run_record import RunRecord
from slurmopt.sweeps.status.point_states import SweepStates


@dataclass
class SweepRecord:
    """A sweep, read once."""

    states: SweepStates
    points: dict[int, RunRecord] = field(default_factory=dict)
    """Point → its record; of the points that have started."""
    between: Account = field(default_factory=Account)
    """What array tasks with several points were allocated while none of their points ran: before the first, between
    two, and after the last."""
    problems: list[str] = field(default_factory=list)
    among: Ranges | None = None
    """The points that were asked for; None: all of them."""

    @property
    def label(self) -> str:
        """NAME/ID, or NAME/ID/3-9."""
        return self.states.label if self.among is None else f"{self.states.label}/{self.among}"

    @property
    def count(self) -> int:
        """How many points it has, or were asked for."""
        return self.states.count if self.among is None else len(self.among)

    @cached_property
    def counts(self) -> dict[str, int]:
        """State → how many of these points are in it."""
        return dict(self.states.counts(self.among))

    @property
    def now(self) -> float:
        return self.states.now

    @cached_property
    def ledger(self) -> Ledger:
        """Where the allocated time of all points and array tasks went; without the attempts of the points."""
        ledgers = [point.ledger for _, point in sorted(self.points.items())]
        unit = "GPU" if not ledgers or any(one.unit == "GPU" for one in ledgers) else ledgers[0].unit
        found = Ledger(unit=unit)
        for one in ledgers:
            if one.unit != unit:
                continue
            found.add(one.buckets)
            for node, account in one.nodes.items():
                found.nodes.setdefault(node, Account()).add(account.buckets)
            for name, amount in one.phases.items():
                found.phases[name] = found.phases.get(name, 0) + amount
            found.queue_seconds += one.queue_seconds
            found.provisional |= one.provisional
        found.add(self.between.buckets)
        others = sum(one.unit != unit for one in ledgers)
        found.notes = (f"{others:,} points had no GPUs, and are left out of the sums",) if others else ()
        return found
