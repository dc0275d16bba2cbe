"""Counts the checkpoints of each attempt, of which a long run's journal may tell a million."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from slurmopt.report.run_record import AttemptFacts
from slurmopt.run_folder import events

_LINE = re.compile(
    rb'"event": "checkpoint", "attempt": (\d{1,9}), "step": (\d{1,15}), [^\n]{0,400}?'
    rb'"bytes": (\d{1,18}), "seconds": (\d{1,9}(?:\.\d{1,9})?)'
)


def count_checkpoints(path: Path, facts: Mapping[int, AttemptFacts]) -> None:
    """Adds the checkpoints that a journal tells of to the attempts. Raises OSError."""
    steps: dict[int, set[bytes]] = defaultdict(set)
    for block in events.blocks(path):
        if events.OF_CHECKPOINTS not in block:
            continue
        for attempt, step, size, seconds in _LINE.findall(block):
            if (of_attempt := facts.get(int(attempt))) is not None:
                steps[int(attempt)].add(step)
                of_attempt.checkpoint_bytes += int(size)
                of_attempt.checkpoint_seconds += float(seconds)
    for number, distinct in steps.items():
        facts[number].checkpoints = len(distinct)
