"""Which nodes the next attempt leaves out, from the journal's events: the owner's own, and those that failed the
run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from slurmopt.run_folder.json_values import number, text

EVENT = "node-excluded"
"""The event by which an attempt leaves its node out of the next ones: `nodes`, `until` (seconds since the epoch)."""


def nodes_to_exclude(
    events: Iterable[Mapping[str, Any]], now: float, most: int, configured: str | None = None
) -> str | None:
    """The nodes for `--exclude`: `configured` (`resources.exclude`) and at most `most` of those that failed the run,
    the latest first, as long as `until` says. "" for none any more; None where the run has never left a node out."""
    exclusions = [event for event in events if event.get("event") == EVENT]
    if not exclusions:
        return None
    in_force = [text(event.get("nodes")) for event in exclusions if (number(event.get("until")) or 0.0) > now]
    latest = list(dict.fromkeys(reversed([nodes for nodes in in_force if nodes])))[:most]
    return ",".join(filter(None, [configured, *sorted(latest)]))
