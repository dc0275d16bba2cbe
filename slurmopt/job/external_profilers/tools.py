"""The command lines of nsys, ncu and py-spy, and what keeps them from working on this node."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from slurmopt.config.profiler import NCU, NSYS, PY_SPY, Profiler, claims_cupti

NOT_NCCL = "regex:^(?!nccl)"
"""ncu's filter of kernels: one of NCCL that is replayed waits for its peers for ever."""
SUFFIXES = {NSYS: ".nsys-rep", NCU: ".ncu-rep", PY_SPY: ".speedscope.json"}
_CAP_SYS_PTRACE, _CAP_SYS_ADMIN, _CAP_PERFMON = 19, 21, 38
_DRIVER = Path("/proc/driver/nvidia/params")
_YAMA = Path("/proc/sys/kernel/yama/ptrace_scope")
DESCENDANTS = 1
"""The value of ptrace_scope by which only ancestors look into a process, and those that it names."""


def words(plan: Profiler, program: str, report: Path, pid: int | None = None) -> list[str]:
    """The profiler's words before those of the training, or, for py-spy, all of them, with the `pid` that it samples.
    `report`: the file without its suffix."""
    if plan.name == NSYS:
        return [program, *_nsys(plan, report), *plan.arguments]
    if plan.name == NCU:
        return [program, *_ncu(plan, report), *plan.arguments]
    return [program, *_py_spy(plan, report, pid), *plan.arguments]


def _nsys(plan: Profiler, report: Path) -> list[str]:
    """Where it samples no CPUs it costs least. `--kill=none`: else the end of the recording ends the training."""
    words = ["profile", f"--output={report}", "--force-overwrite=true", "--kill=none", "--wait=primary"]
    words += ["--trace=cuda,nvtx", "--sample=none", "--cpuctxsw=none", "--cuda-graph-trace=node"]
    if plan.cuda_range:
        return [*words, "--capture-range=cudaProfilerApi", "--capture-range-end=stop"]
    return [*words, f"--delay={plan.delay}", f"--duration={plan.seconds}"]


def _ncu(plan: Profiler, report: Path) -> list[str]:
    words = [f"--export={report}", "--force-overwrite", "--target-processes=all", f"--kernel-name={NOT_NCCL}"]
    words += [f"--launch-count={plan.launches}", "--kill=no", "--check-exit-code=no"]
    return [*words, "--profile-from-start=off"] if plan.cuda_range else words


def _py_spy(plan: Profiler, report: Path, pid: int | None) -> list[str]:
    """`--nonblocking`: py-spy does not stop the training for a sample. Linux stops a process for good whose tracer is
    killed at the wrong moment (ptrace(2), BUGS)."""
    words = ["record", f"--output={report}{SUFFIXES[PY_SPY]}", "--format=speedscope", "--nonblocking", "--subprocesses"]
    return [*words, f"--duration={plan.seconds}", f"--pid={pid}"]


def program(name: str) -> str | None:
    """Where the profiler is: on PATH, or beside this Python, whose environment may not be activated."""
    return shutil.which(name) or shutil.which(name, path=os.path.dirname(sys.executable))


def ptrace_scope(yama: Path = _YAMA) -> int:
    """Who may look into a process of the same user: 0 all, 1 its ancestors, 2 the administrator, 3 nobody."""
    try:
        return int(yama.read_text())
    except (OSError, ValueError):
        return 0


def hindrance(
    name: str,
    environ: Mapping[str, str] = os.environ,
    driver: Path = _DRIVER,
    yama: Path = _YAMA,
    status: Path = Path("/proc/self/status"),
) -> str | None:
    """Why the profiler cannot work here; None where nothing speaks against it."""
    if program(name) is None:
        return f"{name} is not on PATH of this node"
    if claims_cupti(name) and "NSYS_PROFILING_SESSION_ID" in environ:
        return "the job runs under nsys already, and a process has one profiler of CUDA"
    if name == NCU and _counters_are_closed(driver) and not _may(status, _CAP_SYS_ADMIN, _CAP_PERFMON):
        return (
            "the driver lets only administrators read GPU counters (RmProfilingAdminOnly: 1, ERR_NVGPUCTRPERM); "
            "an administrator sets NVreg_RestrictProfilingToAdminUsers=0 for the module nvidia"
        )
    if name == PY_SPY and (scope := ptrace_scope(yama)) > DESCENDANTS and not _may(status, _CAP_SYS_PTRACE):
        return f"kernel.yama.ptrace_scope is {scope}: no process may look into another; valid: 0 or 1"
    return None


def _counters_are_closed(driver: Path) -> bool:
    try:
        lines = driver.read_text(errors="replace").splitlines()
    except OSError:  # no driver: ncu itself reports it
        return False
    return any(line.replace(" ", "") == "RmProfilingAdminOnly:1" for line in lines)


def _may(status: Path, *capabilities: int) -> bool:
    """Whether this process has one of the capabilities."""
    try:
        lines = status.read_text().splitlines()
    except OSError:
        return False
    held = next((int(line.split()[1], 16) for line in lines if line.startswith("CapEff:")), 0)
    return any(held >> capability & 1 for capability in capabilities)
