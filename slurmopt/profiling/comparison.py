"""Two profiles side by side: what became slower."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from slurmopt.profiling.analysis import Profile, RankProfile
from slurmopt.profiling.sentences import slowest_rank


@dataclass(frozen=True)
class Change:
    """A share, a kernel or an operator, in both."""

    name: str
    before: float
    """Seconds a step; of all the time where the traces have no steps."""
    after: float
    calls_before: float | None = None
    """A step; None for a share."""
    calls_after: float | None = None

    @property
    def more(self) -> float:
        """Seconds by which it became slower."""
        return self.after - self.before


@dataclass(frozen=True)
class Comparison:
    """What became slower; of two ranks of one number where both profiles have such."""

    rank_before: int
    rank_after: int
    step: Change
    by_step: bool
    """Whether the times are those of a step."""
    shares: Sequence[Change]
    """The greatest slowdown first."""
    operations: Sequence[Change]


def compare(before: Profile, after: Profile) -> Comparison:
    """The slowest rank of `after` with the same rank of `before`, or its slowest."""
    second = slowest_rank(after)
    first = next((one for one in before.ranks if one.rank == second.rank), slowest_rank(before))
    by_step = first.breakdown.steps > 0 and second.breakdown.steps > 0
    return Comparison(
        first.rank,
        second.rank,
        Change(
            "step", first.breakdown.seconds / _parts(first, by_step), second.breakdown.seconds / _parts(second, by_step)
        ),
        by_step,
        _slowest(_shares(first, second, by_step)),
        _slowest(_operations(first, second, by_step)),
    )


def _parts(one: RankProfile, by_step: bool) -> int:
    return one.breakdown.steps if by_step else 1


def _shares(first: RankProfile, second: RankProfile, by_step: bool) -> list[Change]:
    names = {**first.breakdown.shares, **second.breakdown.shares}
    return [
        Change(
            name,
            first.breakdown.shares.get(name, 0.0) / _parts(first, by_step),
            second.breakdown.shares.get(name, 0.0) / _parts(second, by_step),
        )
        for name in names
    ]


def _operations(first: RankProfile, second: RankProfile, by_step: bool) -> list[Change]:
    before = {one.name: one for one in first.operations}
    after = {one.name: one for one in second.operations}
    changes = []
    for name in {**before, **after}:
        times = [
            (one.seconds / parts, one.calls / parts) if one is not None else (0.0, 0.0)
            for one, parts in (
                (before.get(name), _parts(first, by_step)),
                (after.get(name), _parts(second, by_step)),
            )
        ]
        changes.append(Change(name, times[0][0], times[1][0], times[0][1], times[1][1]))
    return changes


def _slowest(changes: list[Change]) -> list[Change]:
    return sorted(changes, key=lambda change: (-change.more, change.name))
