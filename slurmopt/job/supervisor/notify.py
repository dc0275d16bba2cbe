"""Tells the owner how an attempt ended: what the batch shell calls after the verdict.

python -m slurmopt.job.supervisor.notify FOLDER ATTEMPT

The hooks come by the environment, SLURMOPT_HOOKS='{"when": [STATE, …], "command": [WORD, …], "webhook": URL, …}', the
fields of `slurmopt.notify.tell.Hooks`: arguments can be read by all users of the node, and a URL may hold a secret. A
hook that fails is a line in the job's log and in the journal; the exit status is 0 all the same.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from slurmopt.errors import JobError
from slurmopt.notify.tell import Hooks, tell
from slurmopt.run_folder.access.open_folders import HELD
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.private import hold_run


def main(argv: list[str]) -> int:
    """The command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m slurmopt.job.supervisor.notify")
    parser.add_argument("folder", type=Path)
    parser.add_argument("attempt", type=int)
    args = parser.parse_args(argv)
    hooks = Hooks.from_json(os.environ.pop("SLURMOPT_HOOKS"))
    try:
        folder = RunFolder(args.folder.absolute())
        hold_run(folder)
        os.environ.pop(HELD, None)  # a hook may start runs of its own
        failures = tell(folder, args.attempt, hooks, os.environ)
    except (JobError, OSError) as error:
        failures = [f"notify: {error}"]
    for line in failures:
        print(f"slurmopt: {line}", file=sys.stderr, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
