"""Tells the owner how an attempt ended: what the batch shell calls after the verdict.

python -m slurmopt.runtime.notify FOLDER ATTEMPT --when STATES [--command JSON] [--webhook URL]

A hook that fails is a line in the job's log and in the journal; the exit status is 0 all the same.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

from slurmopt.folder.layout import RunFolder
from slurmopt.survival.notify import Hooks, tell


def main(argv: list[str]) -> int:
    """The command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m slurmopt.runtime.notify")
    parser.add_argument("folder", type=Path)
    parser.add_argument("attempt", type=int)
    parser.add_argument("--when", type=lambda text: text.split(","), required=True)
    parser.add_argument("--command", type=json.loads, help="a list of words")
    parser.add_argument("--webhook")
    given = parser.parse_args(argv)
    hooks = Hooks(given.when, given.command, given.webhook)
    try:
        failures = tell(RunFolder(given.folder.absolute()), given.attempt, hooks, os.environ)
    except OSError as error:
        failures = [f"notify: {error}"]
    for line in failures:
        print(f"slurmopt: {line}", file=sys.stderr, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
