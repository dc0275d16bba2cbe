"""Where the benches work: a temporary folder, a clean environment, and a private Slurm cluster where one can be had."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measure import BenchError

ROOT = Path(__file__).resolve().parents[2]
SLURM_COMMANDS = ("sbatch", "squeue", "sinfo", "scontrol", "scancel", "sacct", "sacctmgr", "srun")
DAEMONS = ("slurmctld", "slurmd", "munged", "sbatch")
INHERITED = ("SLURM", "SBATCH", "SRUN", "SQUEUE", "PMI", "HYDRA", "PYTHON")


@dataclass(frozen=True)
class Workbench:
    """What every bench needs."""

    folder: Path
    env: Mapping[str, str]
    slurm: bool
    """Whether a private cluster runs; SLURM_CONF of `env` names it."""
    python: str = sys.executable

    def place(self, name: str) -> Path:
        """A folder of this name, emptied."""
        path = self.folder / name
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir()
        return path

    def run(
        self, argv: list[str], cwd: Path | None = None, env: Mapping[str, str] | None = None, seconds: float = 120
    ) -> str:
        """The output of a command that is not timed; BenchError where it fails."""
        done = subprocess.run(
            argv, cwd=cwd or self.folder, env=dict(env or self.env), capture_output=True, text=True, timeout=seconds
        )
        if done.returncode:
            raise BenchError(f"{' '.join(argv)} ended with {done.returncode}\n{(done.stderr or done.stdout)[-2000:]}")
        return done.stdout


class Calls:
    """Counts how often Slurm's commands are called by whoever runs with `env`."""

    def __init__(self, bench: Workbench, name: str) -> None:
        folder = bench.place(f"calls-{name}")
        self._log = folder / "log"
        for command in SLURM_COMMANDS:
            if (real := shutil.which(command)) is not None:
                wrapper = folder / command
                wrapper.write_text(f'#!/bin/sh\necho "$(date +%s.%N) {command}" >>{self._log}\nexec {real} "$@"\n')
                wrapper.chmod(0o755)
        self.env = {**bench.env, "PATH": f"{folder}{os.pathsep}{bench.env['PATH']}"}

    def of(self, command: str) -> int:
        return self._counted()[command]

    def __str__(self) -> str:
        return ", ".join(f"{count} {name}" for name, count in sorted(self._counted().items())) or "none"

    def _counted(self) -> Counter[str]:
        lines = self._log.read_text().splitlines() if self._log.exists() else []
        return Counter(line.split()[1] for line in lines)


def refresher(command: Callable[[], object], every: float) -> Callable[[], None]:
    """Calls `command` where the last call is over `every` seconds ago: it keeps a cache warm that ages."""
    last = float("-inf")

    def refresh() -> None:
        nonlocal last
        if time.monotonic() - last > every:
            command()
            last = time.monotonic()

    return refresh


def why_no_cluster() -> str:
    """What a private cluster lacks here, or nothing."""
    if os.getuid() != 0:
        return "a private Slurm cluster needs root"
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
    missing = [program for program in DAEMONS if shutil.which(program, path=path) is None]
    return f"Slurm is not installed here ({', '.join(missing)}); scripts/test installs it" if missing else ""


@contextlib.contextmanager
def workbench(slurm: bool) -> Iterator[Workbench]:
    """A workbench, gone again afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="slurmopt-bench-", dir="/tmp"))
    folder.chmod(0o755)  # munge runs as a user of its own
    env = {name: value for name, value in os.environ.items() if not name.startswith(INHERITED)}
    env.update(PYTHONPATH=str(ROOT), XDG_CACHE_HOME=str(folder / "cache"), XDG_STATE_HOME=str(folder / "state"))
    try:
        nothing: contextlib.AbstractContextManager[dict[str, str]] = contextlib.nullcontext({})
        with private_cluster(folder / "slurm", 2) if slurm else nothing as words:
            yield Workbench(folder, {**env, **words}, slurm)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def private_cluster(folder: Path, nodes: int, *options: str) -> Iterator[dict[str, str]]:
    """A cluster in `folder`, with further options of scripts/slurm-cluster: what the environment needs to reach it."""
    script = [sys.executable, str(ROOT / "scripts" / "slurm-cluster")]
    started = subprocess.run(
        [*script, "start", "--nodes", str(nodes), "--folder", str(folder), *options], capture_output=True, text=True
    )
    if started.returncode:
        raise BenchError(f"the private cluster does not start\n{started.stderr[-2000:]}")
    try:
        yield {"SLURM_CONF": started.stdout.strip().removeprefix("export SLURM_CONF=")}
    finally:
        subprocess.run([*script, "stop", "--folder", str(folder)], check=True, capture_output=True)


def console_script() -> str | None:
    """The installed `slurmopt`, where there is one beside this Python."""
    path = Path(sysconfig.get_path("scripts")) / "slurmopt"
    return str(path) if path.exists() else None
