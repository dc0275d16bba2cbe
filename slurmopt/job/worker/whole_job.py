"""Signals for a command that runs once per job, and whose own srun or mpirun starts the ranks.

It sees what a batch script sees. Slurm's early signals go to the steps, not to this process, so it has to ask.
"""

from __future__ import annotations

import contextlib
import re
import signal
import subprocess
import sys
import time
from collections.abc import MutableMapping

from slurmopt.errors import one_line
from slurmopt.job.facts import process_tree
from slurmopt.job.facts.rank_facts import slurm_job, started_with

_OF_A_RANK = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "NODE_RANK", "GROUP_RANK")
_SRUN = ("srun",)
_PASSED_ON_BY_SRUN = (signal.SIGUSR1, signal.SIGUSR2)
_PATIENCE = 20
_TRIES, _PAUSE = 4, 0.3


def forget_rank(environ: MutableMapping[str, str]) -> None:
    """Removes this process's rank from the environment, which the ranks inherit: each would believe in a world size of
    one."""
    for name in _OF_A_RANK:
        environ.pop(name, None)


def send(pid: int, number: signal.Signals, tasks_are_told: bool) -> list[int]:
    """Sends a signal to the processes of the command `pid` that catch it, and to the tasks of its sruns.

    srun forwards SIGUSR1 and SIGUSR2 to its tasks, and kills the tasks at most other signals. For those Slurm is asked
    to signal the tasks, unless it has done so itself (`tasks_are_told`). The command itself gets the signal only if no
    other process does, as a shell that waits for srun would die of it. Returns the processes that got the signal.
    """
    catching = process_tree.catching(pid, number, names=_SRUN)
    sruns = [process for process in catching if process_tree.name(process) in _SRUN]
    if not sruns:
        return process_tree.tell(pid, number)
    signalled = catching if number in _PASSED_ON_BY_SRUN else [process for process in catching if process not in sruns]
    process_tree.send(signalled, number)
    if number not in _PASSED_ON_BY_SRUN and not tasks_are_told:
        _signal_tasks(number)
    return signalled


def _signal_tasks(number: signal.Signals) -> None:
    """Asks Slurm to signal all steps of the job but the batch step, to which this process belongs."""
    word = number.name.removeprefix("SIG")
    answer = _slurm("scancel", f"--signal={word}")
    if answer is None or answer.returncode:
        why = "no answer" if answer is None else one_line(answer.stderr)
        print(f"slurmopt: the tasks of srun cannot be sent SIG{word}: {why}", file=sys.stderr, flush=True)


def is_preempted() -> bool:
    """Whether the job is in the grace time of a preemption. Slurm notifies only the steps of that."""
    answer = None
    for _ in range(_TRIES):  # slurmctld breaks off while it reads slurm.conf anew
        answer = _slurm("scontrol", "show", "job", "--oneliner")
        if answer is None or answer.returncode == 0:
            break
        time.sleep(_PAUSE)
    return answer is not None and re.search(r"\bPreemptTime=\d", answer.stdout) is not None


def _slurm(*command: str) -> subprocess.CompletedProcess[str] | None:
    """Runs a Slurm command on this job; None without a job, without Slurm, or without an answer."""
    job = slurm_job(started_with())
    if job is None:
        return None
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        return subprocess.run([*command, job], capture_output=True, text=True, timeout=_PATIENCE, errors="replace")
    return None
