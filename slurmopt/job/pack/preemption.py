"""Asks Slurm whether a SIGTERM means preemption; nothing else tells."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

from slurmopt.run_folder.access.files import open_append, read_whole, replace_bytes

_PATIENCE = 10.0
"""Seconds for Slurm's answer. If the grace time of a preemption ends earlier, the next attempt of the array task
determines how the points ended, from what its batch shell knows."""
_ASK = """trap '' TERM  # it comes twice, to all processes
for again in 1 2 3 4 5 6; do  # slurmctld breaks off while it reads slurm.conf anew
  scontrol show job --oneliner "$0" && exit
  sleep 0.3
done"""


class SlurmRecord:
    """Asks Slurm for the record of the array task, in the background."""

    def __init__(self, job: str, place: Path) -> None:
        """The answer is written to `place`. In a container without Slurm's commands there is none."""
        self._process: subprocess.Popen[bytes] | None = None
        self._place, self._deadline = place, time.monotonic() + _PATIENCE
        if shutil.which("scontrol") is not None:
            with os.fdopen(open_append(place), "wb") as file:
                self._process = subprocess.Popen(["sh", "-c", _ASK, job], stdout=file, stderr=subprocess.DEVNULL)

    def copy_to(self, place: Path) -> None:
        """Copies the answer to a point's files, if it has arrived. Raises OSError."""
        while self._process is not None and self._process.poll() is None:
            if time.monotonic() > self._deadline:
                self._process = None
            time.sleep(0.01)
        if self._process is not None:
            replace_bytes(place, read_whole(self._place))
