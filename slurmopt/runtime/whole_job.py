"""A command that runs once per job, where a batch script runs: its own srun or mpirun starts the ranks.

It sees what a batch script sees. Slurm's early signals go to the steps, not to this process, so it has to ask.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
from collections.abc import MutableMapping

from slurmopt.runtime import tree

_OF_A_RANK = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "NODE_RANK", "GROUP_RANK")
_PATIENCE = 20


def forget_rank(environ: MutableMapping[str, str]) -> None:
    """The ranks inherit the environment: this process's own place among them would make each a world of one."""
    for name in _OF_A_RANK:
        environ.pop(name, None)


def send(pid: int, number: signal.Signals) -> None:
    """Sends a signal to the command `pid` as a batch job's processes would get it: srun hands it on to its tasks.

    SIGTERM goes to the command too. Any other goes to the processes that catch it, from the command downward, for it
    would end a shell that waits for srun.
    """
    found = tree.catching(pid, number)
    for one in dict.fromkeys([pid, *found] if number == signal.SIGTERM or not found else found):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(one, number)


def is_preempted() -> bool:
    """Whether the job is in the grace time of a preemption, of which Slurm tells the steps alone."""
    job = os.environ.get("SLURM_JOB_ID")
    if job is None:
        return False
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        command = ["scontrol", "show", "job", "--oneliner", job]
        said = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE, errors="replace")
        return re.search(r"\bPreemptTime=\d", said.stdout) is not None
    return False
