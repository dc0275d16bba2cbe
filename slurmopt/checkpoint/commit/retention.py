"""Selects the checkpoints of a tier that may be deleted; a pure function of the ledger's commits."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from typing import Protocol

__all__ = ["Committed", "expired"]


class Committed(Protocol):
    """The fields of a ledger commit that retention uses."""

    @property
    def step(self) -> int: ...
    @property
    def attempt(self) -> int: ...
    @property
    def time(self) -> float: ...
    @property
    def name(self) -> str: ...
    @property
    def references(self) -> Collection[str]: ...
    @property
    def metrics(self) -> Mapping[str, float]: ...


def expired(
    commits: Iterable[Committed],
    keep: int,
    keep_every: int | None = None,
    best: int = 0,
    metric: str | None = None,
    mode: str = "min",
    protected: Collection[str] = (),
) -> list[str]:
    """Names of the checkpoints that may be deleted, oldest first; the order of `commits` does not matter.

    A step counts once: of several commits of one step (after a requeue) the newest represents it. Kept are
    - the last `keep` steps by number, and the last `keep` by attempt and time. These differ after a rollback, or a
      restore of a checkpoint older than damaged ones: later saves then have lower numbers, and must not be deleted;
    - with `keep_every`, the first checkpoint at or after each multiple of it (and step 0), since the interval `auto`
      rarely hits a multiple;
    - the `best` steps with the lowest (mode min) or highest (max) `metric`, of equal ones the newer; a checkpoint
      without the metric, or with a non-finite one, is never among them;
    - `protected`: those that are being copied to another tier, or read;
    - all that these reference.

    Raises ValueError for keep or keep_every below 1, best below 0, and a mode other than min and max.
    """
    _check(keep, keep_every, best, mode)
    oldest_first = sorted(commits, key=_age)
    steps = list({commit.step: commit for commit in oldest_first}.values())  # the last one of each step
    kept = {commit.name for commit in steps[-keep:]}
    kept.update(commit.name for commit in sorted(steps, key=_recency)[-keep:])
    kept.update(_milestones(steps, keep_every))
    kept.update(_best(steps, best, metric, mode))
    kept.update(protected)
    kept = _with_references(oldest_first, kept)
    return [commit.name for commit in oldest_first if commit.name not in kept]


def _age(commit: Committed) -> tuple[int, int, float, str]:
    return commit.step, commit.attempt, commit.time, commit.name


def _recency(commit: Committed) -> tuple[int, float, int, str]:
    return commit.attempt, commit.time, commit.step, commit.name


def _check(keep: int, keep_every: int | None, best: int, mode: str) -> None:
    if keep < 1:
        raise ValueError(f"keep: {keep} is too few; valid is 1 or more, since the newest checkpoint always stays")
    if keep_every is not None and keep_every < 1:
        raise ValueError(f"keep_every: {keep_every} is too few; valid is a number of steps, or null")
    if best < 0:
        raise ValueError(f"best: {best} is too few; valid is 0 or more")
    if mode not in ("min", "max"):
        raise ValueError(f"mode: {mode!r} is unknown; valid are min, max")


def _milestones(steps: list[Committed], every: int | None) -> set[str]:
    """The first of each range [n·every, (n+1)·every); of the first range only step 0."""
    if every is None:
        return set()
    newest_first = [commit for commit in reversed(steps) if commit.step == 0 or commit.step >= every]
    return set({commit.step // every: commit.name for commit in newest_first}.values())


def _best(steps: list[Committed], best: int, metric: str | None, mode: str) -> list[str]:
    if metric is None:
        return []
    measured = [commit for commit in reversed(steps) if math.isfinite(commit.metrics.get(metric, math.nan))]
    measured.sort(key=lambda commit: commit.metrics[metric] * (1 if mode == "min" else -1))  # stable: newer first
    return [commit.name for commit in measured[:best]]


def _with_references(commits: list[Committed], kept: set[str]) -> set[str]:
    """`kept` and all that it references, transitively: what stays in the ledger must stay loadable."""
    references = {commit.name: commit.references for commit in commits}
    todo, closed = list(kept), set(kept)
    while todo:
        new = set(references.get(todo.pop(), ())) - closed
        closed |= new
        todo += new
    return closed
