"""The parent's end of the sinks of an array task that runs several points: they get the measurements of its node, once.

The points send their own metrics by `slurmopt.job.sinks.feed`.
"""

from __future__ import annotations

import json

from slurmopt import log
from slurmopt.config.metrics import from_word, sinks_of_pack
from slurmopt.job.detached import Detached
from slurmopt.job.facts.rank_facts import RankFacts
from slurmopt.job.rank_args import RankArgs
from slurmopt.job.sinks.feed import HURRIED_SECONDS
from slurmopt.run_folder.outcome import Outcome


class PackSinks:
    """The process of the sinks. It is no child of the parent, which ends all of its children after each point."""

    def __init__(self, call: RankArgs, attempt: int, facts: RankFacts) -> None:
        """Raises OSError if it cannot be started."""
        words = [str(call.folder.path), str(attempt), "--node", facts.node, "--rank", str(facts.rank)]
        self._process = Detached("slurmopt.job.sinks", [*words, "--of-pack", "--sinks", call.metrics or "{}"])

    def close(self, outcome: Outcome) -> None:
        """Lets the sinks send the last measurements, for HURRIED_SECONDS at most."""
        last = {"outcome": outcome.outcome, "seconds": HURRIED_SECONDS}
        why = self._process.close(json.dumps(last).encode() + b"\n", HURRIED_SECONDS)
        if why is not None:
            log.warning(f"the process of the metric sinks {why}: the last measurements may not have been sent")


def start(call: RankArgs, attempt: int, facts: RankFacts) -> PackSinks | None:
    """Starts the sinks; None where none of them takes measurements of a pack, or nothing measures."""
    if call.metrics is None or call.monitor is None or not sinks_of_pack(from_word(call.metrics)):
        return None
    try:
        return PackSinks(call, attempt, facts)
    except OSError as error:  # no process, no memory: the points may still run
        log.warning(f"the metric sinks cannot be started, and measurements are sent nowhere: {error.strerror}")
        return None
