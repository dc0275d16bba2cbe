"""Selects the tiers of a save: those that are due, and faster ones where a tier is slow or failing."""

from __future__ import annotations

from collections.abc import Collection


def route(due: list[str], tiers: list[str], busy: Collection[str], failing: Collection[str], buffers: int) -> list[str]:
    """The tiers for a save that is due on `due`, of `tiers`; both lists are fastest first.

    A save occupies its buffer until the first of its tiers has it; slower tiers then copy it from there. A save that is
    due only on slower tiers would occupy the buffer for as long as these take, or are unreachable. So it goes directly
    to them only where another buffer remains free, no other save to a slower tier is in progress (`busy`), and the last
    save to them did not fail (`failing`). Otherwise it goes to all faster tiers first.
    """
    if not due or due[0] == tiers[0]:
        return due
    straight = buffers > 1 and not {*busy} & {*tiers[1:]} and not {*failing} & {*due}
    return due if straight else tiers[: tiers.index(due[0])] + due
