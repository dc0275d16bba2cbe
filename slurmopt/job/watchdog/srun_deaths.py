"""Reads in the job's log which ranks died: a rank that is killed reports nothing itself, but srun does."""

from __future__ import annotations

import os
import re
import time

from slurmopt.run_folder.layout import RunFolder

GRACE_SECONDS = 5.0
"""How long the other ranks have, once a rank has died or the step is to end."""


class SrunDeaths:
    """The lines of srun on ranks that ended badly, since this object was made."""

    _LINE = re.compile(rb"^srun: error: \S+: tasks? [\d,\-\[\]]+: ", re.MULTILINE)

    def __init__(self, folder: RunFolder) -> None:
        self._log = folder.job_log(os.environ.get("SLURM_JOB_ID", "-"))
        self._read = self._size()
        self._since: float | None = None

    def long_ago(self) -> bool:
        """Whether a rank died more than a few seconds ago, so that the others had time to report what they lost."""
        if self._since is None and self._size() > self._read and self._LINE.search(self._news()):
            self._since = time.monotonic()
        return self._since is not None and time.monotonic() - self._since > GRACE_SECONDS

    def _size(self) -> int:
        try:
            return self._log.stat().st_size
        except OSError:
            return 0

    def _news(self) -> bytes:
        try:
            with self._log.open("rb") as file:
                file.seek(self._read)
                return file.read(65536)
        except OSError:
            return b""
