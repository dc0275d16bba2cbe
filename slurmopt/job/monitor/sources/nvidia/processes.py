"""Counts the processes of other jobs and users on our GPUs."""

from __future__ import annotations

import os
import re
from pathlib import Path

from slurmopt.job.monitor.sources.nvidia.devices import Device
from slurmopt.job.monitor.sources.nvidia.library import NOT_FOUND, Library, NoValue
from slurmopt.run_folder.series.series import NOT_MEASURED

_JOB = re.compile(r"/([^/\n]+)/step_[^/\n]+")
"""The job in a /proc/PID/cgroup of Slurm: job_ID, and from 26.05 on its SLUID."""
_FIRST_NAMESPACE = "pid:[4026531836]"  # PROC_PID_INIT_INO of Linux


class Others:
    """Looks at the compute processes of a GPU. NVML gives the machine's process ids, which mean nothing inside of a
    container with process ids of its own."""

    def __init__(self, nvml: Library, device: Device) -> None:
        self._nvml, self._device = nvml, device
        self._comparable = _namespace() == _FIRST_NAMESPACE
        self._job = _job_of("self")

    def read(self, values: dict[str, float], missing: dict[str, str]) -> None:
        """Adds the column `others`, or why it has no value."""
        if not self._comparable:
            missing["others"] = NOT_MEASURED
            return
        handle = self._device.handle
        try:
            found = self._nvml.first(
                ("nvmlDeviceGetComputeRunningProcesses_v3", handle), ("nvmlDeviceGetComputeRunningProcesses_v2", handle)
            )
        except NoValue as error:
            if error.code == NOT_FOUND:  # an idle GPU
                values["others"] = 0.0
            else:
                missing["others"] = error.reason
            return
        values["others"] = float(sum(self._is_foreign(int(each.pid)) for each in found))

    def _is_foreign(self, pid: int) -> bool:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:  # it has just ended
            return False
        except PermissionError:
            return True  # another user's
        job = _job_of(pid)
        return job != self._job if self._job else _owner(pid) not in (os.getuid(), None)


def job_in(cgroups: str) -> str | None:
    """The Slurm job that a process belongs to, by its /proc/PID/cgroup; None where there is none."""
    match = _JOB.search(cgroups)
    return match[1] if match else None


def _job_of(pid: int | str) -> str | None:
    try:
        return job_in(Path(f"/proc/{pid}/cgroup").read_text(errors="replace"))
    except OSError:
        return None


def _owner(pid: int) -> int | None:
    try:
        return os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return None


def _namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""
