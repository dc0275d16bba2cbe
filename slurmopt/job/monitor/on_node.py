"""Measures a node on which no rank of slurmopt runs, until it is told to leave: what `slurmopt monitor` starts by srun.

python -m slurmopt.job.monitor.on_node FOLDER SAMPLING

It leaves at SIGTERM, and at the end of its standard input.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from slurmopt.config.monitor import from_word
from slurmopt.job.facts.rank_facts import launched_facts
from slurmopt.job.monitor.start import sampled
from slurmopt.run_folder import private
from slurmopt.run_folder.layout import RunFolder


class _Told(Exception):
    """SIGTERM has come."""


def _leave(*_: object) -> None:
    raise _Told


def main(argv: list[str]) -> int:
    """Runs the sampler; returns the exit status."""
    run = RunFolder(Path(argv[0]))
    private.hold_run(run)
    facts = launched_facts({"SLURMD_NODENAME": os.environ.get("SLURMD_NODENAME", "")})
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with sampled(from_word(argv[1]), run, 0, facts, whole_job=True):
        try:
            signal.signal(signal.SIGTERM, _leave)
            while os.read(0, 4096):
                pass
        except _Told:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
