"""How long before the end the ranks must be told, from how long this run's checkpoints took to become durable.

python -m slurmopt.job.supervisor.stop_lead_time FOLDER SECONDS_LEFT POLICY

prints how many seconds the batch shell may wait before it tells them.
"""

from __future__ import annotations

import math
import sys
from collections import deque
from pathlib import Path

from slurmopt.job.supervisor.attempt_end import in_one_line
from slurmopt.restart.policy import from_word
from slurmopt.run_folder import events
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.private import hold_run

MARGIN = 10.0
"""Seconds for the current step, the delivery of the signal, and the end of the ranks."""
_FACTOR = 2.0
"""The last save may take longer than those before it."""
_REMEMBERED = 20


def needed(folder: RunFolder, tier: str | None) -> int | None:
    """Seconds from the stop request until the checkpoint is durable on `tier` and the ranks have ended; None if no
    checkpoint has been measured there yet."""
    words = b'"event": "checkpoint"', f'"tier": "{tier}"'.encode()
    lines = deque((line for line in events.lines(folder.events) if all(word in line for word in words)), _REMEMBERED)
    took = [event.get("seconds") for event in events.parse(lines)]
    measured = sorted(float(each) for each in took if isinstance(each, (int, float)) and math.isfinite(each))
    # One that met an outage is not the rule: nine of ten were quicker.
    return math.ceil(_FACTOR * measured[(len(measured) - 1) * 9 // 10] + MARGIN) if measured else None


def main(argv: list[str]) -> int:
    folder = RunFolder(Path(argv[0]).absolute())
    hold_run(folder)
    need = needed(folder, from_word(argv[2]).durable)
    print(0 if need is None else max(0, int(argv[1]) - need), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(in_one_line(main, sys.argv[1:]))
