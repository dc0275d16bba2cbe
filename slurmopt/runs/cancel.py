"""`slurmopt cancel`: stopping a run, and making sure that it has stopped.

`--json` prints one object: `name`, `id`, `folder`, `job`, `state` (as `slurmopt status` has it) and `gone` (a bool).
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import time

from slurmopt.errors import RunError, SlurmRefused
from slurmopt.folder import events
from slurmopt.folder.process import alive
from slurmopt.runs import options
from slurmopt.runs.find import find
from slurmopt.runs.gather import Status, gather
from slurmopt.runs.journal import Journal, read, text, whole

_PATIENCE = 10.0
_POLL = 0.3
_SCANCEL_TIMEOUT = 30.0


def main(argv: list[str]) -> int:
    """The command; returns the exit status."""
    given = parser().parse_args(argv)
    (status,), _ = gather([find(given.run, given.folder)])
    _refuse(status)
    job = status.journal.job
    # First, so that a job that ends at once is known to have been cancelled.
    events.append(status.folder.events, "cancel", job=job)
    _stop(status)
    gone = _wait(status)
    if given.json:
        print(json.dumps(_as_dict(status, gone)))
    else:
        print(_said(status, gone))
    return 0


def parser() -> argparse.ArgumentParser:
    """The options of `slurmopt cancel`."""
    made = options.parser("cancel", "Stop a run: its ranks are told, and ended if they do not end themselves.")
    options.add_run(made)
    options.add_json(made)
    return made
