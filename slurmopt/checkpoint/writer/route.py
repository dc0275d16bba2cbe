"""Which tiers a save goes to: those it is due on, and others where storage is slow or in trouble."""

from __future__ import annotations

from collections.abc import Collection


def route(due: list[str], tiers: list[str], busy: Collection[str], failing: Collection[str], buffers: int) -> list[str]:
    """The tiers for a save that is due on `due`, of `tiers`, both fastest first.

    A save holds its buffer until the first of its tiers has it; the slower ones then copy it from there. One that is
    due on slower tiers alone would hold it for as long as those take, or are away. So it goes straight to them only
    where another buffer stays free for the others, nothing else is under way to a slower tier (`busy`), and the last
    save to them did not fail (`failing`). Otherwise it goes to all faster tiers first, which also makes it durable
    there.
    """
    if not due or due[0] == tiers[0]:
        return due
    straight = buffers > 1 and not {*busy} & {*tiers[1:]} and not {*failing} & {*due}
    return due if straight else tiers[: tiers.index(due[0])] + due
