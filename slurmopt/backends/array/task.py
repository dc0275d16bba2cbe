"""One running array task: its shell, the environment that a Slurm array task would have, its signals and its end."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from slurmopt.backends.array.machine import Machine
from slurmopt.backends.array.slots import Place
from slurmopt.backends.array.state import Process, State
from slurmopt.backends.killed_shell import KILL_WAIT
from slurmopt.grid.submissions import Submission
from slurmopt.run_folder.access.files import open_append
from slurmopt.run_folder.process import started_at
from slurmopt.run_folder.sweep_layout import SweepFolder

_HIGH = 200
"""The first descriptor of the pipe, above those of the job script."""


@dataclass
class Task:
    """An array task that runs. `shell` is None for one that an earlier runner has started."""

    submission: Submission
    number: int
    process: Process
    place: Place
    shell: subprocess.Popen[bytes] | None
    limit: float | None
    """Its time limit in seconds."""
    lead: float
    """Seconds before the limit at which it is told."""
    warned: bool = False
    ended_at: float | None = None
    """When it was told to end."""

    @property
    def label(self) -> str:
        return f"{self.submission.job}_{self.number}"

    def has_ended(self, state: State) -> bool:
        """Whether its shell is gone."""
        if self.shell is not None:
            return self.shell.poll() is not None
        return not state.lives(self.process.pid, self.process.pid_started)

    def look(self, cancelled: bool) -> None:
        """Sends what is due: the signal before the time limit, the end at it or after a cancel, and SIGKILL after
        that."""
        now = time.time()
        used = now - self.process.started
        if self.limit is not None and not self.warned and used >= self.limit - self.lead:
            self.warned = True
            _send(os.kill, self.process.pid, signal.SIGUSR1)
        is_due = cancelled or (self.limit is not None and used >= self.limit)
        if is_due and self.ended_at is None:
            self.ended_at = now
            _send(os.killpg, self.process.pid, signal.SIGTERM)
        if self.ended_at is not None and now >= self.ended_at + KILL_WAIT:
            _send(os.kill, self.process.pid, signal.SIGKILL)
            clear_up(self.label)


def start(
    sweep: SweepFolder,
    submission: Submission,
    number: int,
    place: Place,
    machine: Machine,
    note: Callable[[Process], None],
) -> tuple[subprocess.Popen[bytes], Process]:
    """Starts the job script. It waits until `note` has written its process down: where that fails, or this process is
    killed before, the script does not run. Raises OSError."""
    gate, opener = os.pipe()
    high = fcntl.fcntl(gate, fcntl.F_DUPFD_CLOEXEC, _HIGH)
    os.close(gate)
    words = [str(submission.number), str(submission.numbered), str(submission.per_task)]
    wait = f'IFS= read -r -n 1 go <&{high} && exec {high}<&- && exec bash "$0" "$@"'
    try:
        with os.fdopen(open_append(sweep.run.job_log(f"{submission.job}_{number}")), "ab") as log:
            shell = subprocess.Popen(
                ["bash", "-c", wait, str(sweep.script), *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=environment(submission, number, place, machine),
                pass_fds=[high] if place.descriptor is None else [high, place.descriptor],
                preexec_fn=lambda: _prepare(place, machine),
            )
        process = Process(shell.pid, started_at(shell.pid), time.time(), place.cpus, place.gpus, place.memory)
        note(process)
        os.write(opener, b"g")
    finally:
        os.close(high)
        os.close(opener)
    return shell, process


def _prepare(place: Place, machine: Machine) -> None:
    """In the new process, before bash."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
    if machine.bound:
        with contextlib.suppress(OSError):  # the CPUs of this process have changed since
            os.sched_setaffinity(0, place.cpus)


def environment(submission: Submission, number: int, place: Place, machine: Machine) -> dict[str, str]:
    """The variables of an array task: those of this process, Slurm's words for an array, and its own GPUs. Words of a
    Slurm job around the launch are left out."""
    inherited = {
        name: word for name, word in os.environ.items() if not name.startswith("SLURM_") or name == "SLURM_CONF"
    }
    array = submission.array
    words = {
        "SLURM_ARRAY_JOB_ID": str(submission.job),
        "SLURM_ARRAY_TASK_ID": str(number),
        "SLURM_ARRAY_TASK_COUNT": str(len(array)),
        "SLURM_ARRAY_TASK_MIN": str(array[0]),
        "SLURM_ARRAY_TASK_MAX": str(array[len(array) - 1]),
        "SLURM_ARRAY_TASK_STEP": "1",
    }
    if machine.gpus or place.gpus:
        words["CUDA_VISIBLE_DEVICES"] = ",".join(place.gpus)
    return {**inherited, **words}


def clear_up(label: str) -> None:
    """Kills what is left of an array task, in whatever session: each process has the task in its environment."""
    array, _, number = label.partition("_")
    wanted = {f"SLURM_ARRAY_JOB_ID={array}".encode(), f"SLURM_ARRAY_TASK_ID={number}".encode()}
    for _ in range(50):  # what starts others while it is looked for
        pids = [pid for pid in _own_processes() if wanted <= _environment_of(pid)]
        if not pids:
            return
        for pid in pids:
            _send(os.kill, pid, signal.SIGKILL)
        _reap_orphans(pids)
        time.sleep(0.02)


def _own_processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdecimal() and int(name) != os.getpid()]


def _environment_of(pid: int) -> set[bytes]:
    try:
        return set(Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"))
    except OSError:  # it has gone, or is another user's
        return set()


def _reap_orphans(pids: list[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


def _send(how: Callable[[int, int], None], pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        how(pid, number)
