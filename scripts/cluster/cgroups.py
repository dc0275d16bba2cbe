"""Real memory limits, by either version of control groups."""

import os
from pathlib import Path

from cluster.errors import UsageError
from cluster.polling import wait_until
from cluster.processes import Process, everything

FILE = "cgroup.conf"
ROOT = Path("/sys/fs/cgroup")
# proctrack/cgroup keeps its processes in freezer; task/cgroup opens all of them, wanted or not.
OLDEST_FOR_V2 = "23.02"
HIERARCHIES = ("freezer", "memory", "cpuset", "devices")


def check(release: str) -> None:
    """Say why Slurm could not limit memory here."""
    if is_v2():
        _check_v2(release)
    else:
        for name in HIERARCHIES:
            _check_hierarchy(ROOT / name)
    # Slurm names the groups after the node alone, so two clusters would end each other's jobs.
    for other in filter(_has_cgroups, everything()):
        raise UsageError(f"--cgroups: one cluster at a time can have them, and {other.environment['SLURM_CONF']} does")


def is_v2() -> bool:
    """Whether this machine has cgroup v2 alone."""
    return (ROOT / "cgroup.controllers").is_file()


def _check_v2(release: str) -> None:
    if release < OLDEST_FOR_V2:
        raise UsageError(f"--cgroups: {ROOT} is cgroup v2, and Slurm {release} needs systemd for that: --release 24.11")
    if "memory" not in (ROOT / "cgroup.controllers").read_text().split():
        raise UsageError(f"--cgroups: {ROOT}, cgroup v2, has no controller of memory")
    _check_hierarchy(ROOT)


def _check_hierarchy(hierarchy: Path) -> None:
    if not hierarchy.is_dir():
        raise UsageError(f"--cgroups: the cgroup v1 hierarchy {hierarchy} is not mounted")
    try:
        probe = hierarchy / f"slurm-cluster-{os.getpid()}"
        probe.mkdir()
        probe.rmdir()
    except OSError as error:
        raise UsageError(f"--cgroups: cannot make a group in {hierarchy}: {error.strerror}") from None


def _has_cgroups(process: Process) -> bool:
    conf = process.environment.get("SLURM_CONF")
    return bool(process.daemon and conf) and (Path(str(conf)).parent / FILE).is_file()


def remove(nodes: list[str]) -> None:
    """Remove what slurmd and slurmstepd made and, killed, could not remove."""
    # A killed process leaves its group a little after it left /proc.
    wait_until(lambda: all(_removed(root) for root in _roots(nodes)), 5, f"empty groups in {ROOT}")


def _removed(root: Path) -> bool:
    try:
        for folder, _, _ in os.walk(root, topdown=False):
            os.rmdir(folder)
    except OSError:
        return False
    return True


def _roots(nodes: list[str]) -> list[Path]:
    patterns = ("system.slice/{}_slurmstepd.scope",) if is_v2() else ("*/slurm_{}",)
    return [root for node in nodes for pattern in patterns for root in ROOT.glob(pattern.format(node))]
