"""The real Slurm that tests launch on, and the unprivileged user that they launch as."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).resolve().parent.parent / "scripts" / "slurm-cluster"
TESTER = "slurmopt-tester"


def need_slurm() -> None:
    """Skips, loudly, where no real Slurm can be had; in CI that is a failure."""
    reason = None
    if os.getuid() != 0:
        reason = "NO SLURM: a private cluster needs root"
    elif missing := [name for name in ("slurmctld", "slurmd", "munged", "sbatch") if shutil.which(name) is None]:
        reason = f"NO SLURM: {', '.join(missing)} not installed; scripts/test installs it on Debian and Ubuntu"
    if reason and os.environ.get("CI"):
        pytest.fail(reason)
    if reason:
        pytest.skip(reason)


def wait_until(ready: Callable[[], Any], timeout: float, what: str) -> Any:
    """Polls until `ready` answers something true, and returns it."""
    deadline = time.monotonic() + timeout
    while not (answer := ready()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout:g} s: {what}; the last answer was {answer!r}")
        time.sleep(0.1)
    return answer


def unprivileged_user() -> str:
    """The unprivileged user, made where missing: root ignores modes, so permissions are tested as somebody else."""
    try:
        pwd.getpwnam(TESTER)
    except KeyError:
        home = f"/var/tmp/{TESTER}"
        subprocess.run(["useradd", "--system", "--create-home", "--home-dir", home, TESTER], check=True)
    return TESTER


@dataclass
class PrivateCluster:
    """One running cluster of scripts/slurm-cluster."""

    folder: Path

    @classmethod
    def start(cls, folder: Path, *options: str) -> PrivateCluster:
        need_slurm()
        cluster = cls(folder)
        cluster.control("start", *options)
        return cluster

    @property
    def conf(self) -> Path:
        return self.folder / "etc" / "slurm.conf"

    def control(self, command: str, *words: str) -> str:
        """One command of scripts/slurm-cluster."""
        argv = [str(SCRIPT), command, *words, "--folder", str(self.folder)]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, f"{' '.join(argv)}: {done.stderr}"
        return done.stdout

    def stop(self) -> None:
        self.control("stop")

    def environment(self, user: str | None = None, **more: str) -> dict[str, str]:
        """The environment of a fresh login."""
        kept = {name: os.environ[name] for name in ("PATH", "LANG", "PYTHONPATH") if name in os.environ}
        entry = pwd.getpwnam(user or "root")
        return {**kept, "HOME": entry.pw_dir, "USER": entry.pw_name, "SLURM_CONF": str(self.conf), **more}

    def popen(
        self, argv: list[str], user: str | None = None, cwd: Path | None = None, **more: str
    ) -> subprocess.Popen[str]:
        """Starts a command as `user`, root when left out."""
        entry = pwd.getpwnam(user or "root")
        return subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=cwd or entry.pw_dir,
            env=self.environment(user, **more),
            user=entry.pw_uid,
            group=entry.pw_gid,
            extra_groups=[],
        )

    def run(
        self,
        argv: list[str],
        user: str | None = None,
        cwd: Path | None = None,
        timeout: float = 60,
        check: bool = True,
        **more: str,
    ) -> subprocess.CompletedProcess[str]:
        """Runs a command to its end."""
        process = self.popen(argv, user, cwd, **more)
        try:
            out, err = process.communicate(timeout=timeout)
        finally:
            process.kill()
        if check:
            assert process.returncode == 0, f"{argv} ended with {process.returncode}\n{out}\n{err}"
        return subprocess.CompletedProcess(argv, process.returncode, out, err)

    def jobs(self) -> list[str]:
        """The ids of all jobs that slurmctld knows, ended ones too."""
        return self.run(["squeue", "-h", "--states=all", "-o", "%i"]).stdout.split()

    def state(self, job: str) -> str:
        return self.run(["squeue", "-h", "--states=all", "-j", job, "-o", "%T"]).stdout.strip()

    def daemons(self) -> dict[str, bool]:
        argv = [str(SCRIPT), "status", "--json", "--folder", str(self.folder)]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
        alive: dict[str, bool] = json.loads(done.stdout)["daemons"]
        return alive
