"""One real cluster for all launches, and a folder that belongs to an unprivileged user."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from json_answer import data_of
from private_cluster import PrivateCluster, clean_environment, require_slurm, unprivileged_user, wait_until

TRAIN = '''
"""A training of three steps over gloo, one without torch, one that stops when it is told to, and one that fails."""
import time

import slurmopt


def main(config):
    import torch
    import torch.distributed as dist

    total = torch.ones(1)
    dist.all_reduce(total)
    for step in range(3):
        slurmopt.progress(step + 1, total=3, loss=1.0 / (step + 1))
    print(f"rank {dist.get_rank()} of {int(total)} on {slurmopt.rank_facts().node}")
    return {"world": int(total), "lr": config.get("lr")}


def plain(config):
    for step in range(3):
        slurmopt.progress(step + 1, total=3, loss=1.0 / (step + 1))
    print(f"rank {slurmopt.rank_facts().rank} of {slurmopt.rank_facts().world_size}")


def saves_whenever_told(config):
    while not slurmopt.stop_requested():
        slurmopt.progress(1)
        time.sleep(0.05)
    raise slurmopt.Requeue("saved")


plain.makes_process_group = saves_whenever_told.makes_process_group = True


def broken(config):
    import torch.distributed as dist

    if dist.get_rank() == 1:
        raise ValueError("the second rank's own mistake")
    dist.barrier()
'''


@dataclass
class Project:
    """A folder from which `user` launches."""

    cluster: PrivateCluster
    path: Path
    user: str

    def launch(self, *words: str, check: bool = True, **options: Any) -> subprocess.CompletedProcess[str]:
        return self.slurmopt("launch", *words, check=check, **options)

    def slurmopt(
        self, *words: str, check: bool = True, timeout: float = 120, **env: str
    ) -> subprocess.CompletedProcess[str]:
        """`slurmopt …` as the user, with `env` on top of the user's own environment."""
        # Those of root, of the test, are closed to the user.
        env = {"XDG_CACHE_HOME": str(self.path / "cache"), "XDG_STATE_HOME": str(self.path / "state"), **env}
        return self.run([*COMMAND, *words], check=check, timeout=timeout, env=env)

    def environment(self) -> dict[str, str]:
        """What the user's processes see, for those that a test starts itself."""
        home = pwd.getpwnam(self.user).pw_dir
        return {**clean_environment(), "HOME": home, "USER": self.user, "SLURM_CONF": str(self.cluster.conf)}

    def run(self, argv: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        return self.cluster.run(argv, self.user, cwd=self.path, **options)

    def submit(self, *words: str, **options: Any) -> dict[str, Any]:
        """Launches and returns what launch.json said."""
        answer: dict[str, Any] = data_of(self.launch(*words, "launch.json=true", **options).stdout)
        return answer

    def status(self, run: str) -> dict[str, Any]:
        (status,) = data_of(self.slurmopt("status", run, "--json").stdout)
        assert isinstance(status, dict)
        return status

    def wait_for(self, answer: dict[str, Any], *states: str, timeout: float = 90) -> dict[str, Any]:
        """The run's status once it is in one of `states`; it is asked for again once a line was noted, or a second
        later."""
        journal, seen = Path(answer["run"]) / "events.jsonl", dict[str, Any]()
        read, again = -1, 0.0

        def reached() -> bool:
            nonlocal read, again
            size = journal.stat().st_size if journal.exists() else 0
            if size == read and time.monotonic() < again:
                return False
            seen.update(self.status(answer["run"]))
            read, again = size, time.monotonic() + 1
            return seen["state"] in states

        wait_until(reached, timeout, f"{answer['run']} is {' or '.join(states)}", lambda: seen)
        return seen

    def wait_until_no_job_is_left(self) -> None:
        """A job that still ends writes to its run folder."""
        words = ["squeue", "--noheader", "--user", self.user]
        wait_until(lambda: not self.cluster.run(words).stdout.strip(), 60, "no job is left")


COMMAND = [sys.executable, "-m", "slurmopt"]


@pytest.fixture(scope="session")
def cluster() -> Iterator[PrivateCluster]:
    require_slurm()
    made = PrivateCluster.start(Path(f"/tmp/slurmopt-test-{os.getpid()}"), "--nodes", "4", "--gpus", "8")
    yield made
    made.stop()


@pytest.fixture
def project(cluster: PrivateCluster) -> Iterator[Project]:
    """Not below pytest's own temporary folder, which only its owner can enter; a new one for each try of a test."""
    user = unprivileged_user()
    path = Path(tempfile.mkdtemp(prefix="slurmopt-project-", dir="/tmp"))
    path.chmod(0o755)
    (path / "train.py").write_text(TRAIN)
    shutil.chown(path, user)
    made = Project(cluster, path, user)
    yield made
    cluster.run(["scancel", "--user", user])
    made.wait_until_no_job_is_left()
    shutil.rmtree(path)
