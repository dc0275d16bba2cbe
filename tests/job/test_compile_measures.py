"""What a rank reports of torch.compile, and where it keeps what was compiled."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from job.harness import Runner

from slurmopt.job.worker.compile_cache import VARIABLE, compile_cache

FUNCTION, COMMAND = ("--function", "train.main"), ("--", sys.executable, "train.py")
COMPILES = """
import os, time
import torch
from slurmopt import phase, progress

def slow(graph, inputs):
    time.sleep(0.2)
    return graph.forward

def main(config=None):
    @torch.compile(backend=slow, dynamic=False)
    def double(x):
        y = x * 2
        print("a graph break")
        return y + 1

    for step in range(6):
        with phase("evaluation"):
            double(torch.ones(2 + step // 2))
        progress(step)
    print(f"cache: {os.environ.get('TORCHINDUCTOR_CACHE_DIR')}")

if __name__ == "__main__": main()
"""


@pytest.mark.parametrize("task", [FUNCTION, COMMAND], ids=["function", "command"])
def test_compilation_after_the_first_step_is_told_apart(
    runner: Runner, tmp_path: Path, task: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)  # torch sets it in its own process
    runner.module("train", COMPILES)
    scratch = tmp_path / "node disk"
    health = f'{{"reach":false,"scratch_path":"{scratch}"}}'
    assert runner.run(1, "--health", health, *task) == 0, runner.log(0)
    beat = runner.beat(0)
    assert beat is not None
    assert beat.spent["compiling"] >= 4 * 0.2  # two graphs for each of two new shapes
    assert beat.counted["recompiled"] >= 2
    assert beat.counted["graph_breaks"] >= 1
    assert beat.counted["compiled_graphs"] >= 6
    assert "compiling" in beat.phases
    folder = scratch / f"slurmopt-compiled-{os.geteuid()}"
    assert f"cache: {folder}" in runner.log(0)
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_folder_of_somebody_else_is_not_trusted(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / f"slurmopt-compiled-{os.geteuid()}"
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    assert compile_cache(str(tmp_path), {}) == {}
    said = capfd.readouterr().err
    assert "compiled code is not kept for later attempts" in said
    assert "open to others (mode 777)" in said


def test_what_the_user_set_stays(tmp_path: Path) -> None:
    assert compile_cache(str(tmp_path), {VARIABLE: "/mine"}) == {}
    assert compile_cache(None, {}) == {}
    assert list(tmp_path.iterdir()) == []
