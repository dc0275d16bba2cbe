"""Asks Slurm whether a SIGTERM means preemption; nothing else tells."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

from slurmopt.run_folder.files import open_append, read_whole, replace_bytes

_PATIENCE = 10.0
"""Seconds for Slurm's answer. Where the grace time of a preemption is over sooner, the next attempt of the array task
tells the points' ends, by what its batch shell knows of this one."""
_ASK = "trap '' TERM; exec scontrol show job --oneliner \"$0\""  # the SIGTERM comes twice, to all processes


class SlurmRecord:
    """Asks Slurm for the array task's record, in the background."""

    def __init__(self, job: str, place: Path) -> None:
        """`place`: where the answer goes. In a container without Slurm's commands there is none."""
        self._process: subprocess.Popen[bytes] | None = None
        self._place, self._deadline = place, time.monotonic() + _PATIENCE
        if shutil.which("scontrol") is not None:
            with os.fdopen(open_append(place), "wb") as file:
                self._process = subprocess.Popen(["sh", "-c", _ASK, job], stdout=file, stderr=subprocess.DEVNULL)

    def copy_to(self, place: Path) -> None:
        """Puts the answer, where there is one in time, to a point's own files. Raises OSError."""
        while self._process is not None and self._process.poll() is None:
            if time.monotonic() > self._deadline:
                self._process = None
            time.sleep(0.01)
        if self._process is not None:
            replace_bytes(place, read_whole(self._place))
