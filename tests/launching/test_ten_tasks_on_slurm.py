"""What the page of the ten commonest tasks shows works with each of the tools, on a real Slurm."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import pytest
from docs.counted import typed
from launching.conftest import Project
from private_cluster import wait_until

TRAIN = """
import os, sys
def main(lr=0.1):
    loss = (float(lr) - 3e-4) ** 2
    print("loss", loss, flush=True)
    return loss
if __name__ == "__main__":
    from slurmopt import progress
    if int(os.environ.get("WORLD_SIZE", 1)) > 1:
        open(f"rank-{os.environ['RANK']}-of-{os.environ['WORLD_SIZE']}", "w").close()
    else:
        progress(1, loss=main(*sys.argv[2:]))
"""
needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="NOT TESTED: torch is not installed")


@pytest.fixture
def user(project: Project) -> Project:
    (project.path / "train.py").write_text(TRAIN)
    return project


def type_in(user: Project, text: str) -> str:
    """Runs what is typed in the user's shell; what it prints on standard output."""
    environ = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "XDG_CACHE_HOME": str(user.path / "cache"),
    }
    return user.run(["bash", "-ec", text], env=environ, timeout=120).stdout


def outputs(user: Project, pattern: str) -> list[str]:
    return [path.read_text() for path in sorted(user.path.glob(pattern))]


def test_one_gpu_and_three_values_with_sbatch(user: Project) -> None:
    type_in(user, typed(1, "sbatch"))
    user.wait_until_no_job_is_left()
    assert [text.startswith("loss 0.0099") for text in outputs(user, "slurm-*.out")] == [True]
    type_in(user, typed(3, "sbatch"))
    user.wait_until_no_job_is_left()
    wait_until(lambda: len(outputs(user, "slurm-*.out")) == 4, 30, "four logs are there")
    assert type_in(user, typed(10, "sbatch")).endswith("loss 0.0\n")


def test_one_gpu_and_three_values_with_slurmopt(user: Project) -> None:
    type_in(user, typed(1, "slurmopt"))
    user.wait_until_no_job_is_left()
    assert "loss 0.0099" in type_in(user, typed(5, "slurmopt"))
    assert "finished" in type_in(user, typed(4, "slurmopt"))
    type_in(user, typed(3, "slurmopt"))
    user.wait_until_no_job_is_left()
    assert "best: point 1, smallest loss 0," in type_in(user, typed(10, "slurmopt"))


def test_one_gpu_and_three_values_with_submitit(user: Project) -> None:
    pytest.importorskip("submitit")
    best = f"print('best', ({typed(10, 'submitit')}).result())"
    state = f"print({typed(4, 'submitit')})"
    program = "\n".join([typed(1, "submitit"), "print(job.result())", typed(3, "submitit"), best, state])
    (user.path / "launch.py").write_text(program)
    printed = type_in(user, "python launch.py")
    assert "\n0.0099" in f"\n{printed}"
    assert "\nbest 0.0\n" in printed


@needs_torch
@pytest.mark.parametrize("tool", ["slurmopt", "sbatch"])
def test_sixteen_ranks_on_two_nodes(user: Project, tool: str) -> None:
    type_in(user, typed(2, tool))
    user.wait_until_no_job_is_left()
    assert {path.name for path in user.path.glob("rank-*")} == {f"rank-{rank}-of-16" for rank in range(16)}
