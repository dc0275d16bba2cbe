"""The top finding on a run that has finished. A process of its own finds it: the report is above this package."""

from __future__ import annotations

import subprocess
import sys

from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.process import module_words

_SECONDS = 20.0


def top_finding(run: RunFolder) -> str | None:
    """The finding that costs most, in one line; None where there is none, or it cannot be told in 20 seconds."""
    words = [sys.executable, *module_words("slurmopt.report.top_finding"), str(run.path)]
    try:
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, timeout=_SECONDS, check=False
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    said = done.stdout.decode(errors="replace").strip().splitlines()
    return said[-1] if done.returncode == 0 and said else None
