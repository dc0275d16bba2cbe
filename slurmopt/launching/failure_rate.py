"""`checkpoint.mtbf=history`: the mean time between failures of a run, as the user's earlier runs had it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from slurmopt.config.checkpoint import HISTORY, UNKNOWN_MTBF
from slurmopt.launching.override_words import merged
from slurmopt.slow_notice import slow_notice

if TYPE_CHECKING:
    from slurmopt.config.schema import Settings


def with_known_rate(overrides: list[str], settings: Settings) -> list[str] | None:
    """The overrides with the time in the place of `history`; None where the config does not ask for that. Says which
    time it is, and why."""
    if settings.checkpoint.mtbf != HISTORY:
        return None
    from slurmopt.estimates.failures import LEAST, history

    with slow_notice("reading how often your runs have failed"):
        known = history(Path(settings.launch.folder))
    nodes = settings.resources.most_nodes
    told = f"{known.failures} failures without notice in {known.node_hours:,.0f} node-hours of your runs"
    if known.mtbf_of_node is None:
        word, why = UNKNOWN_MTBF, f"{told}, and {LEAST} make a rate"
    else:
        word, why = f"{max(1, round(known.mtbf_of_node / nodes / 60))}min", f"{told}; {nodes} nodes"
    print(f"slurmopt: checkpoint.mtbf={word}: {why}", file=sys.stderr)
    return merged(overrides, [f"checkpoint.mtbf={word}"])
